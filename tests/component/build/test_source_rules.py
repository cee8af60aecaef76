"""Tests of the rules that are read from a source, on one that was made up (``tests/support/ort_source.py``).

The rules of the real 1.21.0 to the 1.30 development line were compared with a reading of their files.
"""

from dataclasses import replace

import pytest

from builder.errors import ParseError
from builder.facts.gpu.architectures import Arch, architectures
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.known_rules import DATA, ReadSource, dumps, loads, read_sources, text_of
from builder.facts.ort.source_rules import Compiled, Fact, Range, SourceRules, UnitGroup
from tests.support import ROOT, ort_source
from tests.support.tables import table


def rules(file: str, old: str, new: str) -> SourceRules:
    """Return the rules of the source with ``new`` in place of ``old`` in a file."""
    text = ort_source.FILES[file]
    assert old in text
    return ort_source.rules({file: text.replace(old, new)})


@pytest.fixture(scope="module")
def made_up() -> SourceRules:
    return ort_source.rules()


def compiled(group: UnitGroup, text: str) -> str:
    """Return the architectures of a group's units in a set."""
    return " ".join(map(str, sorted(group.compiled(architectures(text)))))


def groups(found: SourceRules) -> dict[str, UnitGroup]:
    return {group.paths[0]: group for group in found.groups}


def test_minimums_have_the_line_that_refuses_less(made_up: SourceRules) -> None:
    found = [[name, fact.value, str(fact.line)] for name, fact in made_up.minimums.items()]
    assert sorted(found) == sorted(table("ort/made-up-minimums.txt"))
    assert made_up.version == "1.40.0"


def test_options_have_their_default_and_others_are_unknown(made_up: SourceRules) -> None:
    assert made_up.options["onnxruntime_WITH_FAST"] == Fact("ON", SourceLine("cmake/CMakeLists.txt", 12))
    assert made_up.options["onnxruntime_NVCC_THREADS"].value == "4"
    wanted = ("onnxruntime_USE_CUDA", "onnxruntime_FLASH", "CMAKE_BUILD_TYPE")
    assert made_up.unknown(wanted) == ("onnxruntime_FLASH",)


def test_an_option_that_needs_a_newer_cuda_is_named_with_its_line(made_up: SourceRules) -> None:
    wanted = {"onnxruntime_WITH_FP2": Fact("12.8", SourceLine("cmake/CMakeLists.txt", 22))}
    assert made_up.impossible({}, "12.4") == wanted
    assert made_up.impossible({}, "12.8") == {}
    assert made_up.impossible({"onnxruntime_WITH_FP2": "OFF"}, "12.4") == {}


def test_what_cmake_makes_of_a_list_is_found_out(made_up: SourceRules) -> None:
    assert made_up.rewriting.line == SourceLine("cmake/external/cuda_setup.cmake", 25)
    assert made_up.rewriting.accelerated == (90, 130)
    assert made_up.read_list("75;90-real;86-virtual;100-virtual") == Compiled(
        (Arch(7, 5), Arch(9, 0, "a")), (Arch(10, 0),)
    )
    assert made_up.refused(architectures("86,100f,90a")) == (Arch(10, 0, "f"),)
    with pytest.raises(ValueError, match="Unrecognized CUDA architecture: 100f"):
        made_up.read_list("100f-real")
    assert (made_up.rewriting.refused or {})["f"].line == SourceLine("cmake/external/cuda_setup.cmake", 22)


def test_a_list_that_cmake_leaves_alone_is_left_alone() -> None:
    found = rules("cmake/CMakeLists.txt", "  prepare()\n", "")
    assert found.rewriting.line is None
    assert found.read_list("75;90-virtual") == Compiled((Arch(7, 5),), (Arch(7, 5), Arch(9, 0)))
    assert (found.refused(architectures("100f")), found.rewritten(Arch(9, 0))) == ((), Arch(9, 0))


