"""Tests of the record of a compile; sums and memory peaks are computed by hand."""

import json
from pathlib import Path

import pytest

from builder.contents.build_record import loads_compile
from builder.farm.costs import Line, begin_run, cache_misses, peak_mib, read_runs, write_record
from tests.support.tables import data_text

GIB = 1 << 20
"""A gibibyte in KiB, the kernel's unit."""


def unit(start: int, end: int, gibibytes: float) -> Line:
    peak = int(gibibytes * GIB)
    return Line(start=start * 1000, end=end * 1000, cpu=0, peak=peak, status=0, output="a.o")


@pytest.mark.parametrize(
    ("log", "mebibytes"),
    [
        ([], 0),
        ([unit(0, 10, 1)], 1024),
        ([unit(0, 10, 1), unit(5, 15, 2), unit(12, 20, 1)], 3072),
        ([unit(12, 20, 1), unit(5, 15, 2), unit(0, 10, 1)], 3072),
        ([unit(0, 10, 3), unit(10, 20, 3)], 3072),
        ([unit(0, 30, 0.5), unit(5, 6, 1.5), unit(7, 9, 2)], 2560),
    ],
    ids=["nothing", "one", "overlapping", "as they ended", "one after the other", "within"],
)
def test_memory_that_units_held_at_once(log: list[Line], mebibytes: int) -> None:
    assert peak_mib(log) == mebibytes


UNITS = data_text("farm/units.log")

CACHE = data_text("farm/ccache-stats.log")


def test_a_record_counts_all_that_the_tree_took(tmp_path: Path) -> None:
    (tmp_path / "units.log").write_text(UNITS)
    (tmp_path / "ccache-stats.log").write_text(CACHE)
    begin_run(tmp_path, 10.0, 2)
    begin_run(tmp_path, 46.25, 1)
    write_record(tmp_path / "record.json", tmp_path)
    assert cache_misses(CACHE) == 1
    assert json.loads((tmp_path / "record.json").read_text()) == {
        "units": 3,
        "compilations": 5,
        "cache_hits": 2,
        "cpu_s": 66,  # 55 + 8 + 0.9 + 2.1 + 0.05
        "wall_s": 46,  # 10 to 42, and 46.25 to 60.1
        "runs": 2,
        "jobs": 2,
        "busy_percent": 54,  # 30 + 8.5 + 1 + 2.5 + 0.1 of 2 * 32 + 13.85
        "peak_mib": 1536,
        "longest_unit_s": 30,
    }


def test_a_run_that_had_nothing_to_do_has_a_record(tmp_path: Path) -> None:
    begin_run(tmp_path, 10.0, 4)
    write_record(tmp_path / "record.json", tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert {value for name, value in record.items() if name != "jobs"} == {0}


def test_a_run_that_was_killed_counts_to_its_last_unit(tmp_path: Path) -> None:
    begin_run(tmp_path, 0, 2)  # killed at some time before 100 s
    begin_run(tmp_path, 100, 2)
    log = [unit(0, 10, 1), unit(0, 20, 1), unit(100, 130, 1)]
    first, second = read_runs(tmp_path / "runs.log", log)
    assert (first.start, first.end, first.busy) == (0, 20_000, 30_000)
    assert (second.start, second.end, second.busy) == (100_000, 130_000, 30_000)


@pytest.mark.parametrize("line", ["100000", "100000 ", "\0\0\0 \0\n", "100000 two\n", "-1 2\n", "²00 2\n"])
def test_a_line_that_a_kill_or_a_full_disk_left_is_no_run(tmp_path: Path, line: str) -> None:
    begin_run(tmp_path, 0, 2)
    with (tmp_path / "runs.log").open("a") as file:
        file.write(line)
    begin_run(tmp_path, 100, 2)
    assert [run.start for run in read_runs(tmp_path / "runs.log", [])] == [0, 100_000]


@pytest.mark.parametrize(
    ("other", "wall", "busy", "longest"),
    [("5402000 5403000 900 1024 0 b.o\n", 0, 0, 1), ("9001000 9003000 900 1024 0 b.o\n", 3, 33, 2)],
    ids=["after", "before"],
)
def test_a_clock_that_was_set_back(tmp_path: Path, other: str, wall: int, busy: int, longest: int) -> None:
    """The run begins at 9,000 s with 2 jobs; the other unit runs after the change of the clock, or before."""
    (tmp_path / "units.log").write_text(f"9001000 5402000 900 1024 0 a.o\n{other}")
    begin_run(tmp_path, 9000.0, 2)
    write_record(tmp_path / "record.json", tmp_path)
    record = loads_compile((tmp_path / "record.json").read_bytes(), "record.json")
    assert (record.units, record.wall_s, record.busy_percent) == (2, wall, busy)
    assert record.longest_unit_s == longest


def test_a_unit_of_which_ccache_had_a_piece_counts_once(tmp_path: Path) -> None:
    """ccache 4.7 first logs the compilations, then the results."""
    pieces = (
        "# d/a.cu.o.pieces/compute_50.ii\ndirect_cache_hit\nlocal_storage_hit\n"
        "# d/a.cu.o.pieces/host.ii\ndirect_cache_hit\n"
        "# d/b.cu.o.pieces/host.ii\ncache_miss\ndirect_cache_miss\n"
        "# /src/c.cu\ndirect_cache_hit\n"
    )
    (tmp_path / "ccache-pieces.log").write_text(pieces)
    (tmp_path / "ccache-stats.log").write_text("# e.cc\ndirect_cache_hit\n")
    write_record(tmp_path / "record.json", tmp_path)
    assert json.loads((tmp_path / "record.json").read_text())["cache_hits"] == 2, "e.cc and a.cu"
