"""Tests of the rules that are read from a source, on one that was made up (``tests/support/ort_source.py``).

The rules of the real 1.21.0 to the 1.30 development line were compared with a reading of their files.
"""

from dataclasses import replace

import pytest

from builder.errors import ParseError
from builder.facts.gpu.architectures import Arch, architectures
from builder.facts.ort.cmake_language import SourceLine
from builder.facts.ort.known_rules import ReadSource, dumps, loads, text_of
from builder.facts.ort.rule_reader import read_rules
from builder.facts.ort.source_rules import Fact, Range, SourceRules, UnitGroup
from builder.facts.ort.source_tree import is_wanted
from tests.support import ort_source

ON = {"onnxruntime_USE_CUDA": "ON"}


def rules(file: str = "", old: str = "", new: str = "") -> SourceRules:
    """Return the rules of the source; ``old`` in ``file`` is replaced by ``new``."""
    files = dict(ort_source.FILES)
    if file:
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    return read_rules(files, list(files), ON)


@pytest.fixture(scope="module")
def made_up() -> SourceRules:
    return rules()


def compiled(group: UnitGroup, text: str) -> str:
    """Return the architectures of a group's units in a set."""
    return " ".join(map(str, sorted(group.compiled(architectures(text)))))


def groups(found: SourceRules) -> dict[str, UnitGroup]:
    return {group.paths[0]: group for group in found.groups}


def test_minimums_have_the_line_that_refuses_less(made_up: SourceRules) -> None:
    assert {name: (fact.value, str(fact.line)) for name, fact in made_up.minimums.items()} == {
        "cuda": ("12.5", "cmake/external/cuda_setup.cmake:4"),
        "gcc": ("13.2", "cmake/CMakeLists.txt:4"),
        "cmake": ("3.30", "cmake/CMakeLists.txt:1"),
        "cxx": ("23", "cmake/CMakeLists.txt:7"),
    }
    assert made_up.version == "1.40.0"


def test_options_have_their_default_and_others_are_unknown(made_up: SourceRules) -> None:
    assert made_up.options["onnxruntime_WITH_FAST"] == Fact("ON", SourceLine("cmake/CMakeLists.txt", 10))
    assert made_up.options["onnxruntime_NVCC_THREADS"].value == "4"
    wanted = ("onnxruntime_USE_CUDA", "onnxruntime_FLASH", "CMAKE_BUILD_TYPE")
    assert made_up.unknown(wanted) == ("onnxruntime_FLASH",)


def test_an_option_that_needs_a_newer_cuda_is_named_with_its_line(made_up: SourceRules) -> None:
    wanted = {"onnxruntime_WITH_FP2": Fact("12.8", SourceLine("cmake/CMakeLists.txt", 20))}
    assert made_up.impossible({}, "12.4") == wanted
    assert made_up.impossible({}, "12.8") == {}
    assert made_up.impossible({"onnxruntime_WITH_FP2": "OFF"}, "12.4") == {}


def test_what_cmake_makes_of_a_list_is_found_out(made_up: SourceRules) -> None:
    assert made_up.rewriting.line == SourceLine("cmake/external/cuda_setup.cmake", 25)
    assert made_up.rewriting.accelerated == (90, 130)
    assert made_up.read_list("75;90-real;86-virtual;100-virtual") == (
        frozenset({Arch(7, 5), Arch(9, 0, "a")}),
        (Arch(10, 0),),
    )
    assert made_up.refused(architectures("86,100f,90a")) == (Arch(10, 0, "f"),)
    with pytest.raises(ValueError, match="Unrecognized CUDA architecture: 100f"):
        made_up.read_list("100f-real")
    assert (made_up.rewriting.refused or {})["f"].line == SourceLine("cmake/external/cuda_setup.cmake", 22)
    assert made_up.defaults["12.9"] == Fact(
        "75-real;130a-real", SourceLine("cmake/external/cuda_setup.cmake", 25)
    )


def test_a_list_that_cmake_leaves_alone_is_left_alone() -> None:
    found = rules("cmake/CMakeLists.txt", "  prepare()\n", "")
    assert found.rewriting.line is None
    assert found.read_list("75;90-virtual") == (frozenset({Arch(7, 5)}), (Arch(7, 5), Arch(9, 0)))
    assert (found.refused(architectures("100f")), found.rewritten(Arch(9, 0))) == ((), Arch(9, 0))
    assert found.defaults == {}


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


def test_launches_are_read_with_their_units_and_lines(made_up: SourceRules) -> None:
    found = {
        launch.name: (launch.path, launch.first, launch.last, launch.option) for launch in made_up.launches
    }
    contrib = "contrib_ops/cuda"
    assert found == {
        "fast attention": (f"{contrib}/fast_attention/fast_", 80, 90, "onnxruntime_WITH_FAST"),
        "experts": (f"{contrib}/moe/experts_", 70, 89, ""),
        "steps for sm_60": (f"{contrib}/steps/steps_sm60.cu", 60, 85, ""),
        "steps for sm_86": (f"{contrib}/steps/steps_sm86.cu", 86, 999, ""),
    }
    lines = [str(launch.line) for launch in made_up.launches]
    assert lines == [
        *("onnxruntime/contrib_ops/cuda/fast_attention/api.cc:3",),
        *("onnxruntime/contrib_ops/cuda/moe/experts_template.h:2",),
        *("onnxruntime/contrib_ops/cuda/steps/steps.cu:4", "onnxruntime/contrib_ops/cuda/steps/steps.cu:2"),
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "gone"),
    [
        ("fast_attention/api.cc", "card.major == 8;", "card.major != 8;", "fast attention"),
        ("fast_attention/api.cc", "card.major == 9", "card.major == 12", "fast attention"),
        ("steps/steps.cu", "sm >= 60", "sm > 60", "steps for sm_86"),
        ("moe/experts_template.h", "sm_ >= 75", "sm_ >= 77", "experts"),
        ("moe/experts_template.h", "ORT_THROW", "fallback", "experts"),
    ],
)
def test_a_condition_of_another_form_leaves_nothing_out(file: str, old: str, new: str, gone: str) -> None:
    found = rules(f"onnxruntime/contrib_ops/cuda/{file}", old, new)
    assert gone not in {launch.name for launch in found.launches}


