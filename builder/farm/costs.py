"""Costs of compile units, which are learned from build to build, and the record of one build.

A unit is named by its object's path in the Ninja tree, which is the same for every variant and profile. The
record is a JSON file made from the tree's unit log. It is stored next to the package and not in it, because a
package depends on its inputs only, and the times do not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

_HOST_PIECE, _HOST_SHARE = 6.0, 0.4
"""CPU seconds of a CUDA unit's host piece (measured: 4.0 to 6.8 for five units), and its highest share of the
unit."""
_CACHE_HIT = 0.3
"""A compile that took less than this share of the unit's known cost counts as a cache hit of ccache."""
_ROW = re.compile(
    r"^(?P<output>[^#\t\n]+)\t(?P<cpu>[0-9]+\.[0-9]+)\t(?P<archs>[0-9]+(?:\.[0-9]+)?)\t(?P<peak>[0-9]+)$",
    re.MULTILINE,
)
_LINE = re.compile(r"^([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) (?P<output>\S+)\n", re.MULTILINE)
_RUN = re.compile(r"^([0-9]+) ([0-9]+)\n", re.MULTILINE)
_OF_PLUGIN = "onnxruntime_providers_cuda_plugin.dir/"
_OF_PROVIDER = re.compile(r"\bonnxruntime_providers_cuda_\w+\.dir/")
_HEADER = "# output\tcpu_s\tarchitectures\tpeak_mib\n"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Measured cost of a unit: CPU seconds for a number of architectures, and peak memory in MiB.

    Architectures that have their PTX in common count less than one each (``UnitPart.architectures`` of
    ``builder.config.build_plan``).
    """

    cpu: float
    architectures: float
    peak: int

    def seconds(self, output: str, architectures: float) -> float:
        """Return the CPU seconds of the unit ``output``, for C++ the same for all ``architectures``."""
        if not is_cuda(output):
            return self.cpu
        host = host_seconds(self.cpu)
        return host + (self.cpu - host) * max(1, architectures) / max(1, self.architectures)


_UNKNOWN_CUDA = Cost(cpu=22.3, architectures=5, peak=2500)
_UNKNOWN_HOST = Cost(cpu=4.0, architectures=1, peak=500)
"""Costs of units without a measurement: medians of ORT 1.21; nine of ten units take less memory."""
_ADAPTERS = 27.0
"""CPU seconds that a C++ unit of a plug-in takes more than in a provider, since each includes the adapters.

Measured: 22 to 44, median 27, for 21 units of 1.30's development state, 2026-11-30, beside other work.
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the unit log: times in ms since 1970, CPU in ms, peak in KiB, the compiler's exit code."""

    start: int
    end: int
    cpu: int
    peak: int
    status: int
    output: str


def is_cuda(output: str) -> bool:
    """Return whether the object ``output`` is compiled from CUDA source, by its name."""
    return output.endswith(".cu.o")


def estimate(costs: Mapping[str, Cost], output: str, architectures: float) -> float:
    """Return the CPU seconds that a unit will take, by ``cost_of``.

    ``architectures`` below 1 count as 1.
    """
    return cost_of(costs, output).seconds(output, architectures)


