"""Code that several folders of tests use: factories of values and files, fakes, faults, real packages."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository's root folder."""


def ran(
    argv: Sequence[str | Path],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    given: str | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its status and what it printed."""
    return subprocess.run(
        argv, cwd=cwd, env=env, input=given, timeout=timeout, check=check, capture_output=True, text=True
    )


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    """Wait for what must hold within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
