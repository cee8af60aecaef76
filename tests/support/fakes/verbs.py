"""The verbs as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import ROOT


def invoke(*arguments: str | Path, timeout: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    argv = [sys.executable, "-m", "builder.app.command_line", *map(str, arguments)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def build(dist: Path, *arguments: str) -> Path:
    """Build one variant on the assembled base; the full package. The thin ones lie beside it: ``thin_of``."""
    done = invoke("build", "--base", "assembled", "--dist", dist, *arguments)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    full, thin, _gzipped = (Path(line.strip()) for line in done.stdout.splitlines()[-3:])
    assert thin == thin_of(full)
    return full


def thin_of(full: Path) -> Path:
    """The thin package that a build makes beside a full one."""
    return full.with_name(full.name.replace("-linux-x64", "-thin-linux-x64"))