def test_the_other_facts(made_up: SourceRules) -> None:
    assert made_up.without_device_code == ("contrib_ops/cuda/front.cu",)
    assert made_up.linked == ("CUDA::cudart", "CUDNN::cudnn_all")
    assert {number: str(line).rpartition("/")[2] for number, line in made_up.thresholds.items()} == {
        "530": "one.cu:1",
        "1300": "three.cu:2",
    }


def test_architectures_are_alike_unless_a_source_asks_for_one_between(made_up: SourceRules) -> None:
    pairs = [(50, 52), (50, 53), (52, 60), (53, 61), (120, 130), (120, 121)]
    assert [made_up.is_alike(*pair) for pair in pairs] == [True, False, False, True, False, True]
    turing = "onnxruntime/contrib_ops/cuda/big/qordered_ops/one.cu"
    files = {**ort_source.FILES, turing: "#if __CUDA_ARCH__ >= 610"}
    assert read_rules(files, list(files), ON).is_alike(60, 61)
    files["onnxruntime/contrib_ops/cuda/big/two.cu"] = "#if __CUDA_ARCH__ >= 610"
    assert not read_rules(files, list(files), ON).is_alike(60, 61)


def test_what_cannot_be_decided_is_a_note_and_counts_as_whole() -> None:
    unknown = rules(
        "cmake/cuda_provider.cmake", "from(75 list)", "execute_process(COMMAND a OUTPUT_VARIABLE list)"
    )
    assert len(unknown.notes) == 1
    assert unknown.notes[0].startswith("onnxruntime_providers_cuda_big (cmake/cuda_provider.cmake:42): its ")
    assert "contrib_ops/cuda/big/" not in groups(unknown)
    cut = rules("cmake/cuda_provider.cmake", 'take("/big/" big)', "list(SORT units)")
    assert "onnxruntime_providers_cuda" in {note.partition(" (")[0] for note in cut.notes}
    alone = "list(LENGTH list count)\nif(list AND count EQUAL 1)\n  part(big"
    both = rules("cmake/cuda_provider.cmake", "if(list)\n  part(big", alone)
    said = "big counts as compiled for the whole list: for 75 80, CMake compiles it in no target"
    assert said in both.notes
    assert "contrib_ops/cuda/big/" not in groups(both)
    listed = rules(
        "cmake/external/cuda_setup.cmake",
        "set(CMAKE_CUDA_ARCHITECTURES ${MADE} ${PTX})",
        "list(SORT MADE)\nset(CMAKE_CUDA_ARCHITECTURES ${MADE})",
    )
    assert "what CMake makes of CMAKE_CUDA_ARCHITECTURES could not be decided" in listed.notes
    assert listed.rewriting.line is None


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "cmake/cuda_provider.cmake",
            "endfunction()\ntake",
            "take",
            r"cmake/cuda_provider\.cmake:\d+: function has no",
        ),
        (
            "cmake/CMakeLists.txt",
            "project(onnxruntime",
            "project((onnxruntime",
            r"cmake/CMakeLists\.txt:2 is not understood",
        ),
        ("VERSION_NUMBER", "1.40.0", "newest", "VERSION_NUMBER of ONNX Runtime's source has no version"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_with_its_line(
    file: str, old: str, new: str, says: str
) -> None:
    with pytest.raises(ParseError, match=says):
        rules(file, old, new)


def test_the_files_that_are_needed_are_known_by_their_path() -> None:
    wanted = (
        "VERSION_NUMBER",
        "cmake/a/CMakeLists.txt",
        "cmake/b.cmake",
        "onnxruntime/contrib_ops/cuda/bert/a.cuh",
    )
    assert all(map(is_wanted, wanted))
    others = ("cmake/deps.txt", "onnxruntime/core/a.cc", "onnxruntime/contrib_ops/cuda/bert/a_sm75.cubin.cc")
    assert not any(map(is_wanted, others))


def test_rules_that_are_stored_are_the_same(made_up: SourceRules) -> None:
    read = ReadSource("v1.40.0", "1.40.0", made_up)
    assert loads(ReadSource, dumps(read)) == read
    older = replace(read, first="1.9.0")
    one, other = loads(tuple[ReadSource, ...], text_of([read, older], ["onnxruntime_USE_CUDA"]))
    assert (one.first, other.first) == ("1.9.0", "1.40.0")
    assert set(one.rules.options) == {"onnxruntime_USE_CUDA", "onnxruntime_WITH_FP2"}
