"""Tests of the pool: compilers of several builds together keep to one number of jobs and one
memory budget."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from builder.farm import nvcc, pool
from builder.farm.costs import Cost, Line, read_log
from tests.support import ROOT
from tests.support.tables import data_text, table

COMMON = "common.cu.o"
CLAIMS = {name: tuple(map(int, sizes)) for name, *sizes in table("farm/claims.txt")}
"""Rank, and size in blocks until the PTX is made and then, of each unit."""
_GIVE_BACK = "from builder.farm import nvcc; nvcc.give_back_memory()"
PTX_IS_MADE = f"PYTHONPATH={ROOT} {sys.executable} -c '{_GIVE_BACK}'"


class Machine:
    """Units that builds with the same pool compile on one machine."""

    def __init__(self, unit: Path, folder: Path, jobs: int, blocks: int) -> None:
        self.log, self.pool, self.said = (folder / name for name in ("units.log", "pool", "said"))
        self.pool.mkdir()
        rows = ((name, *sizes, int(name == COMMON)) for name, sizes in CLAIMS.items())
        claims = folder / "claims.tsv"
        claims.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
        self._unit, self._folder = unit, folder
        self.env = {
            "PATH": "/usr/bin:/bin",
            "UNIT_LOG": str(self.log),
            "UNIT_POOL": str(self.pool),
            "UNIT_JOBS": str(jobs),
            "UNIT_MEMORY": str(blocks),
            "UNIT_CLAIMS": str(claims),
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, output: str, script: str = "sleep 0.15") -> subprocess.Popen[bytes]:
        argv = [str(self._unit), "sh", "-c", script, "-o", output]
        with self.said.open("ab") as said:
            self.started.append(subprocess.Popen(argv, env=self.env, cwd=self._folder, stderr=said))
        return self.started[-1]

    def hold(self, output: str, script: str = "true") -> Path:
        """Start a unit and wait until it has its claim and has run ``script``; return the file whose creation
        ends the unit."""
        name = f"{output}.{len(self.started)}"
        self.start(output, f"{script}; touch {name}.begun; until test -e {name}.end; do sleep 0.01; done")
        await_true((self._folder / f"{name}.begun").exists)
        return self._folder / f"{name}.end"

    def spare(self, output: str, **env: str) -> subprocess.Popen[bytes]:
        """Start a request for a spare slot for a piece of a unit; closing its standard input
        releases the slot."""
        pipe = subprocess.PIPE
        return subprocess.Popen([self._unit, "--spare", output], env=self.env | env, stdin=pipe, stdout=pipe)

    def waits(self, output: str) -> subprocess.Popen[bytes]:
        """Start a unit, which cannot begin yet."""
        waiting = self.start(output, "true")
        time.sleep(0.2)
        assert waiting.poll() is None
        return waiting

    def kill_last(self) -> None:
        """Kill the unit that was started last, and not its compiler."""
        killed = self.started.pop()
        killed.kill()
        killed.wait()

    def kill(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()

    def lines(self) -> list[Line]:
        """Wait for all units to end and return their lines in the log by start time."""
        for process in self.started:
            assert process.wait(timeout=30) == 0
        return sorted(read_log(self.log), key=lambda line: line.start)


Make = Callable[[int, int], Machine]
"""Makes a machine with a number of jobs and of blocks of memory."""


@pytest.fixture
def machine(unit: Path, tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(jobs: int, blocks: int) -> Machine:
            made = Machine(unit, tmp_path, jobs, blocks)
            stack.callback(made.kill)
            return made

        yield make


def await_true(asked: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not asked():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def said(process: subprocess.Popen[bytes]) -> bytes:
    """Return the first line of a process's output, or empty bytes when it ends without one."""
    assert process.stdout is not None
    return process.stdout.readline()


