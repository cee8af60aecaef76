"""This benchmark simulates how long all variants compile on other machines, from measured costs of units.

    python -m benchmarks.scaling [--profile full] [--svg FILE]

Units with their CPU seconds and peak memory are those of ``./run plan`` (``builder/inside/costs.tsv``). Three
schedules are compared:

- one variant after the other, each with a job for 4 GiB of memory;
- all variants over one pool (``builder/inside/pool.c``), CUDA units in pieces (``builder/inside/nvcc.py``):
  pieces that variants share are compiled once, and pieces of a unit run on slots that no unit waits for;
- one machine for each architecture, then one machine for each variant, as in release.yml (``--from``).

Linking, checking, packing and the start of a machine are not simulated.
"""

from __future__ import annotations

import argparse
import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bars import bars_picture
from builder.app.flags import make_wiring, plan_options
from builder.builds.estimate import architectures_of, unit_seconds
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.gpu.architectures import Arch
from builder.inside import costs, pool
from builder.inside.costs import Cost

_VARIANTS = ("legacy", "modern", "latest")

_CACHED_SECONDS = 0.1
"""CPU seconds of a unit that ccache answers: 30 for 321 units (docs/decisions/0004), and Ninja's own time."""

_MACHINES = {"2 cores, 24 GiB": (2, 24), "4, 16 (GitHub's runner)": (4, 16), "16, 64": (16, 64)}
_MACHINES |= {"32, 128": (32, 128), "128, 512": (128, 512)}
_RUNNER = (4, 16)

_GIB_A_JOB = 4

_LAST = 0.1
"""Last share of the time, in which idle slots are not counted."""


@dataclass(frozen=True)
class Unit:
    """A unit to compile: CPU seconds, peak memory in MiB, and rank in the queue (the highest goes first)."""

    seconds: float
    """CPU seconds of the part that runs alone, after the pieces."""
    peak: int
    rank: int
    pieces: tuple[float, ...] = ()
    """CPU seconds of each piece that may run beside the other pieces."""

    @property
    def total(self) -> float:
        """CPU seconds of the whole unit."""
        return self.seconds + sum(self.pieces)


@dataclass(frozen=True)
class Schedule:
    """The result of a simulation."""

    wall: float
    """Seconds from the first unit's start to the last unit's end."""
    taken: float
    """The share of slots that are in use until the last tenth of the time."""


@dataclass(eq=False)
class _Running:
    """A unit that has begun to compile."""

    unit: Unit
    needs: int
    left: deque[float] = field(init=False)
    """Seconds of the pieces that have not begun, the longest first."""
    under_way: int = 0
    is_last_begun: bool = False

    def __post_init__(self) -> None:
        self.left = deque(sorted(self.unit.pieces, reverse=True))

    def next_on_own_slot(self) -> float | None:
        """Return the seconds of what the unit's own slot runs next, ``None`` if that is nothing.

        The last part waits until no piece of the unit runs on another slot.
        """
        if self.left:
            return self.left.popleft()
        if self.under_way or self.is_last_begun:
            return None
        self.is_last_begun = True
        return self.unit.seconds