def test_units_are_in_groups_by_what_cmake_compiles_them_for(made_up: SourceRules) -> None:
    fast, big, newest = (
        groups(made_up)[f"contrib_ops/cuda/{name}/"] for name in ("fast_attention", "big", "wgmma")
    )
    assert (fast.name, fast.units, fast.line) == (
        "fast attention",
        2,
        SourceLine("cmake/cuda_provider.cmake", 36),
    )
    assert fast.ranges[1] == Range(50, 79, "onnxruntime_providers_cuda", "")
    assert [compiled(fast, text) for text in ("75", "75,80", "80,86,130")] == ["75", "80", "80 86 130"]
    assert [compiled(big, text) for text in ("60", "60,75", "90")] == ["", "75", "90"]
    assert [compiled(newest, text) for text in ("90", "75,130a")] == ["90", "130a"]
    assert (len([*made_up.paths]), made_up.notes) == (12, ())
    assert "contrib_ops/cuda/steps/steps_sm60.cu" in made_up.paths


def test_units_that_are_compiled_for_one_entry_in_place_of_the_set_are_told() -> None:
    file = "cmake/cuda_provider.cmake"
    text = (
        ort_source.FILES[file].replace("from(130 newest)", "from(90 newest)").replace("130a-real", "90a-real")
    )
    hopper = groups(ort_source.rules({file: text}))["contrib_ops/cuda/wgmma/"]
    assert hopper.ranges[0] == Range(90, 999, "onnxruntime_providers_cuda_wgmma", "90a-real")
    assert [compiled(hopper, text) for text in ("75", "90a", "130a")] == ["75", "90a", "90a"]


def test_launches_are_read_with_their_units_and_lines(made_up: SourceRules) -> None:
    found = [
        [launch.name, launch.path, str(launch.first), str(launch.last), launch.option, str(launch.line)]
        for launch in made_up.launches
    ]
    assert found == table("ort/made-up-launches.txt")


def test_the_other_facts(made_up: SourceRules) -> None:
    assert made_up.without_device_code == ("contrib_ops/cuda/front.cu",)
    assert made_up.linked == ("CUDA::cudart", "CUDNN::cudnn_all")
    assert {number: str(line).rpartition("/")[2] for number, line in made_up.thresholds.items()} == {
        "530": "one.cu:1",
        "1300": "three.cu:2",
    }


def test_what_cannot_be_decided_is_a_note_and_counts_as_whole() -> None:
    asks = "execute_process(COMMAND a OUTPUT_VARIABLE list)"
    unknown = rules("cmake/cuda_provider.cmake", "from(75 list)", asks)
    (note,) = unknown.notes
    assert note.startswith("onnxruntime_providers_cuda_big: its units count as compiled for the whole list")
    assert "contrib_ops/cuda/big/" not in groups(unknown)
    alone = "list(LENGTH list count)\nif(list AND count EQUAL 1)\n  part(big"
    both = rules("cmake/cuda_provider.cmake", "if(list)\n  part(big", alone)
    said = "big counts as compiled for the whole list: for 75 80, CMake compiles it in no target"
    assert said in both.notes
    assert "contrib_ops/cuda/big/" not in groups(both)


def test_what_cmake_does_not_find_is_a_note(made_up: SourceRules) -> None:
    strange = "  tidy(up)\n  include(away)\n"
    newer = rules("cmake/CMakeLists.txt", "  prepare()\n", f"  prepare()\n{strange}")
    said = "CMake goes on without {}, which it does not find"
    assert newer.notes == tuple(map(said.format, ("tidy", "away")))
    assert newer.groups == made_up.groups


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("cmake/cuda_provider.cmake", "endfunction()\ntake", "take", "Flow control"),
        ("cmake/CMakeLists.txt", "project(onnxruntime", "project((onnxruntime", "Parse error"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_with_its_line(
    file: str, old: str, new: str, says: str
) -> None:
    with pytest.raises(ParseError, match=rf"^{file}:\d+ of .* {says}"):
        rules(file, old, new)


def test_rules_that_are_stored_are_the_same(made_up: SourceRules) -> None:
    read = ReadSource("v1.40.0", "1.40.0", made_up)
    assert loads(ReadSource, dumps(read)) == read
    assert dumps(read_sources()) == (ROOT / DATA).read_text(encoding="utf-8")
    older = replace(read, first="1.9.0")
    one, other = loads(tuple[ReadSource, ...], text_of([read, older], ["onnxruntime_USE_CUDA"]))
    assert (one.first, other.first) == ("1.9.0", "1.40.0")
    assert set(one.rules.options) == {"onnxruntime_USE_CUDA", "onnxruntime_WITH_FP2"}
