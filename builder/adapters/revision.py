"""Which commit of itself the builder runs from. Nothing fails where that cannot be told."""

from __future__ import annotations

import re
from pathlib import Path

from builder.core.ports import Runner
from builder.core.provenance import Revision
from builder.errors import ToolMissingError

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_QUIET = {"GIT_OPTIONAL_LOCKS": "0"}
"""Looking writes nothing."""


def revision_of(root: Path, runner: Runner) -> Revision | None:
    """The commit checked out in ``root``, and whether anything there differs from it, new files too.

    ``None`` without git, and where ``root`` itself is no work tree: the repository around an unpacked archive
    is another project's.
    """
    here = ["git", "-C", str(root), "--git-dir=.git", "--work-tree=.", "-c", "core.fsmonitor=false"]
    try:
        head = runner.run([*here, "rev-parse", "--verify", "HEAD"], env=_QUIET, check=False)
        status = runner.run([*here, "status", "--porcelain"], env=_QUIET, check=False)
    except ToolMissingError:
        return None
    commit = head.stdout.strip()
    if head.code or status.code or not _COMMIT.fullmatch(commit):
        return None
    return Revision(commit=commit, dirty=bool(status.stdout.strip()))
