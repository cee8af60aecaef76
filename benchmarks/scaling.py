"""How long all variants compile on other machines: a simulation of the schedule, fed with measured units.

    python -m benchmarks.scaling [--profile full]

Units and their CPU seconds and peaks are those of ``./run plan`` (``builder/inside/costs.tsv``). Two ways are
compared: one variant after the other, each with a job for 4 GiB of memory as it was until 2026-11-23; and all
variants over one pool (``builder/inside/pool.c``). A unit runs for its CPU seconds, and C++ units that
variants share are compiled once, by either way. Linking, checking and packing are no part of it.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.app.command_line import make_wiring, wishes
from builder.builds.estimate import unit_seconds
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.builds.wiring import Wiring
from builder.inside import costs, pool
from builder.inside.costs import Cost

_VARIANTS = ("legacy", "modern", "latest")

_CACHED_SECONDS = 0.1
"""A unit that ccache answers: 30 CPU s for 321 of them (docs/decisions/0004), and Ninja's own time."""

_MACHINES = {"2 cores, 24 GiB": (2, 24), "4, 16 (GitHub's runner)": (4, 16), "16, 64": (16, 64)}
_MACHINES |= {"32, 128": (32, 128), "128, 512": (128, 512)}

_GIB_A_JOB = 4

_LAST = 0.1
"""The end of the time, in which slots may be idle."""


@dataclass(frozen=True)
class Unit:
    """A compile: seconds of one core, MiB at most, and the place in the queue."""

    seconds: float
    peak: int
    rank: int


@dataclass(frozen=True)
class Schedule:
    """How a machine spends its time."""

    wall: float
    """Seconds."""
    taken: float
    """The share of slots that are taken until the last tenth of the time."""


def simulated(units: Iterable[Unit], jobs: int, budget: int) -> Schedule:
    """Start units in their order as soon as a slot and memory (MiB) are free; none passes one that waits."""
    running: list[tuple[float, int]] = []
    spans: list[tuple[float, float]] = []
    now, free = 0.0, budget
    for unit in units:
        needs = min(unit.peak, budget)
        while len(running) == jobs or needs > free:
            now, peak = heapq.heappop(running)
            free += peak
        free -= needs
        heapq.heappush(running, (now + unit.seconds, needs))
        spans.append((now, now + unit.seconds))
    wall = max((end for _, end in spans), default=0.0)
    until = (1 - _LAST) * wall
    taken = sum(max(0.0, min(end, until) - start) for start, end in spans if start < until)
    return Schedule(wall, taken / (until * jobs) if wall else 0.0)


def one_by_one(variants: Sequence[Sequence[Unit]], cores: int, gib: int) -> Schedule:
    """The schedule of one variant after the other."""
    jobs = max(1, min(cores, gib // _GIB_A_JOB))
    each = [simulated(sorted(units, key=_dearest_first), jobs, gib << 10) for units in variants]
    wall = sum(one.wall for one in each)
    return Schedule(wall, sum(one.taken * one.wall for one in each) / wall * jobs / cores)


def pooled(variants: Sequence[Sequence[Unit]], cores: int, gib: int) -> Schedule:
    """The schedule of all variants over one pool."""
    units = sorted((unit for units in variants for unit in units), key=lambda unit: -unit.rank)
    return simulated(units, cores, (gib - 1) << 10)


def _dearest_first(unit: Unit) -> float:
    return -unit.seconds


def units_of(variants: Sequence[Mapping[str, float]], known: Mapping[str, Cost]) -> list[list[Unit]]:
    """The units of each variant; a C++ unit that an earlier one has compiled comes from the cache."""
    seen: set[str] = set()
    found = []
    for seconds in variants:
        units = []
        for output, taken in seconds.items():
            cached = output in seen and not costs.is_cuda(output)
            cost = _CACHED_SECONDS if cached else taken
            units.append(Unit(cost, pool.peak(known, output), pool.rank(taken)))
        seen |= seconds.keys()
        found.append(units)
    return found


def planned(wiring: Wiring, known: Mapping[str, Cost], profile: str) -> list[Mapping[str, float]]:
    """The CPU seconds of the units of each variant, compiled on the assembled base."""
    options = BuildOptions(wishes=wishes("assembled", "source", profile))
    plans = (
        VariantBuild(wiring, wiring.project.variants[name], options, wiring.reporter).plan()
        for name in _VARIANTS
    )
    return [unit_seconds(plan, known) for plan in plans]


def table(variants: Sequence[Sequence[Unit]]) -> Iterator[str]:
    """The lines of a Markdown table, a machine a line."""
    yield "| cores, GiB | one by one, min | pool, min | ratio | slots taken | bound, min | what bounds it |"
    yield "|---|---|---|---|---|---|---|"
    total = sum(unit.seconds for units in variants for unit in units)
    longest = max(unit.seconds for units in variants for unit in units)
    for name, (cores, gib) in _MACHINES.items():
        before, after = one_by_one(variants, cores, gib), pooled(variants, cores, gib)
        bound = max(total / cores, longest)
        why = "the cores" if bound > longest else "the longest unit"
        yield (
            f"| {name} | {before.wall / 60:.1f} | {after.wall / 60:.1f} | {after.wall / before.wall:.2f} "
            f"| {after.taken:.0%} | {bound / 60:.1f} | {why} |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--profile", default="full")
    options = parser.parse_args()
    wiring = make_wiring()
    known = costs.read(wiring.root / "builder/inside/costs.tsv")
    print("\n".join(table(units_of(planned(wiring, known, options.profile), known))))


if __name__ == "__main__":
    main()
