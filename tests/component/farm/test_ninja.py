"""Tests of the order of units and of a whole run, with the real Ninja and shell commands as compilers."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.farm import costs, drive, status
from builder.farm.costs import Cost
from tests.support import ROOT, ran
from tests.support.tables import data_text

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja on PATH")

NINJA = data_text("farm/build.ninja")

COMPILE = data_text("programs/compile.sh")

SOURCES = ("a.cc", "b.cc", "c.cu", "d.cu")

COSTS = {"d/a.cc.o": 2.0, "d/b.cc.o": 9.0, "d/c.cu.o": 5.0, "d/d.cu.o": 70.0}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in SOURCES:
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "build.ninja").write_text(NINJA)
    (tmp_path / "compile").write_text(COMPILE)
    (tmp_path / "parts.tsv").write_text("")
    measured = {output: Cost(cpu=cpu, architectures=1, peak=100) for output, cpu in COSTS.items()}
    costs.write(tmp_path / "measured.tsv", measured)
    return tmp_path


def options(tree: Path, **changes: object) -> argparse.Namespace:
    files = {"tree": "", "pool": "pool", "shared": "no-socket", "record": "record.json"}
    files |= {name: f"{name}.tsv" for name in ("parts", "learned", "measured")}
    given = {name: tree / file for name, file in files.items()}
    plain = {"name": "p", "jobs": 1, "memory": 8192, "architectures": 1, "only_cuda": False, "targets": ["p"]}
    return argparse.Namespace(**{**given, **plain, **changes})


Run = Callable[..., str]


@pytest.fixture
def run(tree: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that builds with changed options and returns what is printed."""

    def built_with(code: int = 0, **changes: object) -> str:
        capfd.readouterr()
        assert drive.main(options(tree, **changes)) == code
        return capfd.readouterr().out

    return built_with


def built(text: str) -> list[str]:
    """Return the units that Ninja reports as built, in order."""
    lines = (line for line in text.splitlines() if "] Building" in line)
    return [line.rpartition("/")[2].removesuffix(".o") for line in lines]


def test_a_run_compiles_learns_and_records(tree: Path, run: Run) -> None:
    said = run()
    assert built(said) == ["d.cu", "b.cc", "c.cu", "a.cc"]
    assert said.startswith("ortpacks: 4 units to compile, 1 at a time, about 1 min left\n")
    record = json.loads((tree / "record.json").read_text())
    assert (record["units"], record["compilations"], record["cpu_s"], record["jobs"]) == (4, 4, 6.0, 1)
    assert costs.read(tree / "learned.tsv")["d/d.cu.o"].cpu == pytest.approx(70.0), "1.5 s are a cache hit"
    assert costs.read(tree / "learned.tsv")["d/a.cc.o"].cpu == pytest.approx(1.5), "the newest"


def test_the_time_left_follows_the_unit_log_while_it_grows(tree: Path, run: Run) -> None:
    """Each unit takes 600 CPU s and 1,200 s; lines that an earlier run appended are not counted."""
    hit = "echo direct_cache_hit >>ccache-stats.log\n"
    slow = hit + 'test "$1" = b.cc && sleep 3\n' + COMPILE.replace("1000 2000 1500", "0 1200000 600000")
    (tree / "compile").write_text(slow)
    (tree / "units.log").write_text("0 60000 600000 1 0 d/d.cu.o\n")
    (tree / "ccache-stats.log").write_text("direct_cache_hit\n")
    equal = {one: Cost(cpu=600.0, architectures=1, peak=1) for one in COSTS}
    last = {"d/b.cc.o": Cost(cpu=599.0, architectures=1, peak=1)}
    costs.write(tree / "learned.tsv", equal | last)
    said = run().splitlines()
    assert said[0] == "ortpacks: 4 units to compile, 1 at a time, about 40 min left"
    seen = [status.read(line) for line in said if line.startswith(status.MARK)][-1]
    assert (seen.done, seen.total, seen.share, seen.minutes, seen.cached) == (3, 4, 0.75, 20, 4)


def test_a_unit_that_takes_more_memory_than_there_is_runs_alone_and_is_told(tree: Path, run: Run) -> None:
    costs.write(tree / "learned.tsv", {"d/d.cu.o": Cost(cpu=70.0, architectures=1, peak=1025)})
    said = run(jobs=2, memory=1024)
    assert "ortpacks: d/d.cu.o takes 1025 MiB, more than is available: it waits until no other runs\n" in said
    assert sorted(built(said)) == ["a.cc", "b.cc", "c.cu", "d.cu"]


def test_less_memory_than_was_asked_for_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "available_memory", lambda: 5120 << 20)  # of which a GiB is left free
    said = "all compilers together have 4096 MiB, and not the 8192 MiB of --memory: no more is free\n"
    assert f"ortpacks: {said}" in run()


