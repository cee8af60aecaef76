"""Tests of the costs of units: arithmetic by hand, and files that a kill or an accident damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.farm.costs import Cost, Line, estimate, learned, read, read_log, write

CUDA, HOST = "CMakeFiles/cuda.dir/pool.cu.o", "CMakeFiles/cuda.dir/pool.cc.o"


def cost(cpu: float, architectures: int = 5, peak: int = 900) -> Cost:
    return Cost(cpu=cpu, architectures=architectures, peak=peak)


def line(output: str, cpu: int, *, status: int = 0, peak: int = 900 << 10) -> Line:
    return Line(start=0, end=cpu, cpu=cpu, peak=peak, status=status, output=output)


@pytest.mark.parametrize(
    ("architectures", "seconds"), [(1, 10.0), (3, 18.0), (4, 22.0), (5, 26.0), (0, 10.0)]
)
def test_a_cuda_unit_costs_by_its_architectures(architectures: int, seconds: float) -> None:
    """6 s are the host compiler's (measured), so each architecture costs 4 s."""
    assert estimate({CUDA: cost(26.0)}, CUDA, architectures) == pytest.approx(seconds)


@pytest.mark.parametrize("architectures", [1, 3, 5])
def test_a_host_unit_costs_the_same_for_any_set(architectures: int) -> None:
    assert estimate({HOST: cost(7.5)}, HOST, architectures) == pytest.approx(7.5)


def test_a_unit_nobody_has_compiled_costs_a_typical_one() -> None:
    """Medians of ORT 1.21: 22.3 s for five architectures, of which 6 s are the host compiler's, and 4 s."""
    guessed = [estimate({}, CUDA, 1), estimate({}, CUDA, 5), estimate({}, HOST, 5)]
    assert guessed == pytest.approx([9.26, 22.3, 4.0])


def test_what_was_compiled_is_learned_in_seconds_and_mebibytes() -> None:
    known = learned({}, [line(CUDA, 30_500, peak=1_887_436)], lambda _: 5)  # slightly less than 1.8 GiB
    assert known == {CUDA: Cost(cpu=30.5, architectures=5, peak=1843)}


def test_the_newest_compile_counts_and_a_cache_hit_does_not() -> None:
    log = [line(CUDA, 100), line(CUDA, 26_000), line(CUDA, 20_000), line(CUDA, 50)]
    assert learned({}, log, lambda _: 5)[CUDA].cpu == pytest.approx(20.0)
    assert learned({CUDA: cost(26.0)}, [line(CUDA, 50)], lambda _: 5) == {CUDA: cost(26.0)}


def test_the_newest_counts_across_sets() -> None:
    """26 s for five architectures are 10 s for one: 9 s is a cheaper compile, 1 s is a cache hit."""
    known = learned({CUDA: cost(26.0)}, [line(CUDA, 9_000)], lambda _: 1)
    assert known[CUDA] == cost(9.0, architectures=1)
    assert learned({CUDA: cost(26.0)}, [line(CUDA, 1_000)], lambda _: 1) == {CUDA: cost(26.0)}


@pytest.mark.parametrize(("seconds", "learns"), [(7.7, False), (7.9, True)])
def test_below_three_tenths_it_was_the_cache(seconds: float, learns: bool) -> None:
    """0.3 of 26 s are 7.8 s."""
    known = learned({CUDA: cost(26.0)}, [line(CUDA, int(seconds * 1000))], lambda _: 5)
    assert known[CUDA].cpu == pytest.approx(seconds if learns else 26.0)


def test_the_highest_peak_stays() -> None:
    known = learned({HOST: cost(5.0, peak=1200)}, [line(HOST, 6_000, peak=800 << 10)], lambda _: 5)
    assert known[HOST] == cost(6.0, peak=1200)


def test_nothing_is_learned_from_what_failed() -> None:
    assert learned({}, [line(CUDA, 26_000, status=139)], lambda _: 5) == {}


def test_what_is_learned_leaves_the_table_it_began_with() -> None:
    before = {CUDA: cost(1.0)}
    learned(before, [line(CUDA, 26_000)], lambda _: 5)
    assert before == {CUDA: cost(1.0)}


def log_of(folder: Path, data: bytes) -> list[str]:
    file = folder / "units.log"
    file.write_bytes(data)
    return [found.output for found in read_log(file)]


def test_a_log_is_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "units.log").write_text(f"1000 4500 3200 123456 0 {CUDA}\n")
    assert list(read_log(tmp_path / "units.log")) == [
        Line(start=1000, end=4500, cpu=3200, peak=123456, status=0, output=CUDA)
    ]


@pytest.mark.parametrize(
    "cut", [b"", b"1", b"1 2 3", b"1 2 3 4 0", b"1 2 3 4 0 ", b"1 2 3 4 0 CMakeFiles/cu"]
)
def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path, cut: bytes) -> None:
    assert log_of(tmp_path, b"1 2 3 4 0 a.o\n" + cut) == ["a.o"]


def test_what_was_written_behind_a_cut_off_line_is_left_out_with_it(tmp_path: Path) -> None:
    assert log_of(tmp_path, b"1 2 3 4 0 CMakeFi1 2 3 4 0 b.o\n1 2 3 4 0 c.o\n") == ["c.o"]


@pytest.mark.parametrize(
    "bad", [b"\xff\xfe\n", b"\0" * 40 + b"\n", b"-1 2 3 4 0 a.o\n", "¹ 2 3 4 0 a.o\n".encode()]
)
def test_a_garbled_line_is_passed_over(tmp_path: Path, bad: bytes) -> None:
    assert log_of(tmp_path, bad + b"1 2 3 4 0 a.o\n") == ["a.o"]


def test_no_log_and_no_table_is_nothing_known(tmp_path: Path) -> None:
    assert list(read_log(tmp_path / "units.log")) == []
    assert read(tmp_path / "costs.tsv") == {}


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    costs = {HOST: cost(4.25, 3, 512), CUDA: cost(761.0, 5, 1890), "a.o": cost(0.01, 1, 0)}
    write(tmp_path / "costs.tsv", costs)
    assert read(tmp_path / "costs.tsv") == costs
    assert [path.name for path in tmp_path.iterdir()] == ["costs.tsv"]


def test_a_table_is_for_people_too(tmp_path: Path) -> None:
    write(tmp_path / "costs.tsv", {HOST: cost(4.256, 3, 512), CUDA: cost(761.0)})
    assert (tmp_path / "costs.tsv").read_text() == (
        f"# output\tcpu_s\tarchitectures\tpeak_mib\n{CUDA}\t761.00\t5\t900\n{HOST}\t4.26\t3\t512\n"
    )


def test_lines_of_a_table_that_are_none_are_passed_over(tmp_path: Path) -> None:
    rows = [
        b"<<<<<<< HEAD",
        b"a.o\tmuch\t5\t1",
        b"b.o\t1.0\t5",
        b"\xff\t1.0\t5\t\xfe",
        b"c.o\t-1.0\t5\t1",
        b"",
        b"\0\0",
    ]
    (tmp_path / "costs.tsv").write_bytes(b"\n".join([*rows, b"good.o\t1.50\t5\t7", b"d.o\t1."]))
    assert read(tmp_path / "costs.tsv") == {"good.o": cost(1.5, 5, 7)}


def test_the_repositorys_own_table_is_one(root: Path) -> None:
    file = root / "builder/farm/costs.tsv"
    rows = [row for row in file.read_text(encoding="utf-8").splitlines() if not row.startswith("#")]
    assert len(read(file)) == len(rows)