def at_once(lines: list[Line], size: Callable[[Line], int]) -> int:
    """Return the largest sum of ``size`` over units that ran at the same time."""
    return max(sum(size(other) for other in lines if other.start <= one.start < other.end) for one in lines)


def test_no_more_units_run_at_once_than_there_are_jobs(machine: Make) -> None:
    three = machine(3, 1000)
    for _ in range(12):
        three.start("light.cu.o")
    lines = three.lines()
    assert (len(lines), at_once(lines, lambda _: 1)) == (12, 3)


def test_what_a_builds_units_have_claimed_is_seen_while_they_run(machine: Make, tmp_path: Path) -> None:
    """A giant unit claims the whole budget; waiting and killed units have claimed nothing."""
    two = machine(2, 30)
    with pool.joined(tmp_path / "joined", "legacy", 30 * pool.BLOCK_MIB) as joined:

        def claimed() -> int:
            return joined.claimed(tmp_path / "claims.tsv") // pool.BLOCK_MIB

        heavy = two.hold("heavy.cu.o")
        two.hold("light.cu.o")
        dear = two.start("dear.cu.o")
        assert claimed() == 12 + 1
        two.started[1].kill()
        heavy.touch()
        for unit in (two.started[0], two.started[1], dear):
            unit.wait()
        assert claimed() == 0
        giant = two.hold("giant.cu.o")
        assert claimed() == 30
        giant.touch()


def test_units_fit_into_memory_together(machine: Make) -> None:
    """30 blocks hold two units of 12 and some of 1, but never three of 12."""
    four = machine(4, 30)
    for output in (*("heavy.cu.o", "light.cu.o") * 3, "heavy.cu.o"):
        four.start(output)
    lines = four.lines()
    assert at_once(lines, lambda line: CLAIMS[line.output][1]) in range(24, 31)


def test_builds_whose_blocks_have_another_size_count_the_same_memory(machine: Make) -> None:
    """Of 120 MiB two units take 12 blocks of 4 each, which leaves 24 for two units with 12 blocks of 1.

    Defect: builds of two commits counted each block of the other one as one of their own.
    """
    ten = machine(10, 30)
    ten.env["UNIT_BLOCK"] = "4"
    ends = [ten.hold("heavy.cu.o"), ten.hold("as-heavy.cu.o")]
    ten.env |= {"UNIT_BLOCK": "1", "UNIT_MEMORY": "120"}
    ends += [ten.hold("heavy.cu.o"), ten.hold("as-heavy.cu.o")]
    waiting = ten.waits("light.cu.o")
    ends[0].touch()
    assert waiting.wait(timeout=20) == 0
    for end in ends:
        end.touch()


def test_memory_is_given_back_when_the_ptx_is_made(machine: Make, tmp_path: Path) -> None:
    """16 blocks hold a unit of 12 beside one that has 4 of its 12 left, and no third one."""
    four = machine(4, 16)
    with pool.joined(tmp_path / "joined", "legacy", 16 * pool.BLOCK_MIB) as joined:
        first = four.hold("heavy.cu.o", PTX_IS_MADE)
        assert joined.claimed(tmp_path / "claims.tsv") == 4 * pool.BLOCK_MIB
        second = four.hold("as-heavy.cu.o")
        assert joined.claimed(tmp_path / "claims.tsv") == 16 * pool.BLOCK_MIB
    third = four.waits("light.cu.o")
    second.touch()
    assert third.wait(timeout=20) == 0
    first.touch()
    assert len(four.lines()) == 3


def test_memory_is_free_when_a_killed_unit_s_compiler_has_ended(machine: Make) -> None:
    two = machine(2, 16)
    end = two.hold("heavy.cu.o")
    two.kill_last()
    end.touch()
    two.start("as-heavy.cu.o")
    assert len(two.lines()) == 1


def test_pieces_claim_less_when_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryFile() as file:
        monkeypatch.setenv("UNIT_UNTIL_PTX", str(file.fileno()))
        nvcc.give_back_memory()
        assert "UNIT_UNTIL_PTX" not in os.environ, "unit --spare asks for it"


