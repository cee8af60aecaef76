"""Tests of following a Ninja run: reading its output, and reporting to the user."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.farm.costs import Cost, Line, was_compiled
from builder.farm.drive import (
    FailedUnit,
    Progress,
    available_memory,
    counted,
    follow,
    is_common,
    priced,
    report_budget,
    report_failures,
)
from builder.farm.ninja import UnitCodes
from builder.farm.status import CompileStatus, read
from tests.support.tables import data_text

END = " "
"""End of the line on which Ninja names a failed unit: a space."""

TRANSCRIPT = data_text("farm/transcript.txt")
"""Output of Ninja 1.11.1 with ``-k 0`` into a pipe."""

COSTS = {"d/a.cc.o": 10.0, "d/b.cc.o": 10.0, "d/c.cu.o": 60.0, "d/e.cu.o": 20.0}

GIB = 1 << 30


def progress(costs: dict[str, float], *ran: Line, jobs: int = 1, others: int = 0) -> Progress:
    """Return a run's start; ``ran`` has the unit log's lines at the time when the next unit ends."""
    return Progress(
        costs=costs, jobs=jobs, ran=lambda: ran, others=lambda: others, claimed=lambda: 0, hits=lambda: 0
    )


def compiled(output: str, cpu: float, *, seconds: float = 0.0, status: int = 0) -> Line:
    """Return the log line of a unit with ``cpu`` seconds of processor time and a duration of
    ``seconds`` or ``cpu``."""
    end = int(1000 * (seconds or cpu))
    return Line(start=0, end=end, cpu=int(1000 * cpu), peak=0, status=status, output=output)


def lines(text: str) -> Iterator[str]:
    return iter(text.splitlines(keepends=True))


def failed(text: str) -> list[FailedUnit]:
    """Return the units that fail in Ninja's output, of which each line goes on as it came."""
    failures: list[FailedUnit] = []
    assert list(follow(lines(text), progress(COSTS), failures)) == text.splitlines()
    return failures


def test_the_failures_are_told_again_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    failures = failed(TRANSCRIPT)
    capsys.readouterr()
    report_failures([])
    assert capsys.readouterr().out == "", "Ninja's own message is in the log"
    report_failures(failures)
    _, *first = TRANSCRIPT.split(f"FAILED: d/b.cc.o{END}\n")[1].splitlines()[:4]
    told = capsys.readouterr().out.splitlines()
    assert told[:5] == ["FAILED d/b.cc.o", "g++ -c b.cc -o d/b.cc.o", *first]
    assert told[5] == "FAILED d/c.cu.o"
    assert told[-2:] == [
        'c.cu(3): error: expected a ";"',
        "ortpacks: 2 of the units failed; all others are finished and kept for the next run",
    ]


@pytest.mark.parametrize(
    ("costs", "said", "seen"),
    [
        (COSTS, "", (0, 4, 0.0)),
        (COSTS, "[1/4] Building CUDA object d/c.cu.o\n", (1, 4, 0.6)),
        (COSTS, TRANSCRIPT, (4, 4, 1.0)),
        (COSTS, "[0/1] Re-running CMake...\n[1/3] Linking CXX shared library p.so\n[1/x]\n", (0, 4, 0.0)),
        ({"a.o": 10.0}, "[1/2] Building C object a.o\n[2/2] Building C object stale.o\n", (2, 2, 1.0)),
        ({}, "", (0, 0, 0.0)),
    ],
    ids=["begin", "one", "all", "no unit", "out of date", "nothing to compile"],
)
def test_progress_is_the_units_and_the_share_of_their_cost(
    costs: dict[str, float], said: str, seen: tuple[int, int, float]
) -> None:
    """a and b are a tenth each, c is six tenths, e two."""
    run = progress(costs)
    list(follow(lines(said), run, []))
    status = run.status()
    assert (status.done, status.total, status.share) == seen
    assert (status.left == "") == (not costs)


@pytest.mark.parametrize(("count", "each"), [(1, 15), (3, 7), (9, 1), (20, 1)])
def test_several_failures_share_the_lines(capsys: pytest.CaptureFixture[str], count: int, each: int) -> None:
    """30 lines are shown: two for each failure's name and command, and one at the end with their number."""
    texts = [
        f"FAILED: {number}.o\ng++ {number}.o\n" + "line\n" * 39 + f"end {number}\n" for number in range(count)
    ]
    report_failures(failed("".join(texts)))
    told = capsys.readouterr().out.splitlines()
    assert len(told) == count * (each + 2) + 1
    assert [line for line in told if line.startswith("end")] == [f"end {number}" for number in range(count)]


def test_memory_and_hits_are_what_the_pool_and_ccache_say() -> None:
    """Hits add up, memory is that of now."""
    run = progress(COSTS)
    run.claimed, run.hits = iter([2560, 512]).__next__, iter([3, 1]).__next__
    assert [(one.memory, one.cached) for one in (run.status(), run.status())] == [(2560, 3), (512, 4)]


