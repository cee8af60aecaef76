"""This program compiles the outstanding units in one Ninja run, prints its progress, and records the costs.

    --tree /build --pool /pool --shared SOCKET --name legacy --jobs 2 --memory 8192 --architectures 3.5
    --parts FILE --learned FILE --measured FILE --record FILE [--only-cuda] TARGET...

The builds of a machine share ``--pool``: together they run ``--jobs`` compilers in ``--memory`` MiB; 0 stands
for the number of cores and for the free memory. ``--shared`` is the socket of a compile cache that machines
share (``storage``); without a socket there, no such cache is used.

Lines for the user begin with ``ortpacks: ``, lines with the progress with ``status.MARK``; all other lines
are Ninja's and the compilers'. After a failed unit, all others are still compiled and kept. The failures are
printed again at the end, each with its command and its last lines. The exit status is Ninja's.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from builder.farm import costs, ninja, pool, storage
from builder.farm.costs import Line
from builder.farm.ninja import costliest_first
from builder.farm.status import CompileStatus

SHARED = "shared-compile-cache"
"""The file that ``note_shared`` makes; the build copies it to the folder of the compiled libraries."""
_STATUS = re.compile(r"\[\d+/\d+\] (?P<what>.*)")
_OUTPUT = re.compile(r"Building \w+ object (?P<output>\S+)")
_OBJECT = re.compile(r" -o (?P<output>\S+\.o)(?:\s|$)", re.MULTILINE)
_FAILED = re.compile(r"FAILED: (?P<output>\S+)")
_LAST_LINES = 15
_TOLD_LINES = 28
"""Most lines on all failed units together: an error message shows 30 lines of a build."""
_SECONDS_A_STATUS = 2
_SPARE = 1 << 30
"""Bytes of free memory that compilers do not use."""


def main(options: argparse.Namespace) -> int:
    """Narrow and order the units, compile them, record their costs, and return Ninja's exit status."""
    tree, log = options.tree, options.tree / "units.log"
    parts = ninja.read(options.parts)
    count = counted(parts, options.architectures)
    known = learn(options, log, count)
    statements = tree / "build.ninja"
    price = priced(known, count)
    statements.write_text(costliest_first(ninja.narrowed(statements.read_text(), parts), price))
    units = objects(tree, options.targets)
    if options.only_cuda:
        options.targets = units = list(filter(costs.is_cuda, units))
    todo = [output for output in units if not (tree / output).exists()]  # Ninja itself finds outdated objects
    claims = tree / "claims.tsv"
    pool.write_claims(claims, units, known, price, partial(is_common, parts, options.architectures))
    free = (available_memory() - _SPARE) >> 20
    memory = min(options.memory or free, free)
    with (
        log.open("a+", encoding="utf-8", errors="replace") as ran,  # reads lines that are appended now
        (tree / costs.CACHE_LOG).open("a+", encoding="utf-8", errors="replace") as answered,
        (tree / costs.PIECES_LOG).open("a+", encoding="utf-8", errors="replace") as pieces,
        pool.joined(options.pool, options.name, memory) as joined,
        storage.served(options.shared) as shared,
    ):
        progress = Progress(
            costs={output: price(output) for output in todo},
            jobs=options.jobs,
            ran=lambda: costs.parse_log(ran.read()),
            others=joined.others,
            claimed=lambda: joined.claimed(claims),
            hits=lambda: costs.cache_hits(answered.read()),
        )
        left = f", {progress.status().left}" if todo else ""
        beside = f" for this and {others} more" if todo and (others := joined.others()) else ""
        say(f"{len(todo)} units to compile, {options.jobs} at a time{left}{beside}")
        if todo:
            report_budget(options.memory, memory, joined.budget)
        report_units_alone(todo, known, joined.budget)
        costs.begin_run(tree, time.time(), options.jobs)
        note_shared(tree, options.learned.parent, now=bool(shared))
        environment = {**joined.environment(options.jobs, claims), **shared}
        status = compile_units(tree, options.jobs, options.targets, progress, environment)
        report_pieces(pieces.read())
    learn(options, log, count)
    costs.write_record(options.record, tree)
    return status


def note_shared(tree: Path, cache: Path, *, now: bool) -> None:
    """Create the file ``SHARED`` in ``tree`` if objects may come from a compile cache that machines share.

    ``now``: whether this build uses such a cache. ccache's folder ``cache`` gets the file too then, because
    later builds without that cache may take its objects from there.
    """
    if now:
        (cache / SHARED).touch()
    if (cache / SHARED).exists():
        (tree / SHARED).touch()


def say(text: str) -> None:
    """Print a line for the user."""
    put(f"ortpacks: {text}")


def put(line: str) -> None:
    """Print a line in one write, so that the lines of two threads do not mix."""
    print(f"{line}\n", end="", flush=True)


