"""Helpers that the benchmarks share: ways that take turns, programs that must succeed, and servers."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run of one way."""

    seconds: float
    cpu: float = 0.0
    """CPU seconds of all its processes, without those of a server."""
    peak: int = 0
    """Peak memory in bytes; 0 where it was not measured."""
    size: int = 0
    """Size in bytes of the file that the run made; 0 if it made none."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One of the ways that a benchmark compares, and the outcomes of its runs."""

    name: str
    run: Callable[[Path], Outcome]
    """Runs the way once in an empty folder."""
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds of the fastest run, since other load only slows."""
        return min(outcome.seconds for outcome in self.outcomes)

    @property
    def cpu(self) -> float:
        """CPU seconds of the run with the fewest."""
        return min(outcome.cpu for outcome in self.outcomes)

    @property
    def peak(self) -> int:
        """Peak memory of the run with the most, in bytes."""
        return max(outcome.peak for outcome in self.outcomes)


def take_turns(ways: Sequence[Way], place: Path, runs: int) -> None:
    """Run all ways in turn, ``runs`` times."""
    for _ in range(runs):
        for way in ways:
            with empty_folder(place) as empty:
                way.outcomes.append(way.run(empty))


@contextmanager
def empty_folder(place: Path) -> Iterator[Path]:
    """Yield an empty folder and remove it afterwards.

    ``sync`` first writes what earlier runs left in memory.
    """
    folder = place / "way"
    folder.mkdir()
    os.sync()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def answer(argv: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output; a command that fails ends the benchmark with its error output."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{argv[0]} left with code {done.returncode}")
    return done


@contextmanager
def served(module: str, *flags: str) -> Iterator[str]:
    """Start a server in a process of its own and yield the URL that it prints first.

    The server ends with the block.
    """
    with subprocess.Popen(
        [sys.executable, "-m", module, *flags], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None  # noqa: S101 - it was asked for
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def cpu_of_children() -> float:
    """Return the CPU seconds of the children that have ended; a running server is not among them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def descendants(process: int) -> Iterable[int]:
    """Yield the ids of all processes below one; those that end meanwhile are left out."""
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from descendants(child)


def peak_of(process: int | str = "self") -> int | None:
    """Return the high-water mark of one process's memory in bytes; ``None`` if the process has ended.

    ``ru_maxrss`` would also count the parent process.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)
