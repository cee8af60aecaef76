"""Tests of ``unit``, compiled as in the build container: its log of a compiler, and its faithful
pass-through."""

import subprocess
import time
from pathlib import Path

import pytest

from builder.farm.costs import read_log
from tests.support import ran

BUSY = """\
import os, sys, time
block = bytearray(200 << 20)
while sum(os.times()[:2]) < 0.2:
    pass
"""
"""Program that works for 0.2 s with 200 MiB of memory."""


Done = subprocess.CompletedProcess[str]


def run(unit: Path, *command: str | Path, log: Path | None = None, cwd: Path | None = None) -> Done:
    env = {"PATH": "/usr/bin:/bin", **({"UNIT_LOG": str(log)} if log else {})}
    return ran([unit, *command], env=env, cwd=cwd)


def test_one_line_tells_what_a_compiler_and_its_children_took(unit: Path, tmp_path: Path) -> None:
    """nvcc does little itself: its children's children, cicc and ptxas, take the time and memory."""
    log, before = tmp_path / "units.log", time.time_ns() // 1_000_000
    (tmp_path / "busy.py").write_text(BUSY)
    run(unit, "sh", "-c", "sh -c 'python3 busy.py'; true", "-o", "d/x.cu.o", log=log, cwd=tmp_path)
    after = time.time_ns() // 1_000_000
    (line,) = read_log(log)
    assert before <= line.start <= line.end <= after
    assert 200 <= line.cpu <= 3000
    assert line.cpu <= line.end - line.start + 20, "one thread takes no more time than there was"
    assert 200 << 10 <= line.peak <= 400 << 10, "KiB"
    assert (line.status, line.output) == (0, "d/x.cu.o")


@pytest.mark.parametrize(
    ("end", "status"), [("exit 0", 0), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)]
)
def test_the_exit_status_is_passed_through(unit: Path, tmp_path: Path, end: str, status: int) -> None:
    """A killed one has 128 and the signal."""
    log = tmp_path / "units.log"
    done = run(unit, "sh", "-c", f"echo to-out; echo to-err >&2; {end}", log=log)
    assert (done.returncode, done.stdout, done.stderr) == (status, "to-out\n", "to-err\n")
    assert [(line.status, line.output) for line in read_log(log)] == [(status, "-")], "no -o: no name"


@pytest.mark.parametrize("logged", [True, False])
def test_a_compiler_that_is_not_there_is_named(unit: Path, tmp_path: Path, logged: bool) -> None:
    done = run(unit, "no-such-compiler", log=tmp_path / "units.log" if logged else None)
    assert done.returncode == 127
    assert done.stderr == "unit: no-such-compiler: No such file or directory\n"


def test_without_a_log_it_just_runs(unit: Path, tmp_path: Path) -> None:
    done = run(unit, "sh", "-c", "echo $PPID $$; exit 3", cwd=tmp_path)
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_run_is_told(unit: Path) -> None:
    done = run(unit)
    assert (done.returncode, done.stderr.partition(":")[0]) == (2, "usage")


def test_a_log_that_cannot_be_written_fails_no_compile(unit: Path, tmp_path: Path) -> None:
    done = run(unit, "true", log=tmp_path / "nowhere" / "units.log")
    assert done.returncode == 0
    assert done.stderr.startswith(f"unit: {tmp_path}/nowhere/units.log cannot be written: No such file")


def test_units_that_end_together_do_not_mix(unit: Path, tmp_path: Path) -> None:
    log = tmp_path / "units.log"
    names = [f"{'long-path/' * 30}{number}.o" for number in range(40)]
    env = {"PATH": "/usr/bin:/bin", "UNIT_LOG": str(log)}
    started = [subprocess.Popen([unit, "true", "-o", name], env=env) for name in names]
    assert [process.wait() for process in started] == [0] * 40
    assert sorted(line.output for line in read_log(log)) == sorted(names)
    assert len(log.read_text().splitlines()) == 40
