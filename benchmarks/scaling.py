"""This benchmark simulates how long all variants compile on other machines, from measured costs of units.

    python -m benchmarks.scaling [--profile full] [--svg FILE]

Units with their CPU seconds and peak memory are those of ``./run plan`` (``builder/farm/costs.tsv``). Three
schedules are compared:

- one variant after the other, each with a job for 4 GiB of memory;
- all variants over one pool (``builder/farm/pool.c``), CUDA units in pieces (``builder/farm/nvcc.py``):
  pieces that variants share are compiled once, pieces of a unit run on slots that no unit waits for, units
  that share most wait for each other, and a unit gives memory back when its PTX is made;
- one machine for each architecture, then one machine for each variant, as in release.yml (``--from``).

Linking, checking, packing and the start of a machine are not simulated.
"""

from __future__ import annotations

import argparse
import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from benchmarks.bars import Bar, bars_picture
from builder.build.variant_build import BuildOptions, VariantBuild
from builder.build.verbs.flags import make_wiring, plan_options
from builder.compile.estimate import unit_seconds
from builder.config.build_plan import BY_PTXAS, BuildPlan, CompilePlan, UnitPart, compile_plan
from builder.config.load import pick_variants
from builder.errors import BuilderError
from builder.facts.gpu.architectures import Arch
from builder.farm import costs, pool
from builder.farm.costs import Cost
from builder.farm.nvcc import OLDER
from builder.formats.package_names import Profile
from builder.io.wiring import Wiring

_VARIANTS = ("legacy", "modern", "latest")

_CACHED_SECONDS = 0.1
"""CPU seconds of a unit that ccache answers: 30 for 321 units, and Ninja's own time."""

_MACHINES = {"2 cores, 24 GiB": (2, 24), "4, 16 (GitHub's runner)": (4, 16), "16, 64": (16, 64)}
_MACHINES |= {"32, 64": (32, 64), "32, 128": (32, 128), "128, 512": (128, 512)}
_RUNNER = (4, 16)

_GIB_A_JOB = 4

_MISSING = 1
"""GiB of a machine's memory that its kernel does not report."""

_SPARE = 2
"""GiB that the pool does not use: the system takes one, and ``builder/farm/drive.py`` leaves one free."""

_ALIKE = 0.54
"""Share of the seconds for PTX of 8.6 and 8.9 that is not spent, because the PTX is that of 8.0: units with
0.61 of the seconds have it (docs/decisions/0009), and a tenth is the preprocessor's (measured: 11 units)."""

_FLASH_BEFORE = {Arch(9, 0): Arch(8, 9)}
"""The PTX that units of flash attention shared before pieces."""

_LAST = 0.1
"""Last share of the time, in which idle slots are not counted."""


class Step(NamedTuple):
    """CPU seconds of what is compiled once: later steps of the same name are found in ccache."""

    name: str
    seconds: float


Steps = tuple[Step, ...]


def _seconds(steps: Iterable[Step]) -> float:
    return sum(step.seconds for step in steps)


@dataclass(frozen=True)
class Unit:
    """A unit to compile: its object, peak memory in MiB, and rank in the queue (the highest goes first)."""

    output: str
    last: Step
    """The step that runs alone, after the pieces."""
    peak: int
    rank: int
    pieces: tuple[Steps, ...] = ()
    """Steps, one after the other, of each piece that may run beside the other pieces; the first makes PTX."""
    after_ptx: int | None = None
    """Memory once the first step of every piece has ended; ``None`` for ``peak``."""
    is_common: bool = False
    """Whether units of this name wait for each other."""

    @property
    def total(self) -> float:
        """CPU seconds of the whole unit if nothing is found."""
        return _seconds(step for steps in (*self.pieces, (self.last,)) for step in steps)


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
    left: deque[Steps] = field(init=False)
    """The pieces that have not begun, the longest first."""
    without_ptx: int = field(init=False)
    """Number of pieces whose PTX is not made."""
    under_way: int = 0
    is_last_begun: bool = False

    def __post_init__(self) -> None:
        self.left = deque(sorted(self.unit.pieces, key=_seconds, reverse=True))
        self.without_ptx = len(self.left)

    @property
    def after_ptx(self) -> int:
        """Memory once the PTX is made."""
        return self.needs if self.unit.after_ptx is None else self.unit.after_ptx

    def next_on_own_slot(self) -> Steps | None:
        """Return what the unit's own slot runs next, ``None`` if that is nothing.

        The last part waits until no piece of the unit runs on another slot.
        """
        if self.left:
            return self.left.popleft()
        if self.under_way or self.is_last_begun:
            return None
        self.is_last_begun = True
        return (self.unit.last,)