class Machine:
    """A machine with slots and memory (MiB), and the units that run on it."""

    def __init__(self, jobs: int, budget: int) -> None:
        self._jobs, self._budget = jobs, budget
        self._idle, self._free = jobs, budget
        self._now = 0.0
        self._ends: list[tuple[float, int, _Running, bool]] = []
        self._units: list[_Running] = []
        self._waits_for_pieces: set[_Running] = set()
        self._spans: list[tuple[float, float]] = []

    def run(self, units: Iterable[Unit]) -> Schedule:
        """Simulate the units and return the schedule.

        Units start in their order as soon as a slot and memory are free; no unit starts before one that
        waits.
        """
        waiting = deque(units)
        while waiting or self._ends:
            while self._begins_piece(waiting) or self._begins_unit(waiting):
                pass
            self._advance()
        until = (1 - _LAST) * self._now
        taken = sum(max(0.0, min(end, until) - start) for start, end in self._spans if start < until)
        return Schedule(self._now, taken / (until * self._jobs) if self._now else 0.0)

    def _takes(self, needs: int) -> bool:
        if not self._idle or needs > self._free:
            return False
        self._idle -= 1
        self._free -= needs
        return True

    def _gives_back(self, needs: int) -> None:
        self._idle += 1
        self._free += needs

    def _begins_piece(self, waiting: Sequence[Unit]) -> bool:
        """Start one more piece of a running unit that ranks no lower than the first in the queue.

        Returns whether a piece was started.
        """
        for running in self._units:
            if waiting and waiting[0].rank > running.unit.rank:
                return False
            if running.left and 2 * running.needs <= self._budget:
                if not self._takes(running.needs):
                    return False
                self._start(running, running.left.popleft(), is_own=False)
                return True
        return False

    def _begins_unit(self, waiting: deque[Unit]) -> bool:
        if not waiting or not self._takes(needs := min(waiting[0].peak, self._budget)):
            return False
        running = _Running(waiting.popleft(), needs)
        self._units.append(running)
        self._go_on(running)
        return True

    def _go_on(self, running: _Running) -> None:
        seconds = running.next_on_own_slot()
        if seconds is not None:
            self._start(running, seconds, is_own=True)
        elif running.is_last_begun:
            self._units.remove(running)
            self._gives_back(running.needs)
        else:
            self._waits_for_pieces.add(running)

    def _start(self, running: _Running, seconds: float, *, is_own: bool) -> None:
        running.under_way += 1
        self._spans.append((self._now, self._now + seconds))
        heapq.heappush(self._ends, (self._now + seconds, len(self._spans), running, is_own))

    def _advance(self) -> None:
        self._now, _, running, is_own = heapq.heappop(self._ends)
        running.under_way -= 1
        if is_own:
            self._go_on(running)
        else:
            self._gives_back(running.needs)
            if running in self._waits_for_pieces and not running.under_way:
                self._waits_for_pieces.remove(running)
                self._go_on(running)