def counted(parts: Mapping[str, ninja.UnitCodes], architectures: float) -> Callable[[str], float]:
    """Return a function from a unit's object to the number of architectures that its cost depends on.

    ``architectures``: the number for units that ``parts`` does not name. Where ``$NVCC_ONLY`` names the only
    architectures to compile for, no unit has more than these (``builder.farm.nvcc``).
    """
    only = os.environ.get("NVCC_ONLY")
    most = len(only.split(",")) if only else sys.maxsize

    def count(output: str) -> float:
        part = ninja.part_of(output, parts)
        return min(most, architectures if part is None else part.architectures)

    return count


def is_common(parts: Mapping[str, ninja.UnitCodes], architectures: float, output: str) -> bool:
    """Return whether another variant's build makes the same object: wait for it, then ccache has it.

    True for C++ units, and for CUDA units with one PTX at most: nothing else of those could be compiled
    meanwhile. ``architectures``: their number for units that are not in ``parts``.
    """
    part = ninja.part_of(output, parts)
    if not costs.is_cuda(output) or (part and not part.codes):
        return True
    if part is None:
        return architectures == 1
    return len({ptx or code.replace("sm_", "compute_") for code, ptx in part.codes.items()}) == 1


def learn(
    options: argparse.Namespace, log: Path, architectures: Callable[[str], float]
) -> dict[str, costs.Cost]:
    """Return the known costs of units, updated with the unit log, and write them for the next build.

    Units with a cache hit for a piece are ignored, because they took less than they cost.
    """
    in_part = costs.found_in_part(log.with_name(costs.PIECES_LOG))
    whole = (line for line in costs.read_log(log) if line.output not in in_part)
    with options.learned.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # builds of other variants may do this at the same time
        known = costs.read(options.measured) | costs.read(options.learned)
        known = costs.learned(known, whole, architectures)
        costs.write(options.learned, known)
    return known


def priced(known: Mapping[str, costs.Cost], architectures: Callable[[str], float]) -> Callable[[str], float]:
    """Return a function that returns the cost of a unit in this build, in CPU seconds."""
    return lambda output: costs.estimate(known, output, architectures(output))


def objects(tree: Path, targets: Sequence[str]) -> list[str]:
    """Return the paths of the objects that Ninja's ``targets`` are made of."""
    argv = ["ninja", "-C", str(tree), "-t", "commands", *targets]
    commands = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [match["output"] for match in _OBJECT.finditer(commands)]


def report_budget(asked: int, own: int, budget: int) -> None:
    """Print the pool's MiB, and the reason, if they are fewer than ``--memory`` ``asked`` for.

    ``own`` is the number of MiB that the pool would have had without other builds.
    """
    if budget < asked:
        why = (
            "no more is free" if budget == max(pool.BLOCK_MIB, own) else "a build that runs already set them"
        )
        say(f"all compilers together have {budget} MiB, and not the {asked} MiB of --memory: {why}")


def report_units_alone(units: Iterable[str], known: Mapping[str, costs.Cost], budget: int) -> None:
    """Print which unit takes more MiB than ``budget``, if any: it waits for all others."""
    most, heaviest = max(((pool.peak(known, output), output) for output in units), default=(0, ""))
    if most > budget:
        say(f"{heaviest} takes {most} MiB, more than is available: it waits until no other runs")


def report_pieces(log: str) -> None:
    """Print the number of cache hits for pieces of CUDA units (``builder.farm.nvcc``), by ccache's log."""
    hits, made = costs.cache_hits(log), costs.cache_misses(log)
    if hits + made:
        say(f"of {hits + made} pieces of CUDA units {hits} were found in ccache")


