"""Code that several folders of tests use: factories of values and files, fakes, faults, real packages."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
"""The repository's root folder."""

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value


def written(folder: Path, contents: Mapping[str, bytes]) -> Path:
    """Write files by their paths in ``folder``, which is made, and return ``folder``."""
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


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
