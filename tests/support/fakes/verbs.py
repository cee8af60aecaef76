"""Calls of the verbs as a user makes them: in a process of their own."""

import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, ran


def invoke(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a verb of the project to its end, for at most 50 minutes."""
    argv = [sys.executable, "-m", "builder.build.verbs.command_line", *map(str, arguments)]
    return ran(argv, cwd=ROOT, timeout=3000)


def build(dist: Path, *arguments: str) -> Path:
    """Build one variant on the assembled base into ``dist``, and return its full package.

    ``thin_of`` gives the thin package, which lies in the same folder.
    """
    done = invoke("build", "--base", "assembled", "--dist", dist, *arguments)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    full, thin, _gzipped = (Path(line.strip()) for line in done.stdout.splitlines()[-3:])
    assert thin == thin_of(full)
    return full


def thin_of(full: Path) -> Path:
    """Return the path of the thin package that a build makes with a full one."""
    return full.with_name(full.name.replace("-linux-x64", "-thin-linux-x64"))
