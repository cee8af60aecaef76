"""What compiling costs: unit by unit, learned from build to build, and the record of one build.

A unit is named by its object's path in the Ninja tree, which is the same for every variant and profile. The
record is made of the tree's unit log, run by run, as one JSON file. It goes beside the package, never into
it: the same inputs give the same package, not the same seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

_HOST_PIECE, _HOST_SHARE = 6.0, 0.4
"""CPU seconds of a CUDA unit's piece for the host (4.0 to 6.8 of five units), and its share at most."""
_CACHE_HIT = 0.3
"""A compile below this share of the known cost was answered by ccache."""
_ROW = re.compile(
    r"^(?P<output>[^#\t\n]+)\t(?P<cpu>[0-9]+\.[0-9]+)\t(?P<archs>[0-9]+)\t(?P<peak>[0-9]+)$", re.MULTILINE
)
_LINE = re.compile(r"^([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) (?P<output>\S+)\n", re.MULTILINE)
_HEADER = "# output\tcpu_s\tarchitectures\tpeak_mib\n"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What compiling a unit took: CPU seconds for so many architectures, and its peak memory in MiB."""

    cpu: float
    architectures: int
    peak: int

    def seconds(self, output: str, architectures: float) -> float:
        """The CPU seconds that the unit takes for ``architectures``; a host's takes the same for any."""
        if not is_cuda(output):
            return self.cpu
        host = host_seconds(self.cpu)
        return host + (self.cpu - host) * max(1, architectures) / max(1, self.architectures)


_UNKNOWN_CUDA = Cost(cpu=22.3, architectures=5, peak=2500)
_UNKNOWN_HOST = Cost(cpu=4.0, architectures=1, peak=500)
"""Units that nobody has compiled yet: medians of ORT 1.21; nine of ten take less memory."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the unit log: times in ms since 1970, CPU in ms, peak in KiB, the compiler's status."""

    start: int
    end: int
    cpu: int
    peak: int
    status: int
    output: str


def is_cuda(output: str) -> bool:
    """Whether CMake made the object ``output`` of CUDA source, by its name."""
    return output.endswith(".cu.o")


def estimate(costs: Mapping[str, Cost], output: str, architectures: float) -> float:
    """The CPU seconds that a unit will take: by what it took before, else the median of units of its kind.

    ``architectures`` below 1 count as 1: part of the work for one is done however little of it is asked for.
    """
    return cost_of(costs, output).seconds(output, architectures)


def cost_of(costs: Mapping[str, Cost], output: str) -> Cost:
    """What a unit took before, else the median of units of its kind."""
    return costs.get(output, _UNKNOWN_CUDA if is_cuda(output) else _UNKNOWN_HOST)


def host_seconds(cpu: float) -> float:
    """The CPU seconds of the host's piece of a CUDA unit that takes ``cpu``."""
    return min(_HOST_PIECE, _HOST_SHARE * cpu)


def read_log(file: Path) -> Iterator[Line]:
    """The lines of ``unit``'s log; none where there is no log."""
    yield from parse_log(_text(file))


def parse_log(text: str) -> Iterator[Line]:
    """The whole lines of a unit log's text; what is no such line is skipped."""
    for found in _LINE.finditer(text):
        start, end, cpu, peak, status = map(int, found.groups()[:5])
        yield Line(start=start, end=end, cpu=cpu, peak=peak, status=status, output=found["output"])


def was_compiled(line: Line, seconds: float) -> bool:
    """Whether a unit that costs ``seconds`` was compiled: it did not fail, and ccache did not answer it."""
    return line.status == 0 and line.cpu / 1000 >= _CACHE_HIT * seconds


def learned(
    costs: Mapping[str, Cost], log: Iterable[Line], architectures: Callable[[str], int]
) -> dict[str, Cost]:
    """The costs, updated with a log: the newest compile of each unit counts, unless ccache answered it.

    ``architectures`` gives the number of architectures that a unit was compiled for. The highest peak stays.
    """
    known = dict(costs)
    for line in log:
        count = architectures(line.output)
        now = Cost(cpu=line.cpu / 1000, architectures=count, peak=line.peak // 1024)
        before = known.get(line.output, now)
        if was_compiled(line, before.seconds(line.output, count)):
            known[line.output] = replace(now, peak=max(now.peak, before.peak))
    return known


def read(file: Path) -> dict[str, Cost]:
    """The costs in ``file`` by unit; none where there is no file. Lines of another form are skipped."""
    return {
        row["output"]: Cost(cpu=float(row["cpu"]), architectures=int(row["archs"]), peak=int(row["peak"]))
        for row in _ROW.finditer(_text(file))
    }


def write(file: Path, costs: Mapping[str, Cost]) -> None:
    """Write the table, the dearest unit first. The file appears whole or not at all."""
    dearest = sorted(costs.items(), key=lambda item: (-item[1].cpu, item[0]))
    rows = (f"{output}\t{cost.cpu:.2f}\t{cost.architectures}\t{cost.peak}\n" for output, cost in dearest)
    part = file.with_name(f"{file.name}.part")
    part.write_text(_HEADER + "".join(rows), encoding="utf-8")
    part.replace(file)


_RUNS = "runs.log"
CACHE_LOG, PIECES_LOG = "ccache-stats.log", "ccache-pieces.log"
_PIECE_HIT = re.compile(r"^# (\S+)\.pieces/\S+\ndirect_cache_hit$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class NinjaRun:
    """One Ninja run, from its start to the end of its last unit, in ms since 1970; killed ones too."""

    start: int
    end: int
    jobs: int
    units: int
    busy: int
    """Milliseconds that units ran, all of them together."""


def begin_run(tree: Path, started: float, jobs: int) -> None:
    """Note in ``tree`` that a Ninja run of ``jobs`` begins at ``started``, in seconds since 1970.

    Its end is not noted, since a run that is killed could not do so: the last of its units tells it.
    """
    with (tree / _RUNS).open("a", encoding="ascii") as file:
        file.write(f"{started * 1000:.0f} {jobs}\n")


def write_record(file: Path, tree: Path) -> None:
    """Write the record of all runs in ``tree`` since it was made, as JSON."""
    log = list(read_log(tree / "units.log"))
    begun = read_runs(tree / _RUNS, log)
    runs = [run for run in begun if run.units]
    room = sum((run.end - run.start) * run.jobs for run in runs)
    document = {
        "format": 1,
        "units": len({line.output for line in log}),
        "compilations": len(log),
        "cache_hits": cache_hits(_text(tree / CACHE_LOG)) + len(found_in_part(tree / PIECES_LOG)),
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
    """The Ninja runs that ``file`` lists; a unit of ``log`` belongs to the run in which it began."""
    lines = [line.split() for line in _text(file).splitlines()]
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


def cache_hits(log: str) -> int:
    """The number of compiles that ccache answered, by the text of its own log."""
    return sum(word in {"direct_cache_hit", "preprocessed_cache_hit"} for word in log.split())


def found_in_part(log: Path) -> set[str]:
    """The CUDA units of which ccache had a piece, by its log of them."""
    return set(_PIECE_HIT.findall(_text(log)))


def cache_misses(log: str) -> int:
    """The number of compiles that ccache did not answer."""
    return log.split().count("cache_miss")


def _text(file: Path) -> str:
    """A file's text; empty where there is no file."""
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def peak_mib(log: Sequence[Line]) -> int:
    """The most MiB that units can have held at once: each counts with its peak from start to end."""
    changes = [(line.start, line.peak) for line in log] + [(line.end, -line.peak) for line in log]
    return max(accumulate(change for _, change in sorted(changes)), default=0) // 1024
