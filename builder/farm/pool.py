"""A build's side of the pool of job slots and memory that all builds on a machine share.

``pool.c`` lets each compiler wait for its slot and memory. A pool is a folder with files; only the kernel's
locks on these files count, so a killed build leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from builder.farm.costs import Cost, cost_of

BLOCK_MIB = 64
"""MiB of one block, the unit of memory in claims."""

_FLOCK = struct.Struct("hhqqi4x")
"""C's ``struct flock``."""

_BUDGET = "budget"

_BUILD = "build-"


def blocks(mib: int) -> int:
    """Return the number of blocks that ``mib`` MiB need, at least 1."""
    return max(1, math.ceil(mib / BLOCK_MIB))


def peak(known: Mapping[str, Cost], output: str) -> int:
    """Return the peak memory of a unit in MiB."""
    return cost_of(known, output).peak


_ATTENTION = re.compile("/(flash|lean)_attention/")
_HEAVY_MIB, _AFTER_PTX = 2048, 0.4


def peak_after_ptx(known: Mapping[str, Cost], output: str) -> int:
    """Return the peak memory of a unit in MiB once its PTX is made.

    It is ``peak``, but less for units of attention with more than 2 GiB (docs/decisions/0004-real-builds.md).
    What others need then was not measured; the host's part of one takes 45 %.
    """
    most = peak(known, output)
    is_measured = output in known and _ATTENTION.search(output) and most > _HEAVY_MIB
    return round(_AFTER_PTX * most) if is_measured else most


def rank(seconds: float) -> int:
    """Return a unit's rank in the queue by its CPU seconds: two ranks for each doubling, 0 up to 1 s."""
    return max(0, round(2 * math.log2(max(1.0, seconds))))


def write_claims(
    file: Path,
    outputs: Iterable[str],
    known: Mapping[str, Cost],
    price: Callable[[str], float],
    is_common: Callable[[str], bool],
) -> None:
    """Write the claims file that ``pool.c`` reads: a line for each unit."""
    rows = (
        (output, rank(price(output)), *(blocks(of(known, output)) for of in (peak, peak_after_ptx)),
         int(is_common(output)))
        for output in outputs
    )  # fmt: skip
    file.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")


class Pool:
    """A build's membership in the pool, as long as the block of ``joined`` runs."""

    def __init__(self, folder: Path, budget: int, own: IO[str]) -> None:
        self._folder = folder
        self._own = own
        self.budget = budget
        """MiB that the compilers of all builds may use together."""

    def environment(self, jobs: int, claims: Path) -> Mapping[str, str]:
        """Return the environment variables that ``pool.c`` reads."""
        return {
            "UNIT_POOL": str(self._folder),
            "UNIT_JOBS": str(jobs),
            "UNIT_MEMORY": str(max(1, self.budget // BLOCK_MIB)),
            "UNIT_BLOCK": str(BLOCK_MIB),
            "UNIT_CLAIMS": str(claims),
        }

    def claimed(self, claims: Path) -> int:
        """Return the MiB that the running units of a claims file hold: those whose rows ``pool.c`` locked."""
        held = at = 0
        with claims.open("rb") as file:
            for row in file:
                _, _, most, after_ptx, _ = row.split(b"\t")
                held += int(after_ptx) * _is_locked(file, at)
                held += (int(most) - int(after_ptx)) * _is_locked(file, at + 1)
                at += len(row)
        return min(held * BLOCK_MIB, self.budget)

    def others(self) -> int:
        """Return the number of other builds that run."""
        files = (file for file in self._folder.glob(f"{_BUILD}*") if str(file) != self._own.name)
        return sum(map(_is_held, files))


@contextmanager
def joined(folder: Path, name: str, memory: int) -> Iterator[Pool]:
    """Join the pool in ``folder`` as ``name`` until the block ends.

    The pool's budget is ``memory`` MiB if no other build runs, else the budget that the first one set. The
    memory that is free now would then be too little, because the other builds' compilers use some.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _BUDGET).open("a+", encoding="ascii") as shared:
        budget = _agreed(shared, memory)
        with (folder / f"{_BUILD}{name}").open("w", encoding="ascii") as own:
            fcntl.flock(own, fcntl.LOCK_EX)
            yield Pool(folder, budget, own)


def _agreed(shared: IO[str], memory: int) -> int:
    """Return the budget in MiB that the first running build wrote; the first build writes ``memory``."""
    try:
        fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # other builds run, and the first has written the budget
    else:
        shared.truncate(0)
        shared.write(f"{max(BLOCK_MIB, memory)}\n")
        shared.flush()
    fcntl.flock(shared, fcntl.LOCK_SH)
    shared.seek(0)
    told = shared.read().strip()
    return int(told) if told.isdecimal() else max(BLOCK_MIB, memory)


def _is_locked(file: IO[bytes], at: int) -> bool:
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)


def _is_held(file: Path) -> bool:
    with file.open("r+", encoding="ascii") as theirs:
        try:
            fcntl.flock(theirs, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
