"""Tests of comparing our options with the official build's.

Each difference must have a reason; the catalogue has the differences.
"""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from builder.build.all_variants import show_explanation
from builder.compile.explain import SETTINGS, explain, settings
from builder.config import profiles
from builder.config.build_plan import BuildPlan, widened
from builder.config.variants import Project
from builder.console import Console
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.units import left_out
from builder.formats.package_names import Profile
from tests.support.factories import packages
from tests.support.tables import table

VERSIONS = ("1.20.1", "1.21.0", "1.22.0", "1.23.0", "1.23.2", "1.40.0")


LATEST = tuple(Arch.parse(number) for number in ("89", "90", "100", "120"))


def planned(project: Project, version: str, variant: str = "latest", **changes: object) -> BuildPlan:
    """Return a plan for the full profile on base nvidia; ``changes`` replace fields."""
    full = {"base": "nvidia", "profile": Profile.FULL, **changes}
    return packages.plan(project=project, variant=project.variants[variant], ort_version=version, **full)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("base", ["nvidia", "assembled"])
@pytest.mark.parametrize("profile", Profile)
def test_every_difference_has_a_reason(project: Project, profile: Profile, base: str, version: str) -> None:
    for variant in project.variants:
        explained = explain(planned(project, version, variant, base=base, profile=profile))
        for difference in explained.differences:
            assert difference.reason
            assert difference.ours != difference.official


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", Profile)
def test_no_option_of_ours_escapes_the_comparison(profile: Profile, version: str) -> None:
    rules = rules_for(version)
    options = profiles.options(profile, rules, "12.9", left_out(LATEST, rules), cpuinfo=False)
    ours = {entry.name for entry in options}
    assert ours <= {setting.name for setting in settings(version)}


def test_every_official_setting_names_where_it_was_read() -> None:
    assert all(setting.source for setting in SETTINGS)
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


@pytest.mark.parametrize(("version", "base", "sm", "widen"), table("compile/explained.txt"))
def test_what_is_shown(
    project: Project, told: Callable[[object], None], version: str, base: str, sm: str, widen: str
) -> None:
    """1.22 launches flash attention on every device from 8.0 on; CMake replaces 90 by 90a from 1.23 on.

    Of base assembled, whose nvcc ends at sm_90, CMake sees no newer architecture.
    The official lists are those of the wheels' containers.
    """
    plan = planned(project, version, base=base)
    variant = replace(plan.variant, sm=tuple(map(Arch.parse, sm.split())))
    asked = replace(plan, variant=variant)
    told(shown(widened(asked) if widen == "True" else asked))


def test_repacked_is_the_official_build_itself(project: Project, told: Callable[[object], None]) -> None:
    plan = planned(project, "1.23.2", "modern", profile=None)
    told(shown(plan, plan))


def shown(*plans: BuildPlan) -> str:
    stream = io.StringIO()
    show_explanation(Console(env={}, stream=stream), plans)
    return stream.getvalue()