def test_a_unit_that_needs_its_memory_to_the_end_gives_nothing_back(machine: Make) -> None:
    one = machine(4, 1)
    end = one.hold("light.cu.o", PTX_IS_MADE)
    one.waits("light.cu.o")
    end.touch()
    assert len(one.lines()) == 2


def test_a_unit_heavier_than_the_budget_runs_alone(machine: Make) -> None:
    two = machine(2, 30)
    for output in ("light.cu.o", "giant.cu.o", "light.cu.o", "giant.cu.o", "light.cu.o"):
        two.start(output)
    lines = two.lines()
    giants = [line for line in lines if line.output == "giant.cu.o"]
    assert len(giants) == 2
    for giant in giants:
        assert [one for one in lines if one.start < giant.end and giant.start < one.end] == [giant]


def test_the_dearest_unit_that_waits_is_next_whichever_build_it_is_of(machine: Make) -> None:
    one = machine(1, 100)
    end = one.hold("light.cu.o")
    for output in ("cheap.cu.o", "light.cu.o", "heavy.cu.o", "dear.cu.o"):
        one.start(output)
    time.sleep(0.3)
    end.touch()
    order = [line.output.partition(".")[0] for line in one.lines()]
    assert order == ["light", "dear", "heavy", "light", "cheap"]


def test_a_unit_that_waits_for_memory_is_not_passed_by_lighter_ones(machine: Make) -> None:
    four = machine(4, 20)
    end = four.hold("heavy.cu.o")
    four.waits("heavy.cu.o")
    four.waits("light.cu.o")
    assert list(read_log(four.log)) == []
    end.touch()
    first, *others = four.lines()
    assert min(other.start for other in others) >= first.end


def test_the_kernel_takes_back_what_a_killed_unit_held(machine: Make) -> None:
    one = machine(1, 12)
    one.hold("heavy.cu.o")
    killed = one.started.pop()
    one.waits("dear.cu.o")
    killed.kill()
    killed.wait()
    assert [line.output for line in one.lines()] == ["dear.cu.o"]


def test_one_that_is_killed_in_the_queue_is_not_waited_for(machine: Make) -> None:
    one = machine(1, 12)
    end = one.hold("light.cu.o")
    one.waits("dear.cu.o")
    one.kill_last()
    one.start("cheap.cu.o")
    end.touch()
    first, second = one.lines()
    assert (first.output, second.output) == ("light.cu.o", "cheap.cu.o")
    assert second.start >= first.end, "waiting is no part of what a unit took"


@pytest.mark.parametrize(("output", "most"), [(COMMON, 1), ("dear.cu.o", 2), ("unknown.cc.o", 2)])
def test_a_common_unit_is_compiled_by_one_build(machine: Make, output: str, most: int) -> None:
    four = machine(4, 100)
    for _ in range(2):
        four.start(output)
        four.start("light.cu.o")
    lines = four.lines()
    assert at_once([line for line in lines if line.output == output], lambda _: 1) == most
    assert at_once(lines, lambda _: 1) == most + 2, "the one that waits takes no slot"


def test_a_piece_has_a_further_slot_until_it_gives_it_back(machine: Make) -> None:
    two = machine(2, 30)
    end = two.hold("heavy.cu.o")
    with two.spare("heavy.cu.o") as spare:
        assert said(spare) == b"held\n"
        waiting = two.waits("light.cu.o")  # the slot is taken
    waiting.wait(timeout=20)
    end.touch()
    assert [line.output for line in two.lines()] == ["heavy.cu.o", "light.cu.o"], "a piece is no unit"


def test_a_piece_waits_no_longer_than_its_unit(machine: Make) -> None:
    one = machine(1, 100)
    end = one.hold("heavy.cu.o")
    with one.spare("heavy.cu.o") as spare:
        time.sleep(0.2)
        assert spare.poll() is None
    assert spare.returncode == 1
    end.touch()


