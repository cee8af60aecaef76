"""Compiles what is still to do in one Ninja run, tells units and time left, and notes what it took.

    --tree /build --pool /pool --shared SOCKET --name legacy --jobs 2 --memory 8192 --architectures 5
    --parts FILE --learned FILE --measured FILE --record FILE [--only-cuda] TARGET...

Builds of one machine share ``--pool``: together they run ``--jobs`` compilers, in ``--memory`` MiB. 0 stands
for as many as the machine has cores, and for what is free of its memory. ``--shared`` leads to a compile
cache that machines share (``storage``), if the socket is there.
Lines for the user begin with ``ortpacks: ``, and ``status`` has a mark of its own; all others are the
compilers'. Units that fail do not stop the others: those are finished and kept, and the failures are told
again at the end, each with its command and its last lines. Exits with Ninja's status.
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
from pathlib import Path

from builder.inside import costs, ninja, pool, storage
from builder.inside.costs import Line
from builder.inside.ninja import costliest_first
from builder.inside.status import CompileStatus

SHARED = "shared-compile-cache"
"""The file that says so beside the compiled libraries: ``note_shared``."""
_STATUS = re.compile(r"\[\d+/\d+\] (?P<what>.*)")
_OUTPUT = re.compile(r"Building \w+ object (?P<output>\S+)")
_OBJECT = re.compile(r" -o (?P<output>\S+\.o)(?:\s|$)", re.MULTILINE)
_FAILED = re.compile(r"FAILED: (?P<output>\S+)")
_LAST_LINES = 15
_TOLD_LINES = 28
"""For all failed units together: an error shows 30 lines of a build."""
_SECONDS_A_STATUS = 2
_SPARE = 1 << 30
"""Bytes of memory that are left to the rest of the machine."""


def main(options: argparse.Namespace) -> int:
    """Narrow and order the units, compile them, note what they cost. Returns Ninja's status."""
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
    todo = [
        output for output in units if not (tree / output).exists()
    ]  # Ninja finds those out of date itself
    claims = tree / "claims.tsv"
    pool.write_claims(claims, units, known, price)
    free = (available_memory() - _SPARE) >> 20
    memory = min(options.memory or free, free)
    with (
        log.open("a+", encoding="utf-8", errors="replace") as ran,  # reads what is appended from now on
        (tree / costs.CACHE_LOG).open("a+", encoding="utf-8", errors="replace") as answered,
        (tree / costs.PIECES_LOG).open("a+", encoding="utf-8", errors="replace") as pieces,
        pool.joined(options.pool, options.name, memory) as joined,
        storage.served(options.shared) as shared,
    ):
        joined.tell(sum(map(price, todo)))
        progress = Progress(
            costs={output: price(output) for output in todo},
            jobs=options.jobs,
            ran=lambda: costs.parse_log(ran.read()),
            tell=joined.tell,
            others=joined.others,
            claimed=lambda: joined.claimed(claims),
            hits=lambda: costs.cache_hits(answered.read()),
        )
        left = f", {progress.status().left}" if todo else ""
        beside = f" for this and {others} more" if todo and (others := len(joined.others())) else ""
        say(f"{len(todo)} units to compile, {options.jobs} at a time{left}{beside}")
        tell_alone(todo, known, joined.budget)
        costs.begin_run(tree, time.time(), options.jobs)
        note_shared(tree, options.learned.parent, now=bool(shared))
        environment = {**joined.environment(options.jobs, claims), **shared}
        status = compile_units(tree, options.jobs, options.targets, progress, environment)
        tell_pieces(pieces.read())
    learn(options, log, count)
    costs.write_record(options.record, tree)
    return status


def note_shared(tree: Path, cache: Path, *, now: bool) -> None:
    """Note in ``tree`` if objects in it may be of a compile cache that machines share.

    They may also be where an earlier build brought such objects into ccache's folder ``cache``.
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


def counted(parts: Mapping[str, ninja.Codes], architectures: int) -> Callable[[str], int]:
    """A function that returns for how many architectures a unit is compiled."""

    def count(output: str) -> int:
        codes = ninja.codes_of(output, parts)
        return architectures if codes is None else len(codes)

    return count


def learn(
    options: argparse.Namespace, log: Path, architectures: Callable[[str], int]
) -> dict[str, costs.Cost]:
    """What units cost by all that is known now, which is also written down for the next build.

    Units that ccache had a piece of teach nothing: they took less than they cost.
    """
    in_part = costs.found_in_part(log.with_name(costs.PIECES_LOG))
    whole = (line for line in costs.read_log(log) if line.output not in in_part)
    with options.learned.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other variants' builds learn at the same time
        known = costs.read(options.measured) | costs.read(options.learned)
        known = costs.learned(known, whole, architectures)
        costs.write(options.learned, known)
    return known


def priced(known: Mapping[str, costs.Cost], architectures: Callable[[str], int]) -> Callable[[str], float]:
    """A function that returns the cost of a unit in this build, in CPU seconds."""
    return lambda output: costs.estimate(known, output, architectures(output))


def objects(tree: Path, targets: Sequence[str]) -> list[str]:
    """The objects that ``targets`` are made of."""
    argv = ["ninja", "-C", str(tree), "-t", "commands", *targets]
    commands = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [match["output"] for match in _OBJECT.finditer(commands)]


def tell_alone(units: Iterable[str], known: Mapping[str, costs.Cost], budget: int) -> None:
    """Say which unit the budget is too small for: it runs while no other one does."""
    heaviest = max(units, key=lambda output: pool.peak(known, output), default=None)
    if heaviest is not None and pool.peak(known, heaviest) > budget:
        say(f"{heaviest} takes {pool.peak(known, heaviest)} MiB, more than there are: it runs alone")


def tell_pieces(log: str) -> None:
    """Say how many pieces of CUDA units (``builder.inside.nvcc``) ccache had, by its log of them."""
    found, made = costs.cache_hits(log), costs.cache_misses(log)
    if found + made:
        say(f"of {found + made} pieces of CUDA units {found} were found in ccache")


def available_memory() -> int:
    """Bytes that programs can still have (``MemAvailable``)."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) << 10 if found else sys.maxsize