def test_units_that_fail_do_not_stop_the_others(tree: Path, run: Run) -> None:
    for name in ("d.cu", "b.cc"):
        (tree / name).write_text("broken\n")
    told = run(1, jobs=2)
    assert {made.name for made in (*tree.glob("d/*.o"), *tree.glob("*.so"))} == {"a.cc.o", "c.cu.o"}
    again = "FAILED d/d.cu.o\nsh compile d.cu -o d/d.cu.o\ncompiling d.cu\nd.cu: error: it is broken\n"
    assert again in told
    assert "FAILED d/b.cc.o\nsh compile b.cc" in told
    assert told.endswith("2 of the units failed; all others are finished and kept for the next run\n")


def test_the_next_run_does_what_failed_and_nothing_else(tree: Path, run: Run) -> None:
    (tree / "d.cu").write_text("broken\n")
    run(1)
    (tree / "d.cu").write_text("d.cu\n")
    said = run()
    assert said.startswith("ortpacks: 1 units to compile")
    assert built(said) == ["d.cu"]
    record = json.loads((tree / "record.json").read_text())
    assert (record["units"], record["compilations"]) == (4, 4)
    said = run()
    assert said.startswith("ortpacks: 0 units to compile, 1 at a time\n")
    assert built(said) == []


def test_objects_of_a_cache_that_machines_share_are_noted_also_when_they_come_from_ccache(tree: Path) -> None:
    """So provenance says it of a later build that used no such cache itself."""
    for cache, now in ((tree / "other", False), (tree / "ccache", True), (tree / "ccache", False)):
        cache.mkdir(exist_ok=True)
        built = tree / f"{cache.name}-{now}"
        built.mkdir()
        drive.note_shared(built, cache, now=now)
        assert (built / drive.SHARED).exists() == (cache.name == "ccache")


def test_the_program_is_run_as_the_build_container_does(tree: Path) -> None:
    """0 jobs are one for each core, and 0 MiB are what is free of the machine's memory."""
    flags = f"--tree . --jobs 0 --memory 0 --architectures 5 --parts parts.tsv --pool {tree}/pool"
    flags += " --shared none --name p --learned learned.tsv --measured measured.tsv --record record.json p"
    argv = ["python3", "-m", "builder.farm.drive", *flags.split()]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = ran(argv, cwd=tree, env=env)
    assert done.returncode == 0, done.stderr
    assert f"4 units to compile, {len(os.sched_getaffinity(0))} at a time" in done.stdout
    assert int((tree / "pool/budget").read_text()) > 1024
    assert (tree / "libp.so").exists()


def test_units_that_are_out_of_date_claim_what_they_took_too(tree: Path, run: Run) -> None:
    for _ in range(2):
        run(architectures=2)
    claims = (tree / "claims.tsv").read_text().splitlines()
    assert sorted(line.split("\t")[0] for line in claims) == sorted(COSTS)
    common = {output: int(number) for output, *_, number in (line.split("\t") for line in claims)}
    assert common == {output: int(not output.endswith(".cu.o")) for output in COSTS}


def test_a_unit_that_was_found_in_part_teaches_nothing(tree: Path) -> None:
    given = options(tree)
    known = drive.learn(given, tree / "units.log", lambda _: 1)
    (tree / "units.log").write_text("0 9000 9000 1024 0 part.cu.o\n0 9000 9000 1024 0 whole.cu.o\n")
    (tree / "ccache-pieces.log").write_text("# part.cu.o.pieces/host.ii\ndirect_cache_hit\n")
    assert drive.learn(given, tree / "units.log", lambda _: 1).keys() - known.keys() == {"whole.cu.o"}


def test_two_builds_learn_at_once(tree: Path) -> None:
    """Both builds write the shared table many times, and neither may lose the other's units."""
    script = (
        "import sys; from pathlib import Path; from argparse import Namespace\n"
        "from builder.farm import drive\n"
        "folder, name = Path(sys.argv[1]), sys.argv[2]\n"
        "given = Namespace(measured=folder / 'none.tsv', learned=folder / 'learned.tsv')\n"
        "for at in range(60):\n"
        "    (folder / f'{name}.log').write_text(f'0 1000 {1000 + at} 1024 0 {name}{at}.o\\n')\n"
        "    drive.learn(given, folder / f'{name}.log', lambda _: 1)\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", script, tree, name], cwd=ROOT, stderr=subprocess.DEVNULL)
        for name in "ab"
    ]
    assert [process.wait(timeout=60) for process in started] == [0, 0]
    assert len(costs.read(tree / "learned.tsv")) == 120