class Machine:
    """A machine with slots and memory (MiB), and the units that run on it."""

    def __init__(self, jobs: int, budget: int) -> None:
        self._jobs, self._budget = jobs, budget
        self._made: dict[str, float] = {}
        self._idle, self._free = jobs, budget
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        """A heap of what happens when; the second value orders what happens at one time."""
        self._order = count()
        self._units: list[_Running] = []
        self._waits_for_pieces: set[_Running] = set()
        self._spans: list[tuple[float, float]] = []

    def run(self, units: Iterable[Unit]) -> Schedule:
        """Simulate the units and return the schedule.

        Units start in their order as soon as a slot and memory are free; no unit starts before one that
        waits for these. What ``run`` has compiled before is found.
        """
        self._now, self._spans = 0.0, []
        self._made = dict.fromkeys(self._made, 0.0)
        waiting = list(units)
        while waiting or self._events:
            while self._begins_piece(waiting) or self._begins_unit(waiting):
                pass
            self._now, _, happen = heapq.heappop(self._events)
            happen()
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
        at = self._next(waiting)
        for running in self._units:
            if at is not None and waiting[at].rank > running.unit.rank:
                return False
            if running.left and 2 * running.needs <= self._budget:
                if not self._takes(running.needs):
                    return False
                self._start(running, running.left.popleft(), is_own=False)
                return True
        return False

    def _begins_unit(self, waiting: list[Unit]) -> bool:
        at = self._next(waiting)
        if at is None or not self._takes(needs := min(waiting[at].peak, self._budget)):
            return False
        running = _Running(waiting.pop(at), needs)
        self._units.append(running)
        self._go_on(running)
        return True

    def _next(self, waiting: Sequence[Unit]) -> int | None:
        """Return the place of the first unit that waits for none of its name, ``None`` if there is none."""
        names = {running.unit.output for running in self._units if running.unit.is_common}
        return next((at for at, unit in enumerate(waiting) if unit.output not in names), None)

    def _ends(self, steps: Steps) -> Iterator[float]:
        """Yield when each of the steps ends that begin now, one after the other.

        A step that another piece has begun is found when that ends.
        """
        end = self._now
        for step in steps:
            if step.name in self._made:
                end = max(end, self._made[step.name]) + min(step.seconds, _CACHED_SECONDS)
            else:
                end = self._made[step.name] = end + step.seconds
            yield end

    def _go_on(self, running: _Running) -> None:
        steps = running.next_on_own_slot()
        if steps is not None:
            self._start(running, steps, is_own=True)
        elif running.is_last_begun:
            self._units.remove(running)
            self._gives_back(running.needs)
        else:
            self._waits_for_pieces.add(running)

    def _start(self, running: _Running, steps: Steps, *, is_own: bool) -> None:
        running.under_way += 1
        ends = list(self._ends(steps))
        self._spans.append((self._now, ends[-1]))
        if not running.is_last_begun:  # the last step makes no PTX
            self._at(ends[0], partial(self._has_ptx, running))
        self._at(ends[-1], partial(self._go_on_after, running, None if is_own else running.needs))

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), happen))

    def _has_ptx(self, running: _Running) -> None:
        """Note that a piece has its PTX, and give back memory if none of the unit's is left to make."""
        running.without_ptx -= 1
        if not running.without_ptx:
            self._free += running.needs - running.after_ptx
            running.needs = running.after_ptx

    def _go_on_after(self, running: _Running, spare: int | None) -> None:
        """Go on with the unit after a piece, which had the memory ``spare`` if it had a slot of its own."""
        running.under_way -= 1
        if spare is None:
            self._go_on(running)
            return
        self._gives_back(spare)
        if running in self._waits_for_pieces and not running.under_way:
            self._waits_for_pieces.remove(running)
            self._go_on(running)


