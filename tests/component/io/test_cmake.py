"""Tests of CMake on a source, which may be anybody's."""

from pathlib import Path

from builder.facts.ort.configured import BuildTarget, SourceLine, Trace
from builder.io.wiring import Wiring
from tests.support import ROOT

HARMFUL = """project(x C CXX)
execute_process(COMMAND touch {folder}/started RESULT_VARIABLE CODE OUTPUT_VARIABLE SAID)
file(WRITE {folder}/written text)
file(COPY ${{CMAKE_CURRENT_LIST_FILE}} DESTINATION {folder})
configure_file(CMakeLists.txt {folder}/configured)
try_compile(FITS ${{CMAKE_BINARY_DIR}} {folder}/a.c)
find_program(SHELL sh)
add_library(units OBJECT ../onnxruntime/a.cu "${{SHELL}} ${{SAID}} ${{CODE}} ${{FITS}} $ENV{{HOME}}")
file(GLOB UNITS "../onnxruntime/*.cu")
function(for_newer)
  set_target_properties(units PROPERTIES CUDA_ARCHITECTURES "90a-real")
endfunction()
for_newer()
set(CMAKE_CUDA_ARCHITECTURES ${{UNITS}})
message(FATAL_ERROR "no " more)
"""


def test_a_source_starts_no_program_and_writes_no_file(tmp_path: Path) -> None:
    harmed = tmp_path / "harmed"
    harmed.mkdir()
    texts = {"cmake/CMakeLists.txt": HARMFUL.format(folder=harmed)}
    listing = ("onnxruntime/a.cu", "onnxruntime/b.cu", "../outside.cu", f"{harmed}/outside.cu")
    with Wiring(ROOT).cmake(texts, listing) as configure:
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
