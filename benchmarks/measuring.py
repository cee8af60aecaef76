"""What the benchmarks share: ways that take turns, programs that must succeed, servers of their own."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run of one way."""

    seconds: float
    cpu: float = 0.0
    """Seconds of all its processes, a server's not."""
    peak: int = 0
    """Peak memory in bytes; 0 where it is not ours to measure."""
    size: int = 0
    """Bytes of what it made, where it made a file."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to do it, and what its runs gave."""

    name: str
    run: Callable[[Path], Outcome]
    """Does it in an empty folder."""
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The fastest run's: other load only slows."""
        return min(outcome.seconds for outcome in self.outcomes)

    @property
    def cpu(self) -> float:
        """The cheapest run's."""
        return min(outcome.cpu for outcome in self.outcomes)

    @property
    def peak(self) -> int:
        """The largest run's."""
        return max(outcome.peak for outcome in self.outcomes)


def take_turns(ways: Sequence[Way], place: Path, runs: int) -> None:
    """Run each way once, in turn, ``runs`` times."""
    for _ in range(runs):
        for way in ways:
            with empty_folder(place) as empty:
                way.outcomes.append(way.run(empty))


@contextmanager
def empty_folder(place: Path) -> Iterator[Path]:
    """An empty folder that goes with what is in it; nothing of the run before is still being written."""
    folder = place / "way"
    folder.mkdir()
    os.sync()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def answer(argv: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a command prints. One that fails ends the benchmark with what it says, and code 1."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{argv[0]} left with code {done.returncode}")
    return done


@contextmanager
def served(module: str, *flags: str) -> Iterator[str]:
    """A server in a process of its own, which prints its URL first; gone with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *flags], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None  # noqa: S101 - it was asked for
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def cpu_of_children() -> float:
    """Seconds of those that have ended; a server has not."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def peak_of(process: int | str = "self") -> int | None:
    """The high-water mark in bytes of a process alone; ``None`` once it is gone.

    ``ru_maxrss`` would count the process that started it.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)
