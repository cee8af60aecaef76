"""The verbs as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def invoke(*arguments: str | Path, timeout: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    argv = [sys.executable, "-m", "builder.app.program", *map(str, arguments)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def build(dist: Path, *arguments: str) -> Path:
    """Build one variant on the assembled base; the package."""
    done = invoke("build", "--base", "assembled", "--dist", dist, *arguments)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return Path(done.stdout.splitlines()[-1].strip())
