"""A run of mutated files, one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from tests.fuzz.mutations import mutated
from tests.fuzz.properties import outcome
from tests.fuzz.seeds import Seed

LONGEST = 1.0
"""Seconds of the processor that one file may take."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A file that broke a property."""

    data: bytes
    reason: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """``seconds`` of the run, ``longest`` of one file, ``outcomes`` that differ."""

    executions: int
    seconds: float
    longest: float
    outcomes: int
    crashes: tuple[Crash, ...]

    def __str__(self) -> str:
        return (
            f"{self.executions:,} executions in {self.seconds:.1f} s, {self.outcomes} distinct outcomes, "
            f"longest execution {self.longest * 1000:.1f} ms, crashes = {len(self.crashes)}"
        )


def run(seeds: Sequence[Seed], executions: int, seed: int) -> Result:
    """Mutate and read ``executions`` files; the same ``seed`` makes the same ones."""
    source = random.Random(seed)  # noqa: S311 - mutations that repeat
    outcomes: set[str] = set()
    crashes: list[Crash] = []
    longest = 0.0
    started = perf_counter()
    for _ in range(executions):
        data = mutated(seeds, source)
        before = process_time()
        try:
            outcomes.add(outcome(data))
        except Exception as error:  # noqa: BLE001 - whatever a reader lets out is what we look for
            crashes.append(Crash(data=data, reason=repr(error)))
        took = process_time() - before
        longest = max(longest, took)
        if took > LONGEST:
            crashes.append(Crash(data=data, reason=f"{took:.1f} s"))
    return Result(
        executions=executions,
        seconds=perf_counter() - started,
        longest=longest,
        outcomes=len(outcomes),
        crashes=tuple(crashes),
    )