def test_a_piece_without_memory_for_two_does_not_wait(machine: Make) -> None:
    """A waiting piece would keep others from slots until its unit has ended."""
    four = machine(4, 20)
    end = four.hold("heavy.cu.o")
    with four.spare("heavy.cu.o", UNIT_UNTIL_PTX="") as spare:
        assert spare.wait(timeout=20) == 1
        assert said(spare) == b""
    end.touch()


def test_a_piece_needs_less_memory_when_the_ptx_is_made(machine: Make) -> None:
    """16 blocks do not suffice for two pieces of 12, but for three of 4 and one unit of 4."""
    five = machine(5, 16)
    end = five.hold("heavy.cu.o", PTX_IS_MADE)
    with ExitStack() as pieces:
        for _ in range(3):
            piece = pieces.enter_context(five.spare("heavy.cu.o"))
            assert said(piece) == b"held\n"
        light = five.waits("light.cu.o")
    assert light.wait(timeout=20) == 0
    end.touch()


@pytest.mark.parametrize(("output", "is_first"), [("dear.cu.o", True), ("cheap.cu.o", False)])
def test_a_piece_waits_by_the_rank_of_its_unit(machine: Make, output: str, is_first: bool) -> None:
    one = machine(1, 100)
    end = one.hold("heavy.cu.o")
    light = one.waits("light.cu.o")
    with one.spare(output) as spare:
        time.sleep(0.2)
        end.touch()
        assert said(spare) == b"held\n"
        assert (light.poll() is None) == is_first
    assert light.wait(timeout=20) == 0


def test_a_pool_that_cannot_be_used_stops_no_compile(machine: Make) -> None:
    one = machine(1, 12)
    one.pool.rmdir()
    one.start("light.cu.o", "true")
    assert len(one.lines()) == 1
    said = one.said.read_text().splitlines()
    assert said[0] == f"unit: {one.pool}/slots cannot be opened: No such file or directory"


def test_the_first_build_says_how_much_memory_there_is(tmp_path: Path) -> None:
    with ExitStack() as stack:
        wanted = {"a": 8000, "b": 4000, "c": 20000}
        found = [stack.enter_context(pool.joined(tmp_path, name, mib)) for name, mib in wanted.items()]
        assert [one.budget for one in found] == [8000, 8000, 8000]
    with pool.joined(tmp_path, "c", 20000) as later:
        assert later.budget == 20000, "those that had agreed are gone"


def test_a_machine_without_free_memory_still_compiles(tmp_path: Path) -> None:
    with pool.joined(tmp_path, "a", -400) as first:
        assert first.others() == 0
        with pool.joined(tmp_path, "b", 0) as second:
            assert (first.others(), second.others()) == (1, 1)
            assert (first.budget, second.budget) == (pool.BLOCK_MIB, pool.BLOCK_MIB)
        assert first.others() == 0, "the file of a build that has ended stays, without its lock"
        assert first.environment(2, tmp_path)["UNIT_MEMORY"] == "1"


def test_claims_are_by_what_is_known_else_by_what_such_units_take(tmp_path: Path) -> None:
    peaks = {"d/flash_attention/a.cu.o": 2458, "d/lean_attention/b.cu.o": 2048, "c.cu.o": 2458, "d.cc.o": 64}
    known = {output: Cost(cpu=1, architectures=1, peak=peak) for output, peak in peaks.items()}
    prices = dict.fromkeys(known, 1.0) | {"c.cu.o": 371.0, "d.cc.o": 0.2}
    prices |= {"d/flash_attention/new.cu.o": 16.0, "new.cc.o": 4.0}
    pool.write_claims(tmp_path / "claims", prices, known, prices.__getitem__, lambda unit: ".cc" in unit)
    assert (tmp_path / "claims").read_text() == data_text("farm/claims.tsv")
