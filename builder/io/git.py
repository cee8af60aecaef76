"""Git lookups: the commit of a tag, a tag's tree as a tar file, and the builder's own commit."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from builder.config.inputs import Input, Pin, tree_name
from builder.contents.provenance import Revision
from builder.errors import CommandError, IntegrityError, ToolMissingError, TransferError, ValidationError
from builder.io.process import ProcessRunner

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}
"""Variables that keep git from asking for a password and end it after 30 s below 1,000 bytes a second."""

_FETCH_ENVIRONMENT = {**_ENVIRONMENT, "GIT_HTTP_LOW_SPEED_TIME": "300"}
"""The same for a fetch: a server under load sends next to nothing while it counts a tree's objects."""


def tag_commit(runner: ProcessRunner, spec: str) -> str:
    """Return the commit of a tag, ``https://host/owner/name@tag``, annotated or not.

    Raises ``ValidationError`` for an unknown tag, ``TransferError`` when its host is out of reach and
    ``ToolMissingError`` without git.
    """
    url, _, tag = spec.rpartition("@")
    try:
        done = runner.run(
            ["git", "ls-remote", url, f"refs/tags/{tag}", f"refs/tags/{tag}^{{}}"], env=_ENVIRONMENT
        )
    except CommandError as error:
        raise _unreachable(url, error) from error
    return _commit(done.stdout, url, tag)


def download_tree(runner: ProcessRunner, item: Input, pin: Pin | None, folder: Path) -> Path:
    """Download a git tag's tree as a tar file (``io.store.Source``); ``pin`` has the commit.

    Git runs on this machine, so the engine needs no git and the steps of a build need no network. Submodules
    are left out. Raises ``IntegrityError`` when the tag leads to another commit, ``TransferError`` when the
    host is out of reach and ``ToolMissingError`` without git.
    """
    url, _, tag = item.spec.rpartition("@")
    repository, tar = folder / "repository", folder / tree_name(item)
    here = ["git", "--git-dir", str(repository)]
    runner.run([*here, "init", "--quiet", "--bare"], env=_ENVIRONMENT)
    try:
        fetch = [*here, "fetch", "--quiet", "--depth=1", url, f"refs/tags/{tag}"]
        runner.run(fetch, env=_FETCH_ENVIRONMENT)
    except CommandError as error:
        raise _unreachable(url, error) from error
    got = runner.run([*here, "rev-parse", "FETCH_HEAD^{commit}"], env=_ENVIRONMENT).stdout.strip()
    if pin is None or got != pin.revision:
        raise IntegrityError(
            f"{item.key}: wanted commit {pin and pin.revision}, the tag leads to {got}",
            advice="Somebody moved the tag. Compare the two commits; `./run lock --refresh` pins the new "
            "one.",
        )
    runner.run([*here, "archive", "--format=tar", f"--output={tar}", got], env=_ENVIRONMENT)
    shutil.rmtree(repository)
    return tar


def _unreachable(url: str, error: CommandError) -> TransferError:
    """Take git's first complaint for the cause: "expected 'packfile'" follows a connection that broke."""
    complaints = [line for line in error.tail if line.startswith(("error: ", "fatal: "))]
    reason = next(iter((*complaints, *error.tail)), f"exit code {error.code}")
    advice = "Check the network, and the address in variants.yaml."
    return TransferError(f"{url} cannot be reached", cause=reason, advice=advice)


def _commit(listing: str, url: str, tag: str) -> str:
    """Return the tag's commit from the output of ``git ls-remote``. Raises ``ValidationError`` without one.

    An annotated tag has a second line, ``<tag>^{}``, that names its commit.
    """
    rows = [line.split("\t") for line in listing.splitlines()]
    commits = {name: commit for commit, name in (row for row in rows if len(row) == 2)}  # noqa: PLR2004
    commit = commits.get(f"refs/tags/{tag}^{{}}") or commits.get(f"refs/tags/{tag}")
    if commit is None:
        raise ValidationError(f"{url} has no tag {tag}", advice="Correct it in variants.yaml.")
    return commit


_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

_QUIET = {"GIT_OPTIONAL_LOCKS": "0"}
"""Variables that keep git from writing anything, even its index."""


def revision_of(root: Path, runner: ProcessRunner) -> Revision | None:
    """Return the commit checked out in ``root``, and whether any file in ``root`` differs from it or is new.

    The result is ``None`` without git and when ``root`` itself is no work tree: a repository in a folder
    above, around an unpacked archive, is another project's.
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


_REPOSITORY = re.compile(r"(?:[a-z+]+://[^/]+/|[^/:]+:)(?P<name>[^/]+/[^/]+?)(?:\.git)?/?")


def origin_of(root: Path, runner: ProcessRunner) -> str | None:
    """Return ``owner/name`` of the remote ``origin``; ``None`` without git, a remote, or such an address."""
    try:
        done = runner.run(
            ["git", "-C", str(root), "--git-dir=.git", "remote", "get-url", "origin"], check=False
        )
    except ToolMissingError:
        return None
    match = _REPOSITORY.fullmatch(done.stdout.strip())
    return match["name"] if match and not done.code else None
