"""Tests of ``unit``, compiled as in the build container: its log of a compiler, and its faithful
pass-through."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from builder.farm.costs import read_log

LINE = re.compile(r"(\d+) (\d+) (\d+) (\d+) (\d+) (\S+)\n")

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
    return subprocess.run([unit, *command], env=env, cwd=cwd, capture_output=True, text=True, check=False)


def test_one_line_tells_what_a_compiler_took(unit: Path, tmp_path: Path) -> None:
    log, before = tmp_path / "units.log", time.time_ns() // 1_000_000
    python = shutil.which("python3") or pytest.skip("needs python3 on PATH")
    done = run(unit, python, "-c", BUSY, "-c", "x.cu", "-o", "d/x.cu.o", log=log)
    after = time.time_ns() // 1_000_000
    assert done.returncode == 0, done.stderr
    found = LINE.fullmatch(log.read_text())
    assert found is not None
    start, end, cpu, peak, status = map(int, found.groups()[:5])
    assert before <= start <= end <= after
    assert 200 <= cpu <= 3000
    assert cpu <= end - start + 20, "one thread takes no more time than there was"
    assert 200 << 10 <= peak <= 400 << 10, "KiB"
    assert (status, found[6]) == (0, "d/x.cu.o")


def test_what_a_compilers_children_take_counts(unit: Path, tmp_path: Path) -> None:
    """nvcc does little itself: its children's children, cicc and ptxas, take the time and memory."""
    log = tmp_path / "units.log"
    (tmp_path / "busy.py").write_text(BUSY)
    run(unit, "sh", "-c", "sh -c 'python3 busy.py'; true", log=log, cwd=tmp_path)
    (line,) = read_log(log)
    assert line.cpu >= 200
    assert line.peak >= 200 << 10
    assert line.output == "-", "no -o: no name"


@pytest.mark.parametrize("status", [0, 1, 2, 77, 255])
def test_the_compilers_exit_status_is_passed_through(unit: Path, tmp_path: Path, status: int) -> None:
    log = tmp_path / "units.log"
    done = run(unit, "sh", "-c", f"echo to-out; echo to-err >&2; exit {status}", "-o", "a.o", log=log)
    assert (done.returncode, done.stdout, done.stderr) == (status, "to-out\n", "to-err\n")
    assert [(line.status, line.output) for line in read_log(log)] == [(status, "a.o")]


@pytest.mark.parametrize(("signal", "status"), [("KILL", 137), ("SEGV", 139), ("ABRT", 134)])
def test_a_killed_compiler_is_128_and_the_signal(
    unit: Path, tmp_path: Path, signal: str, status: int
) -> None:
    log = tmp_path / "units.log"
    assert run(unit, "sh", "-c", f"kill -{signal} $$", "-o", "a.o", log=log).returncode == status
    assert [line.status for line in read_log(log)] == [status]


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
