"""Tests of comparing our options with the official build's.

Official options are those of 1.21.0's packaging scripts and wheels; each difference must have a reason.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from builder.build.all_variants import show_explanation
from builder.compile.explain import SETTINGS, Explanation, explain, settings
from builder.config import profiles
from builder.config.build_plan import BuildPlan, widened
from builder.config.inputs import ort_wheel
from builder.config.variants import Origin, Project
from builder.console import Console
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.units import left_out
from builder.formats.package_names import Host, Profile

VERSIONS = ("1.20.1", "1.21.0", "1.22.0", "1.23.0", "1.23.2", "1.40.0")

ARGUED = {
    "CMAKE_CUDA_FLAGS",
    "CMAKE_CUDA_ARCHITECTURES",
    "onnxruntime_USE_FULL_PROTOBUF",
    "onnxruntime_BUILD_UNIT_TESTS",
    "onnxruntime_ENABLE_LTO",
    "onnxruntime_USE_TENSORRT",
    "onnxruntime_USE_VCPKG",
    "CMAKE_CXX_FLAGS",
    "CMAKE_BUILD_WITH_INSTALL_RPATH",
    "CMAKE_INSTALL_RPATH",
}
"""Options in which 1.21.0's two packaging scripts and profile full differ, counted by hand."""

LATEST = tuple(Arch.parse(number) for number in ("89", "90", "100", "120"))

LEAN = {
    "onnxruntime_DISABLE_CONTRIB_OPS",
    "onnxruntime_USE_FLASH_ATTENTION",
    "onnxruntime_USE_LEAN_ATTENTION",
    "onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION",
}


def planned(
    project: Project,
    version: str,
    *,
    variant: str = "latest",
    base: str = "nvidia",
    profile: Profile | None = Profile.FULL,
    host: Host = Host.WHEEL,
) -> BuildPlan:
    return BuildPlan(
        project=project,
        variant=project.variants[variant],
        base=base,
        base_reason="asked for",
        origin=Origin.SOURCE if profile else Origin.WHEEL,
        origin_reason="asked for",
        profile=profile,
        host=host,
        ort_version=version,
        ort_wheel=ort_wheel(version),
    )


def options(explained: Explanation) -> set[str]:
    return {difference.option for difference in explained.differences}


@pytest.mark.parametrize("version", ["1.20.1", "1.21.0", "1.23.2", "1.40.0"])
def test_full_differs_only_in_what_is_argued(project: Project, version: str) -> None:
    assert options(explain(planned(project, version))) == ARGUED


def test_the_assembled_base_has_no_cpuinfo(project: Project) -> None:
    plan = planned(project, "1.21.0", variant="legacy", base="assembled")
    assert options(explain(plan)) == ARGUED | {
        "onnxruntime_ENABLE_CPUINFO",
        "onnxruntime_USE_FLASH_ATTENTION",  # no device of legacy launches it
        "onnxruntime_USE_LEAN_ATTENTION",
    }


@pytest.mark.parametrize("version", ["1.21.0", "1.23.2"])
def test_lean_and_minimal_differ_in_their_own_options_too(project: Project, version: str) -> None:
    full, lean, minimal = (
        options(explain(planned(project, version, profile=profile)))
        for profile in (Profile.FULL, Profile.LEAN, Profile.MINIMAL)
    )
    assert lean - full == LEAN
    assert minimal - lean == {"onnxruntime_CUDA_MINIMAL"}
    assert full < lean < minimal


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("base", ["nvidia", "assembled"])
@pytest.mark.parametrize("profile", Profile)
def test_every_difference_has_a_reason_and_differs(
    project: Project, profile: Profile, base: str, version: str
) -> None:
    for variant in project.variants:
        for difference in explain(
            planned(project, version, variant=variant, base=base, profile=profile)
        ).differences:
            assert difference.reason
            assert difference.ours != difference.official


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", Profile)
def test_no_option_of_ours_escapes_the_comparison(profile: Profile, version: str) -> None:
    ours = {
        entry.name for entry in profiles.options(profile, version, left_out(LATEST, version), cpuinfo=False)
    }
    assert ours <= {setting.name for setting in settings(version)}