def one_by_one(variants: Sequence[Sequence[Unit]], cores: int, gib: int) -> Schedule:
    """Return the schedule of one variant after the other."""
    jobs = max(1, min(cores, (gib - _MISSING) // _GIB_A_JOB))
    machine = Machine(jobs, gib << 10)
    each = [machine.run(sorted(units, key=_dearest_first)) for units in variants]
    wall = sum(one.wall for one in each)
    return Schedule(wall, sum(one.taken * one.wall for one in each) / wall * jobs / cores)


def pooled(variants: Sequence[Sequence[Unit]], cores: int, gib: int) -> Schedule:
    """Return the schedule of all variants over one pool."""
    units = sorted((unit for units in variants for unit in units), key=lambda unit: -unit.rank)
    return Machine(cores, (gib - _MISSING - _SPARE) << 10).run(units)


def _dearest_first(unit: Unit) -> float:
    return -unit.total


Ptx = Mapping[Arch, Arch]


@dataclass(frozen=True)
class Planned:
    """A unit of a variant's plan."""

    output: str
    host: float
    """CPU seconds of the part that does not depend on the architectures."""
    peak: int
    """MiB at most."""
    rank: int = 0
    each: float = 0.0
    """CPU seconds for an architecture with PTX of its own; 0 for a unit without device code."""
    ptx: Ptx = field(default_factory=dict)
    """The architectures whose PTX is used, by those whose SASS is made of it; empty without device code."""
    ptx_before: Ptx = field(default_factory=dict)
    """``ptx`` before pieces."""
    after_ptx: int | None = None
    """MiB once the PTX is made; ``None`` for ``peak``."""

    @property
    def whole(self) -> float:
        """CPU seconds before pieces."""
        return self.host + self.each * UnitPart("", self.ptx_before).architectures

    def steps(self) -> Iterator[Steps]:
        """Yield for each PTX the steps that make it and its SASS."""
        for ptx in dict.fromkeys(self.ptx.values()):
            alike = _ALIKE if f"compute_{ptx}" in OLDER else 0
            front = Step(f"{self.output} compute_{ptx}", (1 - BY_PTXAS) * (1 - alike) * self.each)
            yield (front, *(self._sass(arch) for arch, used in self.ptx.items() if used == ptx))

    def ahead(self, arch: Arch) -> Iterator[Step]:
        """Yield the steps that make SASS for one architecture; none if the unit is not compiled for it."""
        if arch in self.ptx:
            yield Step(f"{self.output} compute_{self.ptx[arch]}", (1 - BY_PTXAS) * self.each)
            yield self._sass(arch)

    def _sass(self, arch: Arch) -> Step:
        return Step(f"{self.output} sm_{arch}", BY_PTXAS * self.each)


def whole(variants: Sequence[Sequence[Planned]]) -> list[list[Unit]]:
    """Return the units of each variant as nvcc compiles them, without pieces to share.

    A C++ unit that an earlier variant has too is answered by ccache.
    """
    return [
        [Unit(unit.output, Step(f"{unit.output} {number}" if unit.ptx else unit.output, unit.whole),
              unit.peak, unit.rank)
         for unit in units]
        for number, units in enumerate(variants)
    ]  # fmt: skip


def in_pieces(variants: Sequence[Sequence[Planned]]) -> list[list[Unit]]:
    """Return the units of each variant in pieces, which are compiled once for all variants."""
    return [
        [Unit(unit.output, Step(unit.output, unit.host), unit.peak, unit.rank, tuple(unit.steps()),
              after_ptx=unit.after_ptx,
              is_common=len(set(unit.ptx.values())) < 2)  # noqa: PLR2004 - as drive.is_common
         for unit in units]
        for units in variants
    ]  # fmt: skip


def one_architecture_a_machine(variants: Sequence[Sequence[Planned]]) -> tuple[float, float]:
    """Return the seconds of the slowest machine for an architecture, and of the slowest for a variant."""
    cores, gib = _RUNNER
    ahead, builds = [], []
    for units in variants:
        for arch in {arch for unit in units for arch in unit.ptx}:
            steps = ((unit, list(unit.ahead(arch))) for unit in units)
            own = [Unit(unit.output, made[-1], unit.peak, unit.rank, (tuple(made[:-1]),))
                   for unit, made in steps if made]  # fmt: skip
            ahead.append(pooled([own], cores, gib).wall)
        hosts = [Unit(unit.output, Step(unit.output, unit.host), unit.peak, unit.rank) for unit in units]
        builds.append(pooled([hosts], cores, gib).wall)
    return max(ahead), max(builds)


def planned(wiring: Wiring, known: Mapping[str, Cost], profile: str) -> list[list[Planned]]:
    """Return the planned units of each variant, compiled on the assembled base."""
    options = BuildOptions(plan_options=plan_options("assembled", "source", profile))
    plans = [
        VariantBuild(wiring, variant, options, wiring.reporter).plan()
        for variant in pick_variants(wiring.project, _VARIANTS, all_=False)
    ]
    return [list(_planned(plan, known)) for plan in plans]


def _planned(plan: BuildPlan, known: Mapping[str, Cost]) -> Iterator[Planned]:
    division = compile_plan(plan)
    for output, seconds in unit_seconds(plan, known).items():
        cost = known[output]
        part = division.part_of(output) if costs.is_cuda(output) else UnitPart("", {})
        host = costs.host_seconds(cost.cpu) if part.ptx else cost.cpu
        each = (cost.cpu - host) / max(1, cost.architectures)
        yield Planned(
            output, host, _claimed(cost.peak), pool.rank(seconds), each, part.ptx,
            _ptx_before(part, division), after_ptx=_claimed(pool.peak_after_ptx(known, output)),
        )  # fmt: skip


def _claimed(mib: int) -> int:
    return pool.blocks(mib) * pool.BLOCK_MIB


def _ptx_before(part: UnitPart, division: CompilePlan) -> Ptx:
    """Return the architectures of PTX by those of SASS, as they were before pieces."""
    of_all = division.parts[-1].ptx
    shared = _FLASH_BEFORE if "/flash_attention/" in part.path else {}
    return {arch: shared.get(arch, of_all[arch]) for arch in part.ptx}


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
    units = [unit for units in after for unit in units]
    total = sum({step.name: step.seconds for unit in units for steps in (*unit.pieces, (unit.last,))
                 for step in steps}.values())  # fmt: skip
    longest: dict[str, float] = {}
    for unit in units:  # the variant that makes all is not known, so the shortest counts
        chain = max(map(_seconds, unit.pieces), default=0.0) + unit.last.seconds
        longest[unit.output] = min(chain, longest.get(unit.output, chain))
    most = max(longest.values())
    for name, (cores, gib) in _MACHINES.items():
        bound = max(total / cores, most)
        why = "the cores" if bound > most else "a unit's longest pieces"
        yield Row(name, one_by_one(before, cores, gib), pooled(after, cores, gib), bound, why)


class Build(NamedTuple):
    """A cold build over one pool that was measured."""

    variants: list[str]
    profile: str
    cores: int
    gib: int
    seconds: int
    """From the first unit's start to the last unit's end."""

    @classmethod
    def parse(cls, line: str) -> Build:
        """Return the build of a line of ``docs/results/scaling-builds.txt``."""
        variants, profile, *numbers = line.split(" | ")
        return cls(variants.split(), profile, *map(int, numbers))


def simulated(build: Build, variants: Sequence[Sequence[Planned]]) -> float:
    """Return the seconds that the simulator finds for a build, of the profile's planned units."""
    made = in_pieces([variants[_VARIANTS.index(name)] for name in build.variants])
    return pooled(made, build.cores, build.gib).wall


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
    both = [Bar(name, one.wall / 60, series)
            for row in found for series, (name, one) in enumerate(((row.name, row.before), ("", row.after)))
            ]  # fmt: skip
    title = f"Simulated minutes of all variants, {profile}, by cores, GiB"
    return bars_picture(
        title, both, ("one variant after the other", "all at once, over one pool"), templates, decimals=1
    )


def result_file(text: str) -> Path:
    """Return the path of a file, which is made here: a failure at the end would lose the results."""
    file = Path(text)
    try:
        file.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text}: {error.strerror}. Name a file in a folder of yours."
        ) from error
    return file


def main() -> None:
    """Print the table, and write the picture if ``--svg`` names a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--profile", choices=[one.value for one in Profile], default="full")
    parser.add_argument("--svg", type=result_file, help="file for a picture of the table")
    options = parser.parse_args()
    wiring = make_wiring()
    known = costs.read(wiring.root / "builder/farm/costs.tsv")
    variants = planned(wiring, known, options.profile)
    found = list(rows(variants))
    print("\n".join(table(found)))
    ahead, build = (seconds / 60 for seconds in one_architecture_a_machine(variants))
    print(f"\nAn architecture a machine of GitHub's: {ahead:.1f} min, then a variant each: {build:.1f} min.")
    if options.svg:
        options.svg.write_text(picture(found, options.profile, wiring.root / "templates"), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except BuilderError as error:
        sys.exit(f"error: {error}")
