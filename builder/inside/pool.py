"""The pool of job slots and memory that all builds on a machine share: what a build tells it and asks it.

``pool.c`` holds each compiler to it. A pool is a folder; what lies in it means nothing without the kernel's
locks on it, so that a build that was killed leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from builder.inside.costs import Cost, cost_of

BLOCK_MIB = 256
"""The unit of memory of a claim."""

_FLOCK = struct.Struct("hhqqi4x")
"""C's ``struct flock``."""

_BUDGET = "budget"

_LEFT = "left-"


def blocks(mib: int) -> int:
    """The blocks of memory that ``mib`` MiB need."""
    return max(1, math.ceil(mib / BLOCK_MIB))


def peak(known: Mapping[str, Cost], output: str) -> int:
    """The MiB that a unit takes at most."""
    return cost_of(known, output).peak


def rank(seconds: float) -> int:
    """A unit's place in the queue by its CPU seconds: two ranks for each doubling."""
    return max(0, round(2 * math.log2(max(1.0, seconds))))


def write_claims(
    file: Path, outputs: Iterable[str], known: Mapping[str, Cost], price: Callable[[str], float]
) -> None:
    """Write what ``pool.c`` reads: each unit's rank and blocks."""
    rows = (f"{output}\t{rank(price(output))}\t{blocks(peak(known, output))}\n" for output in outputs)
    file.write_text("".join(rows), encoding="utf-8")


class Pool:
    """A build's place in the pool, while ``joined``."""

    def __init__(self, folder: Path, budget: int, own: IO[str]) -> None:
        self._folder = folder
        self._own = own
        self.budget = budget
        """The MiB that the compilers of all builds may take together."""

    def environment(self, jobs: int, claims: Path) -> Mapping[str, str]:
        """The variables that ``pool.c`` reads."""
        return {
            "UNIT_POOL": str(self._folder),
            "UNIT_JOBS": str(jobs),
            "UNIT_MEMORY": str(max(1, self.budget // BLOCK_MIB)),
            "UNIT_CLAIMS": str(claims),
        }

    def claimed(self, claims: Path) -> int:
        """The MiB that the units of a claims file hold now: ``pool.c`` locks a unit's row while it runs."""
        held = at = 0
        with claims.open("rb") as file:
            for row in file:
                asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
                kind, *_ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
                held += int(row.rpartition(b"\t")[2]) if kind != fcntl.F_UNLCK else 0
                at += len(row)
        return min(held * BLOCK_MIB, self.budget)

    def tell(self, seconds: float) -> None:
        """Let the other builds know the seconds that are left of this one's units, all of them together."""
        self._own.seek(0)
        self._own.write(f"{seconds:.0f}\n")
        self._own.truncate()
        self._own.flush()

    def others(self) -> list[float]:
        """What the other builds have told, of those that live and have something left."""
        files = (file for file in self._folder.glob(f"{_LEFT}*") if str(file) != self._own.name)
        return [seconds for file in files for seconds in _told(file) if seconds]


@contextmanager
def joined(folder: Path, name: str, memory: int) -> Iterator[Pool]:
    """Join the pool in ``folder`` as ``name``; its budget is ``memory`` MiB, or what a living build has set.

    That counts whatever ``memory`` is: what is free now lacks what the other builds' compilers hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _BUDGET).open("a+", encoding="ascii") as shared:
        budget = _agreed(shared, memory)
        with (folder / f"{_LEFT}{name}").open("w", encoding="ascii") as own:
            fcntl.flock(own, fcntl.LOCK_EX)
            yield Pool(folder, budget, own)


def _agreed(shared: IO[str], memory: int) -> int:
    """The budget that the first of the builds has written; ``memory`` if this one is the first."""
    try:
        fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # others live, and have agreed
    else:
        shared.truncate(0)
        shared.write(f"{max(BLOCK_MIB, memory)}\n")
        shared.flush()
    fcntl.flock(shared, fcntl.LOCK_SH)
    shared.seek(0)
    told = shared.read().strip()
    return int(told) if told.isdecimal() else max(BLOCK_MIB, memory)


def _told(file: Path) -> Iterator[float]:
    """What a file holds that a living build has locked."""
    with file.open("r+", encoding="ascii") as theirs, suppress(ValueError):
        try:
            fcntl.flock(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield float(theirs.read())