def cost_of(costs: Mapping[str, Cost], output: str) -> Cost:
    """Return a unit's cost from ``costs``.

    A unit of a part of a provider costs what the same source costs in a provider, and so does one of a
    plug-in, a C++ unit ``_ADAPTERS`` more. For an unknown one, it is the median of those in its folder whose
    names begin like its own for the longest, up to the end of a word; of an unknown folder, that of its kind
    (CUDA or C++).
    """
    if output in costs:
        return costs[output]
    if _OF_PLUGIN in output and not is_cuda(output):
        same = cost_of(costs, _OF_PROVIDER.sub("onnxruntime_providers_cuda.dir/", output, count=1))
        return replace(same, cpu=same.cpu + _ADAPTERS)
    output = _OF_PROVIDER.sub("onnxruntime_providers_cuda.dir/", output, count=1)
    if output in costs:
        return costs[output]
    folder = output.rpartition("/")[0] + "/"
    kin = {
        name: cost
        for name, cost in costs.items()
        if is_cuda(name) == is_cuda(output) and name.rpartition("/")[0] + "/" == folder
    }
    words = output[len(folder) :].split("_")
    for count in range(len(words) - 1, -1, -1):
        beginning = folder + "".join(f"{word}_" for word in words[:count])
        if like := [cost for name, cost in kin.items() if name.startswith(beginning)]:
            return sorted(like, key=lambda cost: cost.cpu)[len(like) // 2]
    return _UNKNOWN_CUDA if is_cuda(output) else _UNKNOWN_HOST


def host_seconds(cpu: float) -> float:
    """Return the CPU seconds of the host piece of a CUDA unit that takes ``cpu`` seconds."""
    return min(_HOST_PIECE, _HOST_SHARE * cpu)


def read_log(file: Path) -> Iterator[Line]:
    """Yield the lines of the unit log in ``file``; none where there is no file."""
    yield from parse_log(_text(file))


def parse_log(text: str) -> Iterator[Line]:
    """Yield the complete lines of a unit log's text; other text is skipped."""
    for line in _LINE.finditer(text):
        start, end, cpu, peak, status = map(int, line.groups()[:5])
        yield Line(start=start, end=end, cpu=cpu, peak=peak, status=status, output=line["output"])


def was_compiled(line: Line, seconds: float) -> bool:
    """Return whether a unit that costs ``seconds`` was compiled: no failure and no cache hit."""
    return line.status == 0 and line.cpu / 1000 >= _CACHE_HIT * seconds


def learned(
    costs: Mapping[str, Cost], log: Iterable[Line], architectures: Callable[[str], float]
) -> dict[str, Cost]:
    """Return ``costs`` updated with a log: the CPU seconds of each unit's last compile, and its highest peak.

    Failures and cache hits are ignored. ``architectures`` returns the number of architectures that a unit was
    compiled for.
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
    """Return the costs in ``file`` by unit; none without a file. Lines of another form are skipped."""
    return {
        row["output"]: Cost(cpu=float(row["cpu"]), architectures=float(row["archs"]), peak=int(row["peak"]))
        for row in _ROW.finditer(_text(file))
    }


def write(file: Path, costs: Mapping[str, Cost]) -> None:
    """Write ``costs`` to ``file`` as a table, the costliest unit first, by renaming a complete file."""
    dearest = sorted(costs.items(), key=lambda item: (-item[1].cpu, item[0]))
    rows = (f"{output}\t{cost.cpu:.2f}\t{cost.architectures:g}\t{cost.peak}\n" for output, cost in dearest)
    part = file.with_name(f"{file.name}.part")
    part.write_text(_HEADER + "".join(rows), encoding="utf-8")
    part.replace(file)


_RUNS = "runs.log"
CACHE_LOG, PIECES_LOG = "ccache-stats.log", "ccache-pieces.log"
_PIECE_HIT = re.compile(r"^# (\S+)\.pieces/\S+\ndirect_cache_hit$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class NinjaRun:
    """One Ninja run, perhaps a killed one, from its start to its last unit's end, in ms since 1970."""

    start: int
    jobs: int
    units: Sequence[Line]

    @property
    def end(self) -> int:
        """The end of its last unit."""
        return max([self.start, *(unit.end for unit in self.units)])

    @property
    def busy(self) -> int:
        """Sum of the milliseconds that units ran."""
        return sum(map(_ran, self.units))


def begin_run(tree: Path, started: float, jobs: int) -> None:
    """Note in ``tree`` that a Ninja run of ``jobs`` begins at ``started``, in seconds since 1970.

    The run's end is not noted, because a killed run could not do so; it is the end of the run's last unit.
    """
    with (tree / _RUNS).open("a", encoding="ascii") as file:
        file.write(f"\n{started * 1000:.0f} {jobs}\n")  # the first ends a line that a full disk cut off


def write_record(file: Path, tree: Path) -> None:
    """Write the record of all Ninja runs in ``tree`` to ``file`` as JSON."""
    log = list(read_log(tree / "units.log"))
    begun = read_runs(tree / _RUNS, log)
    runs = [run for run in begun if run.units]
    room = sum((run.end - run.start) * run.jobs for run in runs)
    document = {
        "units": len({line.output for line in log}),
        "compilations": len(log),
        "cache_hits": cache_hits(_text(tree / CACHE_LOG)) + len(found_in_part(tree / PIECES_LOG)),
        "cpu_s": round(sum(line.cpu for line in log) / 1000),
        "wall_s": round(sum(run.end - run.start for run in runs) / 1000),
        "runs": len(runs),
        "jobs": max((run.jobs for run in begun), default=0),
        "busy_percent": round(100 * sum(run.busy for run in runs) / room) if room else 0,
        "peak_mib": peak_mib(log),
        "longest_unit_s": round(max(map(_ran, log), default=0) / 1000),
    }
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_runs(file: Path, log: Sequence[Line]) -> list[NinjaRun]:
    """Return the Ninja runs that ``file`` lists; a unit of ``log`` belongs to the run in which it began."""
    begun = [(int(start), int(jobs)) for start, jobs in _RUN.findall(_text(file))]
    ends = [*(start for start, _ in begun[1:]), sys.maxsize]
    return [
        NinjaRun(start=start, jobs=jobs, units=[line for line in log if start <= line.start < end])
        for (start, jobs), end in zip(begun, ends, strict=False)
    ]


def _ran(unit: Line) -> int:
    """Return the milliseconds that a unit ran; 0 if the clock was set back meanwhile."""
    return max(0, unit.end - unit.start)


def cache_hits(log: str) -> int:
    """Return the number of cache hits in the text of ccache's statistics log."""
    return sum(word in {"direct_cache_hit", "preprocessed_cache_hit"} for word in log.split())


def found_in_part(log: Path) -> set[str]:
    """Return the CUDA units with a cache hit for at least one piece, by ccache's statistics log of pieces."""
    return set(_PIECE_HIT.findall(_text(log)))


def cache_misses(log: str) -> int:
    """Return the number of cache misses in the text of ccache's statistics log."""
    return log.split().count("cache_miss")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def peak_mib(log: Sequence[Line]) -> int:
    """Return the most MiB that units can have used at once; each counts with its peak from start to end."""
    changes = [(line.start, line.peak) for line in log] + [(line.end, -line.peak) for line in log]
    return max(accumulate(change for _, change in sorted(changes)), default=0) // 1024