def available_memory() -> int:
    """Return the bytes of memory that programs can still use (``MemAvailable``)."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) << 10 if match else sys.maxsize


@dataclass(kw_only=True)
class Progress:
    """The progress of a Ninja run, by the costs of its units in CPU seconds.

    The time left is the cost of the remaining units times a rate, the seconds that a unit runs per second of
    its cost. The rate is measured on compiled units only, not on cache hits. The builds that run share the
    jobs equally.
    """

    costs: Mapping[str, float]
    """Costs of the units to compile, by their objects."""
    jobs: int
    ran: Callable[[], Iterable[Line]]
    """Returns the unit log's lines since the last call."""
    others: Callable[[], int]
    """Returns the number of other builds that run."""
    claimed: Callable[[], int]
    """Returns the MiB that the running units have claimed."""
    hits: Callable[[], int]
    """Returns the number of cache hits for whole units since the last call."""
    finished_units: int = 0
    answered_units: int = 0
    """Number of cache hits for whole units."""
    compiled: float = 0.0
    """Cost of the units that were compiled in this run."""
    unit_seconds: float = 0.0
    """Sum of the seconds that these units ran."""
    cached: float = 0.0
    """Cost of the finished units that took so little time that they count as cache hits."""

    def __post_init__(self) -> None:
        self._unfinished = dict(self.costs)

    @property
    def left(self) -> float:
        """The cost of the remaining units."""
        # The copy is made in one step: another thread may finish a unit meanwhile.
        return sum(self._unfinished.copy().values())

    def finished(self, output: str) -> None:
        """Count the unit ``output`` as finished, and read the log for the seconds that units ran."""
        for line in self.ran():
            price = self.costs.get(line.output, 0.0)
            if price and costs.was_compiled(line, price):
                self.compiled += price
                self.unit_seconds += (line.end - line.start) / 1000
            elif line.status == 0:
                self.cached += price
        self._unfinished.pop(output, None)
        self.finished_units += 1

    def status(self) -> CompileStatus:
        """Return the current status.

        The rate is 1 until units of a twentieth of the total cost were compiled. The time left is an upper
        limit (``at_most``) where more than a twentieth were cache hits: there may be more of them. It is one
        too while there are other builds, which may end sooner and have units in common with this one.
        """
        left, others = self.left, self.others()
        rate = self.unit_seconds / self.compiled if self.compiled > self._total / 20 else 1.0
        minutes = max(1, round(left * rate * (1 + others) / self.jobs / 60))
        self.answered_units += self.hits()
        return CompileStatus(
            done=self.finished_units,
            total=max(self.finished_units, len(self.costs)),  # outdated objects are compiled too
            share=round(1 - left / self._total, 3) if self.costs else 0.0,
            minutes=minutes if self.costs else 0,
            at_most=others > 0 or self.cached > self._total / 20,
            memory=self.claimed(),
            cached=self.answered_units,
        )

    @property
    def _total(self) -> float:
        return sum(self.costs.values()) or 1.0


@contextmanager
def told(progress: Progress) -> Iterator[None]:
    """Print the status when it has changed, every two seconds at most, until the block ends."""
    ended = threading.Event()

    def tell() -> None:
        before = None
        while not ended.wait(_SECONDS_A_STATUS):
            if (now := progress.status()) != before:
                put(now.line())
                before = now

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def compile_units(
    tree: Path, jobs: int, targets: Sequence[str], progress: Progress, environment: Mapping[str, str]
) -> int:
    """Run Ninja with the variables ``environment`` until nothing more can be made; return its exit status."""
    environment = {**os.environ, **environment, "NINJA_STATUS": "[%f/%t] "}
    argv = ["ninja", "-C", str(tree), "-j", str(jobs), "-k", "0", *targets]
    failures: list[FailedUnit] = []
    with (
        told(progress),
        subprocess.Popen(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        for line in follow(process.stdout or (), progress, failures):
            put(line)
    if process.returncode:
        report_failures(failures)
    return process.returncode


@dataclass(kw_only=True)
class FailedUnit:
    """A unit that failed to compile: its object, its command, and the last lines of the compiler's output."""

    output: str
    command: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    def add(self, line: str) -> None:
        """Add the next line that Ninja prints on the unit; the first one is the command."""
        if self.command:
            self.lines.append(line)
        else:
            self.command = line


def follow(lines: Iterator[str] | tuple[()], progress: Progress, failures: list[FailedUnit]) -> Iterator[str]:
    """Yield Ninja's lines; report finished units to ``progress``, and add failed ones to ``failures``."""
    current: FailedUnit | None = None
    for line in (line.rstrip("\n") for line in lines):
        yield line
        if failed := _FAILED.match(line):
            current = FailedUnit(output=failed["output"])
            failures.append(current)
        elif status := _STATUS.match(line):
            current = None
            if built := _OUTPUT.match(status["what"]):
                progress.finished(built["output"])
        elif current is not None and not line.startswith("ninja: "):
            current.add(line)


def report_failures(failures: Sequence[FailedUnit]) -> None:
    """Print the failed units once more at the end of the output, each with its command and last lines."""
    if not failures:
        return
    share = max(1, _TOLD_LINES // len(failures) - 2)
    for failure in failures:
        print(f"FAILED {failure.output}", failure.command, *list(failure.lines)[-share:], sep="\n")
    say(f"{len(failures)} of the units failed; all others are finished and kept for the next run")


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    for name in ("--tree", "--pool", "--shared", "--parts", "--learned", "--measured", "--record"):
        parser.add_argument(name, type=Path, required=True)
    for name, kind in (("--jobs", int), ("--memory", int), ("--architectures", float)):
        parser.add_argument(name, type=kind, required=True)
    parser.add_argument("--only-cuda", action="store_true")
    parser.add_argument("targets", nargs="+")
    options = parser.parse_args()
    options.jobs = options.jobs or len(os.sched_getaffinity(0))
    return options


if __name__ == "__main__":
    sys.exit(main(arguments()))