def one_by_one(variants: Sequence[Sequence[Unit]], cores: int, gib: int) -> Schedule:
    """Return the schedule of one variant after the other."""
    jobs = max(1, min(cores, gib // _GIB_A_JOB))
    each = [Machine(jobs, gib << 10).run(sorted(units, key=_dearest_first)) for units in variants]
    wall = sum(one.wall for one in each)
    return Schedule(wall, sum(one.taken * one.wall for one in each) / wall * jobs / cores)


def pooled(variants: Sequence[Sequence[Unit]], cores: int, gib: int) -> Schedule:
    """Return the schedule of all variants over one pool."""
    units = sorted((unit for units in variants for unit in units), key=lambda unit: -unit.rank)
    return Machine(cores, (gib - 1) << 10).run(units)


def _dearest_first(unit: Unit) -> float:
    return -unit.total


@dataclass(frozen=True)
class Planned:
    """A unit of a variant's plan: CPU seconds, MiB at most, and the architectures of a CUDA unit."""

    output: str
    seconds: float
    peak: int
    architectures: Sequence[Arch] = ()

    @property
    def rank(self) -> int:
        """Rank in the queue, from the CPU seconds."""
        return pool.rank(self.seconds)

    @property
    def host(self) -> float:
        """CPU seconds of the part that does not depend on the architectures."""
        return costs.host_seconds(self.seconds) if self.architectures else self.seconds

    @property
    def each(self) -> float:
        """CPU seconds for each architecture; 0 for a unit without device code."""
        return (self.seconds - self.host) / len(self.architectures) if self.architectures else 0.0


def whole(variants: Sequence[Sequence[Planned]]) -> list[list[Unit]]:
    """Return the units of each variant as nvcc compiles them.

    A C++ unit that an earlier variant has too is answered by ccache.
    """
    return [
        [Unit(unit.seconds if unit.architectures or not found else _CACHED_SECONDS, unit.peak, unit.rank)
         for unit, found in units]
        for units in _with_found(variants)
    ]  # fmt: skip


def in_pieces(variants: Sequence[Sequence[Planned]]) -> list[list[Unit]]:
    """Return the units of each variant in pieces; the host's piece is compiled once for all variants."""
    return [
        [Unit(_CACHED_SECONDS if found else unit.host, unit.peak, unit.rank,
              (unit.each,) * len(unit.architectures))
         for unit, found in units]
        for units in _with_found(variants)
    ]  # fmt: skip


def _with_found(variants: Sequence[Sequence[Planned]]) -> Iterator[Iterator[tuple[Planned, bool]]]:
    """Yield for each variant its units, each with whether an earlier variant has the same unit."""
    for at, units in enumerate(variants):
        earlier = {unit.output for others in variants[:at] for unit in others}
        yield ((unit, unit.output in earlier) for unit in units)


def one_architecture_a_machine(variants: Sequence[Sequence[Planned]]) -> tuple[float, float]:
    """Return the seconds of the slowest machine for an architecture, and of the slowest for a variant."""
    cores, gib = _RUNNER
    ahead, builds = [], []
    for units in variants:
        for arch in {arch for unit in units for arch in unit.architectures}:
            own = [Unit(unit.each, unit.peak, unit.rank) for unit in units if arch in unit.architectures]
            ahead.append(pooled([own], cores, gib).wall)
        builds.append(pooled([[Unit(unit.host, unit.peak, unit.rank) for unit in units]], cores, gib).wall)
    return max(ahead), max(builds)


def planned(wiring: Wiring, known: Mapping[str, Cost], profile: str) -> Iterator[list[Planned]]:
    """Yield the planned units of each variant, compiled on the assembled base."""
    options = BuildOptions(plan_options=plan_options("assembled", "source", profile))
    for name in _VARIANTS:
        plan = VariantBuild(wiring, wiring.project.variants[name], options, wiring.reporter).plan()
        yield [
            Planned(
                output,
                seconds,
                pool.peak(known, output),
                architectures_of(output, plan) if costs.is_cuda(output) else (),
            )
            for output, seconds in unit_seconds(plan, known).items()
        ]


@dataclass(frozen=True)
class Row:
    """A machine and its schedules: variants one by one (``before``), and all over one pool (``after``)."""

    name: str
    before: Schedule
    after: Schedule
    bound: float
    """Lower bound of every schedule, in seconds."""
    bounded_by: str


def rows(variants: Sequence[Sequence[Planned]]) -> Iterator[Row]:
    """Yield a row for each machine, the smallest first."""
    before, after = whole(variants), in_pieces(variants)
    total = sum(unit.total for units in after for unit in units)
    longest = max(max(unit.pieces, default=0.0) + unit.seconds for units in after for unit in units)
    for name, (cores, gib) in _MACHINES.items():
        bound = max(total / cores, longest)
        why = "the cores" if bound > longest else "a unit's longest pieces"
        yield Row(name, one_by_one(before, cores, gib), pooled(after, cores, gib), bound, why)


def table(found: Iterable[Row]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a line for each machine."""
    yield "| cores, GiB | one by one, min | pool, min | ratio | slots taken | bound, min | what bounds it |"
    yield "|---|---|---|---|---|---|---|"
    for row in found:
        yield (
            f"| {row.name} | {row.before.wall / 60:.1f} | {row.after.wall / 60:.1f} "
            f"| {row.after.wall / row.before.wall:.2f} | {row.after.taken:.0%} | {row.bound / 60:.1f} "
            f"| {row.bounded_by} |"
        )


def picture(found: Sequence[Row], profile: str, templates: Path) -> str:
    """Return an SVG with bars of minutes, two for each machine."""
    both = [(f"{row.name}: {way}", one.wall / 60)
            for row in found for way, one in (("one by one", row.before), ("pool", row.after))]  # fmt: skip
    title = f"Minutes that all variants compile, profile {profile}, simulated"
    return bars_picture(title, both, templates, decimals=1)


def main() -> None:
    """Print the table, and write the picture if ``--svg`` names a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--profile", default="full")
    parser.add_argument("--svg", type=Path, help="file for a picture of the table")
    options = parser.parse_args()
    wiring = make_wiring()
    known = costs.read(wiring.root / "builder/inside/costs.tsv")
    variants = list(planned(wiring, known, options.profile))
    found = list(rows(variants))
    print("\n".join(table(found)))
    ahead, build = (seconds / 60 for seconds in one_architecture_a_machine(variants))
    print(f"\nAn architecture a machine of GitHub's: {ahead:.1f} min, then a variant each: {build:.1f} min.")
    if options.svg:
        options.svg.write_text(picture(found, options.profile, wiring.root / "templates"), encoding="utf-8")


if __name__ == "__main__":
    main()
