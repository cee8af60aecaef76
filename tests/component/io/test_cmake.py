"""Tests of CMake on a source, which may be anybody's."""

from pathlib import Path

from builder.facts.ort.configured import BuildTarget, SourceLine, Trace
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.tables import data_text

HARMFUL = data_text("ort/harmful.txt")


def test_a_source_starts_no_program_and_writes_no_file(tmp_path: Path) -> None:
    harmed = tmp_path / "harmed"
    harmed.mkdir()
    units = ("onnxruntime/a.cu", "onnxruntime/b.cu", "../outside.cu", f"{harmed}/outside.cu")
    files = dict.fromkeys(units, "") | {"cmake/CMakeLists.txt": HARMFUL.format(folder=harmed)}
    with Wiring(ROOT).cmake(files) as configure:
        made = configure({"READER_ANSWER": "OFF"}, Trace.VALUES)
        found = configure({}, Trace.NOTHING)
    assert not list(harmed.iterdir())
    sources = ("onnxruntime/a.cu", "cmake/OFF OFF 0 OFF ")
    assert made.targets == {"units": BuildTarget("90a-real", sources)}
    assert found.targets["units"].sources[1] == "cmake/ON ON 0 ON "
    listed = made.values["CMAKE_CUDA_ARCHITECTURES"].split(";")
    assert [Path(unit).name for unit in listed] == ["a.cu", "b.cu"]
    (refusal,) = made.refusals
    assert (refusal.words, refusal.line.number) == (("FATAL_ERROR", "no ", "more"), 15)
    assert made.made_at("units") == SourceLine("cmake/CMakeLists.txt", 13)
    assert not found.calls
