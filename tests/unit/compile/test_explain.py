"""Tests of comparing our options with the official build's.

Official options are those of 1.21.0's packaging scripts and wheels; each difference must have a reason.
"""

from __future__ import annotations

import io
from collections.abc import Callable
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
    ("version", "base", "sm", "widen"),
    [
        ("1.21.0", "nvidia", "89 90 100 120", False),
        ("1.21.0", "nvidia", "50 52 70", False),
        ("1.22.0", "nvidia", "89 90 100 120", False),
        ("1.22.0", "assembled", "89 90 100 120", False),
        ("1.23.2", "nvidia", "89 90 100 120", False),
        ("1.23.2", "nvidia", "89 90 100 120", True),
        ("1.23.2", "nvidia", "60 70 75 80 86 90", False),
        ("1.23.2", "nvidia", "120f", False),
        ("1.23.2", "assembled", "89 90 100 120", False),
        ("1.40.0", "nvidia", "89 90 100 120", False),
    ],
)
def test_what_is_shown(
    project: Project, told: Callable[[object], None], version: str, base: str, sm: str, widen: bool
) -> None:
    """1.22 launches flash attention on every device from 8.0 on; CMake replaces 90 by 90a from 1.23 on.

    Of base assembled, whose nvcc ends at sm_90, CMake sees no newer architecture.
    The official lists are those of the wheels' containers.
    """
    plan = planned(project, version, base=base)
    variant = replace(plan.variant, sm=tuple(map(Arch.parse, sm.split())))
    asked = replace(plan, variant=variant)
    told(shown(widened(asked) if widen else asked))


def test_repacked_is_the_official_build_itself(project: Project, told: Callable[[object], None]) -> None:
    plan = planned(project, "1.23.2", variant="modern", profile=None)
    explained = explain(plan)
    assert (explained.differences, explained.notes) == ((), ())
    told(shown(plan, plan))


def shown(*plans: BuildPlan) -> str:
    stream = io.StringIO()
    show_explanation(Console(env={}, stream=stream), plans)
    return stream.getvalue()