def test_every_official_setting_names_where_it_was_read() -> None:
    assert all(setting.source for setting in SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


@pytest.mark.parametrize(
    ("version", "ours", "official"),
    [
        ("1.21.0", "89 90 100 120", "60 70 75 80 86 90, PTX 90"),
        ("1.23.2", "89 90a 100a 120a", "60 70 75 80 86 90a, PTX 90"),
    ],
)
def test_both_lists_are_what_comes_out(project: Project, version: str, ours: str, official: str) -> None:
    first = explain(planned(project, version)).differences[0]
    assert (first.option, first.ours, first.official) == ("CMAKE_CUDA_ARCHITECTURES", ours, official)
    assert "variants.latest.sm" in first.reason


def test_the_official_set_differs_in_its_ptx_alone(project: Project) -> None:
    sm = tuple(Arch.parse(number) for number in ("60", "70", "75", "80", "86", "90"))
    plan = planned(project, "1.23.2")
    same = replace(plan, variant=replace(plan.variant, sm=sm))
    (difference,) = [one for one in explain(same).differences if one.option == "CMAKE_CUDA_ARCHITECTURES"]
    assert difference.ours == "60 70 75 80 86 90a"
    assert difference.official == "60 70 75 80 86 90a, PTX 90"


def test_what_an_architecture_becomes_and_loses(project: Project) -> None:
    notes = explain(planned(project, "1.23.2")).notes
    assert "sm_90 becomes sm_90a, which runs on 9.0" in notes
    assert "sm_100 becomes sm_100a, which runs on 10.0 alone, not on 10.3" in notes
    assert "sm_120 becomes sm_120a, which runs on 12.0 alone, not on 12.1" in notes
    assert not [note for note in explain(planned(project, "1.22.0")).notes if "becomes" in note]


def test_what_1_21_would_never_launch_is_told_with_the_line_that_says_so(project: Project) -> None:
    notes = explain(planned(project, "1.21.0")).notes
    flash, experts = (next(note for note in notes if note.startswith(name)) for name in ("flash", "mixture"))
    assert "compiled for 89 90: nothing else launches it" in flash
    assert "flash_attention/flash_api.cc line 413" in flash
    assert "compiled for 89: " in experts
    shared = [note for note in notes if "compute_80's PTX" in note]
    assert shared == [
        f"{units} attention: SASS for sm_{arch} is made from compute_80's PTX, which is the same"
        for units in ("flash", "lean")
        for arch in (89, 90)
    ]
    plan = planned(project, "1.21.0")
    old = replace(plan, variant=replace(plan.variant, sm=tuple(map(Arch.parse, ("50", "52", "70")))))
    told = explain(old).notes
    assert any(note.startswith("flash attention is left out") for note in told)
    assert "SASS for sm_52 is made from the PTX of compute_50: no source asks for more than that" in told


def test_what_ptxas_makes_of_compute_90_is_not_said_to_be_of_other_ptx(project: Project) -> None:
    """1.22 launches flash attention on every device from 8.0 on, so its units have sm_100 and sm_120 too.

    nvcc 12.4 has no PTX newer than compute_90's, of which the newer ptxas makes both.
    """
    told = explain(planned(project, "1.22.0", base="assembled")).notes
    assert [note for note in told if note.startswith("flash attention: SASS")] == [
        f"flash attention: SASS for sm_{arch} is made from compute_80's PTX, which is the same"
        for arch in ("89", "90")
    ]


def test_an_unknown_version_is_said_to_be_unknown(project: Project) -> None:
    notes = explain(planned(project, "1.40.0")).notes
    (told,) = [note for note in notes if note.startswith("C007")]
    assert "1.40.0" in told
    assert "1.23" in told


def test_a_refused_family_is_told_and_nothing_is_said_of_what_it_becomes(project: Project) -> None:
    plan = planned(project, "1.23.2")
    family = replace(plan, variant=replace(plan.variant, sm=(Arch(12, 0, "f"),)))
    explained = explain(family)
    assert explained.differences[0].ours == "120f"
    assert [note[:4] for note in explained.notes if note.startswith("C")] == ["C008"]


def test_what_widening_adds_is_told_behind_what_is_lost(project: Project) -> None:
    notes = explain(widened(planned(project, "1.23.2"))).notes
    assert notes[1:4] == (
        "sm_100 becomes sm_100a, which runs on 10.0 alone, not on 10.3",
        "sm_120 becomes sm_120a, which runs on 12.0 alone, not on 12.1",
        "added for the GPUs that this loses (widen): sm_103, sm_121",
    )


def test_what_ptxas_makes_is_not_rewritten(project: Project) -> None:
    """CMake sees only 89 and 90: the assembled base's nvcc ends at sm_90."""
    explained = explain(planned(project, "1.23.2", base="assembled"))
    assert explained.differences[0].ours == "89 90a 100 120"
    assert [note for note in explained.notes if " becomes " in note] == [
        "sm_90 becomes sm_90a, which runs on 9.0"
    ]


def test_repacked_is_the_official_build_itself(project: Project) -> None:
    explained = explain(planned(project, "1.23.2", variant="modern", profile=None))
    assert (explained.differences, explained.notes) == ((), ())
    assert explained.title == "modern: the official build of ONNX Runtime 1.23.2 itself, repacked"


def test_what_is_shown(project: Project) -> None:
    stream = io.StringIO()
    plans = [planned(project, "1.23.2"), planned(project, "1.23.2", variant="modern", profile=None)]
    show_explanation(Console(env={}, stream=stream), plans)
    lines = stream.getvalue().splitlines()
    assert lines[0] == (
        "latest: profile full on base nvidia, against the official build of ONNX Runtime 1.23.2"
    )
    assert lines[1] == (
        "  CMAKE_CUDA_ARCHITECTURES: 89 90a 100a 120a, official 60 70 75 80 86 90a, PTX 90: "
        "variants.latest.sm; theirs is the wheel's for CUDA 12, the archive's is 60 70 75 80 90a, PTX 90"
    )
    assert (
        "  onnxruntime_BUILD_UNIT_TESTS: OFF, official ON: they need a GPU to run, and are in no package"
        in lines
    )
    assert "  note: sm_120 becomes sm_120a, which runs on 12.0 alone, not on 12.1" in lines
    assert lines[-2:] == [
        "modern: the official build of ONNX Runtime 1.23.2 itself, repacked",
        "  no option differs",
    ]
