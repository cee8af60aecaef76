"""Tests of what is read from C++ sources, on one that was made up (``tests/support/ort_source.py``)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from builder.facts.gpu.architectures import Arch
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.launch_patterns import Launch, launches_in, needs_cub_2, thresholds_in
from builder.facts.ort.source_rules import SourceRules
from builder.facts.ort.source_tree import SourceTree, is_wanted
from tests.support import ort_source
from tests.support.tables import table

CONTRIB = "onnxruntime/contrib_ops/cuda"


def launches(files: Mapping[str, str]) -> dict[str, Launch]:
    """Return the launches in the made-up source with these files, by their names."""
    source = SourceTree.read({**ort_source.FILES, **files})
    return {launch.name: launch for launch in launches_in(source, lambda name: name)}


@pytest.mark.parametrize(("file", "old", "new", "gone"), table("ort/other-conditions.txt"))
def test_a_condition_of_another_form_leaves_nothing_out(file: str, old: str, new: str, gone: str) -> None:
    text = ort_source.FILES[f"{CONTRIB}/{file}"]
    assert old in text
    assert gone not in launches({f"{CONTRIB}/{file}": text.replace(old, new)})


@pytest.mark.parametrize(
    ("test", "devices"), [("> 8", (90, 999)), (">= 8", (80, 999)), ("<= 8", (50, 90)), ("< 8", None)]
)
def test_devices_between_the_first_and_the_last_are_launched_on(
    test: str, devices: tuple[int, int] | None
) -> None:
    """Of less than 8 or 9.0, 8.x is between and is not launched on."""
    file = f"{CONTRIB}/fast_attention/api.cc"
    text = ort_source.FILES[file].replace("card.major == 8;", f"card.major {test};")
    fast = launches({file: text}).get("fast attention")
    assert (fast and (fast.first, fast.last)) == devices


def test_units_of_cudnn_s_front_end_are_none_that_a_condition_decides_on() -> None:
    asks = ort_source.FILES[f"{CONTRIB}/fast_attention/api.cc"]
    assert "cuda" not in launches({f"{CONTRIB}/api.cc": asks})


@pytest.mark.parametrize(
    ("asks", "ptx"), [("", Arch(8, 0)), ("__CUDA_ARCH__ >= 800", Arch(8, 0)), ("__CUDA_ARCH__ >= 890", None)]
)
def test_one_ptx_serves_flash_attention_unless_its_folder_asks_for_a_newer_architecture(
    asks: str, ptx: Arch | None
) -> None:
    files = {path.replace("/fast_", "/flash_"): text for path, text in ort_source.FILES.items()}
    found = launches({**files, f"{CONTRIB}/flash_attention/kernel.h": f"#if {asks}\n#endif\n"})
    assert found["flash attention"].ptx == ptx


def compared(more: Mapping[str, str]) -> SourceRules:
    """Return rules with what the C++ sources and these compare."""
    return replace(
        rules_for("1.21.0"), thresholds=thresholds_in(SourceTree.read({**ort_source.FILES, **more}))
    )


def test_architectures_are_alike_unless_a_source_asks_for_one_between() -> None:
    made_up = compared({})
    pairs = [(50, 52), (50, 53), (52, 60), (53, 61), (120, 130), (120, 121)]
    assert [made_up.is_alike(*pair) for pair in pairs] == [True, False, False, True, False, True]
    turing = f"{CONTRIB}/big/qordered_ops/one.cu"
    asks = "#if __CUDA_ARCH__ >= 610"
    assert compared({turing: asks}).is_alike(60, 61)
    plain = f"{CONTRIB}/big/two.cu"
    assert not compared({turing: asks, plain: asks}).is_alike(60, 61)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int one;\nauto most = reduced(cub::Max());\n", 2),
        ("#if CUDA_VERSION >= 11000\nauto sum = reduced(cub::Sum());\n#endif\n", 2),
        ("#if CUDART_VERSION >= 12090\ncuda::maximum()\n#else\ncub::Max()\n#endif\n", None),
        ("cub::ArgMax()\n// cub::Min()\n", None),
    ],
)
def test_what_the_cub_of_cuda_13_lacks_is_found_unless_another_is_asked_for(
    text: str, line: int | None
) -> None:
    """CUB 3.0.1 of ``nvidia-cuda-cccl`` 13.0.85 has no Max, Min and Sum, but ArgMax."""
    file = f"{CONTRIB}/big/reduced.cu"
    found = needs_cub_2(SourceTree.read({**ort_source.FILES, file: text}))
    assert (str(found) if found else None) == (f"{file}:{line}" if line else None)


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
