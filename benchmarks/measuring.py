"""Helpers that the benchmarks share: programs that must succeed, and the memory of a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def answer(argv: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; a command that fails ends the benchmark with its error output."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{argv[0]} left with code {done.returncode}")
    return done


def peak_of(process: int | str = "self") -> int | None:
    """Return the high-water mark of one process's memory in bytes; ``None`` if the process has ended.

    ``ru_maxrss`` would also count the parent process.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)