@dataclass(kw_only=True)
class Progress:
    """How far a run is, by the costs of its units in CPU seconds.

    The time left is what the units that are left cost, times the rate: the seconds that a unit runs for each
    second of its cost. Only compiled units teach the rate; one that ccache answers in no time does not. What
    other builds have left goes through the same jobs, so it counts too.
    """

    costs: Mapping[str, float]
    jobs: int
    ran: Callable[[], Iterable[Line]]
    """The unit log's lines since the last call."""
    tell: Callable[[float], None]
    """Takes the seconds of the units that are left, all of them together, for other builds to see."""
    others: Callable[[], Sequence[float]]
    """What other builds have told so."""
    claimed: Callable[[], int]
    """The MiB that the units which run now have claimed."""
    hits: Callable[[], int]
    """The number of units that ccache answered since the last call."""
    finished_units: int = 0
    answered_units: int = 0
    done: float = 0.0
    compiled: float = 0.0
    """The cost of the units that were compiled in this run."""
    unit_seconds: float = 0.0
    """The seconds that these units ran, all of them together."""
    cached: float = 0.0
    """The cost of the units that took so little that ccache answered them, or that nobody has measured."""

    def finished(self, output: str) -> None:
        """One more unit."""
        for line in self.ran():
            price = self.costs.get(line.output, 0.0)
            if price and costs.was_compiled(line, price):
                self.compiled += price
                self.unit_seconds += (line.end - line.start) / 1000
            elif line.status == 0:
                self.cached += price
        self.done += self.costs.get(output, 0.0)
        self.finished_units += 1
        self.tell(self._total - self.done)

    def status(self) -> CompileStatus:
        """How far it is now; the time left is by the costs alone before a twentieth of them was compiled.

        It is ``at_most`` so much where ccache answers, because nobody knows what else it has, and beside
        other builds: they have C++ units in common with this one.
        """
        others = self.others()
        rate = self.unit_seconds / self.compiled if self.compiled > self._total / 20 else 1.0
        minutes = max(1, round(((self._total - self.done) * rate + sum(others)) / self.jobs / 60))
        self.answered_units += self.hits()
        return CompileStatus(
            done=self.finished_units,
            total=max(self.finished_units, len(self.costs)),  # Ninja compiles those out of date too
            share=round(self.done / self._total, 3),
            minutes=minutes if self.costs else 0,
            at_most=bool(others) or self.cached > self._total / 20,
            memory=self.claimed(),
            cached=self.answered_units,
        )

    @property
    def _total(self) -> float:
        return sum(self.costs.values()) or 1.0


@contextmanager
def told(progress: Progress) -> Iterator[None]:
    """Print the status whenever it is another one, at most each two seconds, until the block ends."""
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
    """Run Ninja to the end of what can be made, its compilers with these variables too; its exit status."""
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
    """A unit that could not be compiled: its output, and what came after ``FAILED:``, the command first."""

    output: str
    command: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    def add(self, line: str) -> None:
        """The next line that Ninja prints for it."""
        if self.command:
            self.lines.append(line)
        else:
            self.command = line


def follow(lines: Iterator[str] | tuple[()], progress: Progress, failures: list[FailedUnit]) -> Iterator[str]:
    """Ninja's lines as they come; what finished goes to ``progress``, what failed to ``failures``."""
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
    """Print the failures once more at the end, where the user looks, each with its last lines."""
    if not failures:
        return
    share = max(1, _TOLD_LINES // len(failures) - 2)
    for failure in failures:
        print(f"FAILED {failure.output}", failure.command, *list(failure.lines)[-share:], sep="\n")
    say(f"{len(failures)} of the units failed; all others are finished and kept for the next run")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    for name in ("--tree", "--pool", "--shared", "--parts", "--learned", "--measured", "--record"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--jobs", "--memory", "--architectures"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--only-cuda", action="store_true")
    parser.add_argument("targets", nargs="+")
    options = parser.parse_args()
    options.jobs = options.jobs or len(os.sched_getaffinity(0))
    return options


if __name__ == "__main__":
    sys.exit(main(arguments()))
