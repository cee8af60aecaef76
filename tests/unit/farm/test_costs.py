"""Tests of the costs of units: arithmetic by hand, and files that a kill or an accident damaged."""

from pathlib import Path

import pytest

from builder.farm.costs import Cost, Line, cost_of, estimate, learned, read, read_log, write

CUDA, HOST = "CMakeFiles/cuda.dir/pool.cu.o", "CMakeFiles/cuda.dir/pool.cc.o"


def cost(cpu: float, architectures: int = 5, peak: int = 900) -> Cost:
    return Cost(cpu=cpu, architectures=architectures, peak=peak)


def line(output: str, cpu: int, *, status: int = 0, peak: int = 900 << 10) -> Line:
    return Line(start=0, end=cpu, cpu=cpu, peak=peak, status=status, output=output)


@pytest.mark.parametrize(
    ("output", "architectures", "seconds"),
    [(CUDA, 1, 10.0), (CUDA, 3, 18.0), (CUDA, 5, 26.0), (CUDA, 0, 10.0), (HOST, 1, 26.0), (HOST, 5, 26.0)],
)
def test_a_cuda_unit_costs_by_its_architectures(output: str, architectures: int, seconds: float) -> None:
    """6 s are the host compiler's (measured), so each architecture costs 4 s."""
    assert estimate({output: cost(26.0)}, output, architectures) == pytest.approx(seconds)


def test_a_unit_nobody_has_compiled_costs_a_typical_one() -> None:
    """Medians of ORT 1.21: 22.3 s for five architectures, of which 6 s are the host compiler's, and 4 s."""
    guessed = [estimate({}, CUDA, 1), estimate({}, CUDA, 5), estimate({}, HOST, 5)]
    assert guessed == pytest.approx([9.26, 22.3, 4.0])


def test_a_unit_nobody_has_compiled_costs_what_its_like_do() -> None:
    folder = "CMakeFiles/cuda.dir/moe/"
    known = {
        f"{folder}gemm_{name}.cu.o": cost(seconds) for name, seconds in (("a", 20), ("b_1", 30), ("b_2", 40))
    }
    known |= {f"{folder}gemm_b_3.cc.o": cost(1), f"{folder}other.cu.o": cost(10)}
    known |= {f"{folder}flash/{name}.cu.o": cost(90) for name in ("a", "b", "c")}
    names = {"gemm_b_9": 40, "gemm_c": 30, "new": 30}
    assert {name: cost_of(known, f"{folder}{name}.cu.o").cpu for name in names} == names
    assert cost_of(known, f"{folder}deeper/gemm_a.cu.o") == cost_of({}, "gemm_a.cu.o")


def test_a_unit_of_a_plugin_costs_what_it_costs_in_a_provider() -> None:
    provider = "CMakeFiles/onnxruntime_providers_cuda.dir/src/a.cu.o"
    known = {provider: Cost(cpu=77.0, architectures=1, peak=5)}
    for part in ("plugin", "plugin_flash_attention", "llm"):
        assert cost_of(known, provider.replace("_cuda.", f"_cuda_{part}.")) == known[provider]


def test_a_cpp_unit_of_a_plugin_costs_its_adapters_too() -> None:
    """1.30's pool.cc: 29 CPU s in the provider, 55 in the plug-in."""
    provider = "CMakeFiles/onnxruntime_providers_cuda.dir/src/pool.cc.o"
    plugin = provider.replace("_cuda.", "_cuda_plugin.")
    known = {provider: Cost(cpu=29.0, architectures=1, peak=5)}
    assert cost_of(known, plugin).cpu == pytest.approx(55, abs=2)
    assert cost_of({**known, plugin: cost(40)}, plugin) == cost(40), "once it was measured itself"