@pytest.mark.parametrize(
    ("ran", "left"),
    [
        ((), "about 10"),  # 1,200 s of work by two jobs, without a known rate
        ((compiled("a.o", 600, seconds=1200),), "about 20"),  # two seconds for each: the cores are shared
        ((compiled("a.o", 200),), "about 3"),  # this machine is three times as fast
        ((compiled("a.o", 170),), "at most 10"),  # below three tenths, ccache answered
        ((compiled("a.o", 6), compiled("b.o", 180, seconds=360)), "at most 20"),
        ((compiled("c.o", 85, seconds=850),), "about 10"),  # a twentieth is 90 s: too early for a rate
        ((compiled("a.o", 600, seconds=1200, status=1),), "about 10"),
        ((compiled("stale.o", 600, seconds=1200),), "about 10"),  # its cost is not known
    ],
)
def test_the_time_left_is_by_the_rate_so_far(ran: tuple[Line, ...], left: str) -> None:
    costs = {"a.o": 600.0, "b.o": 180.0, "c.o": 85.0, "d.o": 935.0}
    run = progress(costs, *ran, jobs=2)
    run.finished("a.o")
    assert run.status().left == f"{left} min left"


def test_of_the_jobs_a_build_has_an_equal_share_with_the_others() -> None:
    assert progress({"a.o": 600.0}, jobs=2).status().left == "about 5 min left"
    assert progress({"a.o": 600.0}, jobs=2, others=2).status().left == "at most 15 min left"


def test_a_status_is_one_line_and_is_read_back() -> None:
    sent = CompileStatus(done=171, total=550, share=0.31, minutes=12, at_most=False, memory=5200, cached=40)
    assert sent.line() == (
        'ortpacks-progress: {"done":171,"total":550,"share":0.31,"minutes":12,"at_most":false,'
        '"memory":5200,"cached":40}'
    )
    assert read(sent.line()) == sent
    assert str(sent) == "171/550 units, about 12 min left, 5.1 GiB, 40 from the cache"


def test_memory_is_what_programs_can_still_have(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "MemTotal:       24689124 kB\nMemFree:          812000 kB\nMemAvailable:   20971520 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: text)
    assert available_memory() == 20 * GIB


def test_units_cost_what_their_architectures_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit takes 227 CPU s: 6 for its host's part, and 63 for each of architectures that cost as 3.5 do.

    Defect: ``compile --arch`` displayed the time of the whole set, and took such a unit for a cache hit.
    """
    known = {"a.cu.o": Cost(cpu=227, architectures=3.5, peak=900)}
    found = {}
    for only in ("", "50", "50,52,60,61,70"):
        monkeypatch.setenv("NVCC_ONLY", only)
        found[only] = priced(known, counted({}, 3.5))("a.cu.o")
    assert found == pytest.approx({"": 227, "50": 69.1, "50,52,60,61,70": 227}, abs=0.1)
    assert was_compiled(compiled("a.cu.o", 63), found["50"])
    monkeypatch.setenv("NVCC_ONLY", "90")
    flash = {"flash/": UnitCodes({"sm_89": "compute_80", "sm_90": "compute_80"}, 1.25)}
    output = "CMakeFiles/p.dir/src/onnxruntime/onnxruntime/flash/a.cu.o"
    assert [counted(flash, 4)(each) for each in (output, "a.cu.o")] == [1, 1]


def test_units_that_wait_for_those_of_builds_for_other_architectures() -> None:
    parts = {
        "flash/": UnitCodes({"sm_89": "compute_80", "sm_90": "compute_80"}),
        "moe/": UnitCodes({"sm_80": "", "sm_86": ""}),
        "plain": UnitCodes({}),
        "": UnitCodes({"sm_50": "", "sm_52": "compute_50", "sm_60": ""}),
    }
    tree = "CMakeFiles/p.dir/src/onnxruntime/onnxruntime/"
    asked = ("flash/a.cu.o", "moe/a.cu.o", "plain.cu.o", "a.cu.o", "a.cu.cc.o", "moe/a.cc.o")
    found = [is_common(parts, 3, f"{tree}{output}") for output in asked]
    assert found == [True, False, True, False, True, True]
    assert [is_common({}, number, f"{tree}a.cu.o") for number in (1, 2)] == [True, False]


@pytest.mark.parametrize(
    ("asked", "own", "budget", "why"),
    [
        (8192, 4096, 4096, "no more is free"),
        (8192, -524, 64, "no more is free"),
        (1024, 1024, 512, "a build that runs already set them"),
        (512, 512, 512, ""),
    ],
)
def test_less_memory_than_was_asked_for_is_told(
    capsys: pytest.CaptureFixture[str], asked: int, own: int, budget: int, why: str
) -> None:
    report_budget(asked, own, budget)
    told = f"ortpacks: all compilers together have {budget} MiB, and not the {asked} MiB of --memory: {why}\n"
    assert capsys.readouterr().out == (told if why else "")
