"""What compiling took: the Ninja tree's unit log, run by run, as one JSON file.

It goes beside the package, never into it: the same inputs give the same package, not the same seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from builder.inside.costs import Line, read_log

_RUNS = "runs.log"
_CACHE_LOG = "ccache-stats.log"


@dataclass(frozen=True, kw_only=True)
class NinjaRun:
    """One Ninja run, from its start to the end of its last unit, in ms since 1970; killed ones too."""

    start: int
    end: int
    jobs: int
    units: int
    busy: int
    """Milliseconds that units ran, all of them together."""


def begin(tree: Path, started: float, jobs: int) -> None:
    """Note that a Ninja run begins, in seconds since 1970: one that is killed could not note its end."""
    with (tree / _RUNS).open("a", encoding="ascii") as file:
        file.write(f"{started * 1000:.0f} {jobs}\n")


def write(file: Path, tree: Path) -> None:
    """All that the tree has taken since it was begun."""
    log = list(read_log(tree / "units.log"))
    begun = read_runs(tree / _RUNS, log)
    runs = [run for run in begun if run.units]
    room = sum((run.end - run.start) * run.jobs for run in runs)
    document = {
        "format": 1,
        "units": len({line.output for line in log}),
        "compilations": len(log),
        "cache_hits": cache_hits(tree / _CACHE_LOG),
        "cpu_s": round(sum(line.cpu for line in log) / 1000, 1),
        "wall_s": round(sum(run.end - run.start for run in runs) / 1000, 1),
        "runs": len(runs),
        "jobs": max((run.jobs for run in begun), default=0),
        "busy_percent": round(100 * sum(run.busy for run in runs) / room) if room else 0,
        "peak_mib": peak_mib(log),
        "longest_unit_s": round(max((line.end - line.start for line in log), default=0) / 1000, 1),
    }
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_runs(file: Path, log: Sequence[Line]) -> list[NinjaRun]:
    """The runs, each with the units that began in it."""
    lines = [line.split() for line in file.read_text(encoding="ascii").splitlines()] if file.is_file() else []
    begun = [(int(words[0]), int(words[1])) for words in lines if len(words) == 2]  # noqa: PLR2004
    limits = [*(start for start, _ in begun), 1 << 62]
    spans = zip(pairwise(limits), begun, strict=True)
    return [
        _run(start, jobs, [line for line in log if start <= line.start < until])
        for (start, until), (_, jobs) in spans
    ]


def _run(start: int, jobs: int, units: Sequence[Line]) -> NinjaRun:
    return NinjaRun(
        start=start,
        end=max((unit.end for unit in units), default=start),
        jobs=jobs,
        units=len(units),
        busy=sum(unit.end - unit.start for unit in units),
    )


def cache_hits(log: Path) -> int:
    """Units that ccache answered, by its own log."""
    if not log.is_file():
        return 0
    words = log.read_text(encoding="utf-8", errors="replace").split()
    return sum(word in {"direct_cache_hit", "preprocessed_cache_hit"} for word in words)


def peak_mib(log: Sequence[Line]) -> int:
    """Most memory that units held at once, in MiB: an upper bound, each counts with its peak throughout."""
    changes = [(line.start, line.peak) for line in log] + [(line.end, -line.peak) for line in log]
    return max(accumulate(change for _, change in sorted(changes)), default=0) // 1024