@pytest.mark.parametrize(
    ("log", "architectures", "known"),
    [
        ([line(CUDA, 30_500, peak=1_887_436)], 5, cost(30.5, peak=1843)),  # slightly less than 1.8 GiB
        ([line(CUDA, 100), line(CUDA, 26_000), line(CUDA, 20_000), line(CUDA, 50)], 5, cost(20.0)),
        ([line(CUDA, 20_000, peak=800 << 10)], 5, cost(20.0)),
        ([line(CUDA, 20_000, status=139)], 5, cost(26.0)),
        ([line(CUDA, 7_700)], 5, cost(26.0)),
        ([line(CUDA, 7_900)], 5, cost(7.9)),
        ([line(CUDA, 9_000)], 1, cost(9.0, architectures=1)),
        ([line(CUDA, 1_000)], 1, cost(26.0)),
    ],
)
def test_the_newest_compile_counts_and_the_highest_peak(
    log: list[Line], architectures: int, known: Cost
) -> None:
    """Below 0.3 of 26 s, which are 7.8 s, it was the cache; of one architecture, 0.3 of 10 s."""
    before = {CUDA: cost(26.0)}
    assert learned(before, log, lambda _: architectures) == {CUDA: known}
    assert before == {CUDA: cost(26.0)}


GOOD = Line(start=1000, end=4500, cpu=3200, peak=123456, status=0, output=CUDA)


@pytest.mark.parametrize(
    "bad",
    [
        *(b"", b"1", b"1 2 3", b"1 2 3 4 0", b"1 2 3 4 0 ", b"1 2 3 4 0 CMakeFiles/cu"),
        b"1 2 3 4 0 CMakeFi1 2 3 4 0 b.o\n",  # what was written behind a cut-off line goes with it
        *(b"\xff\xfe\n", b"\0" * 40 + b"\n", b"-1 2 3 4 0 a.o\n", "¹ 2 3 4 0 a.o\n".encode()),
    ],
)
def test_a_line_that_a_kill_or_an_accident_left_is_passed_over(tmp_path: Path, bad: bytes) -> None:
    file = tmp_path / "units.log"
    file.write_bytes(f"1000 4500 3200 123456 0 {CUDA}\n".encode() + bad)
    assert [*read_log(file)] == [GOOD]
    file.write_bytes(bad + b"\n1 2 3 4 0 c.o\n")
    *_, last = read_log(file)
    assert last.output == "c.o"


def test_no_log_and_no_table_is_nothing_known(tmp_path: Path) -> None:
    assert list(read_log(tmp_path / "units.log")) == []
    assert read(tmp_path / "costs.tsv") == {}


def test_a_table_is_for_people_and_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "costs.tsv"
    write(file, {HOST: cost(4.256, 3, 512), CUDA: cost(761.0)})
    assert file.read_text() == (
        f"# output\tcpu_s\tarchitectures\tpeak_mib\n{CUDA}\t761.00\t5\t900\n{HOST}\t4.26\t3\t512\n"
    )
    assert read(file) == {HOST: cost(4.26, 3, 512), CUDA: cost(761.0)}
    assert [path.name for path in tmp_path.iterdir()] == ["costs.tsv"]


def test_lines_of_a_table_that_are_none_are_passed_over(tmp_path: Path) -> None:
    rows = [b"<<<<<<< HEAD", b"a.o\tmuch\t5\t1", b"b.o\t1.0\t5", b"\xff\t1.0\t5\t\xfe", b"c.o\t-1.0\t5\t1"]
    (tmp_path / "costs.tsv").write_bytes(b"\n".join([*rows, b"", b"\0\0", b"good.o\t1.50\t5\t7", b"d.o\t1."]))
    assert read(tmp_path / "costs.tsv") == {"good.o": cost(1.5, 5, 7)}


def test_the_repositorys_own_table_is_one(root: Path) -> None:
    file = root / "builder/farm/costs.tsv"
    rows = [row for row in file.read_text(encoding="utf-8").splitlines() if not row.startswith("#")]
    assert len(read(file)) == len(rows)
