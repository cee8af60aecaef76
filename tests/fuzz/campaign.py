"""Run of the readers on mutated files."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time

from tests.fuzz.mutations import mutated
from tests.fuzz.properties import outcome
from tests.fuzz.seeds import Seed

LONGEST = 1.0
"""Largest processor time in seconds for a file."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A file that broke a property."""

    data: bytes
    reason: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run: its ``seconds``, those of the ``longest`` file, the number of ``outcomes``."""

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
    """Mutate and read ``executions`` files; the same ``seed`` gives the same files."""
    source = random.Random(seed)  # noqa: S311 - mutations must be repeatable
    outcomes: set[str] = set()
    crashes: list[Crash] = []
    longest = 0.0
    started = perf_counter()
    for _ in range(executions):
        data = mutated(seeds, source)
        before = process_time()
        try:
            outcomes.add(outcome(data))
        except Exception as error:  # noqa: BLE001 - any exception of a reader is a defect
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
