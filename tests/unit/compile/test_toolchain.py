"""Tests of the tool for each image, of CMake's changes to a set, and of the GPUs lost and added by them.

Expected values: CUDA's release notes (12.4 has sm_50 to sm_90, 12.9 to sm_121); the containers of official
wheels; ORT's cuda_configuration.cmake and its ``ARCHITECTURES_WITH_ACCEL``, read by hand; NVIDIA's "CUDA 12.9
family-specific features" (``a`` runs on its own capability alone, plain code on its major version from its
minor version on).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from builder.compile.explain import arch_list
from builder.config.build_plan import BuildPlan, check_reach, compile_plan, divide, proposed, widened
from builder.config.variants import Origin, Variant
from builder.facts.gpu.architectures import Arch
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.units import cmake_list
from tests.support.factories import packages
from tests.support.tables import table


@pytest.mark.parametrize(
    ("nvcc", "ptxas", "sm", "compiled", "assembled", "ptx"), table("compile/divided.txt")
)
def test_a_newer_ptxas_makes_what_nvcc_does_not_know(
    nvcc: str, ptxas: str, sm: str, compiled: str, assembled: str, ptx: str
) -> None:
    targets = divide(arches(sm), nvcc, ptxas or None)
    assert (targets.compiled, targets.assembled) == (arches(compiled), arches(assembled))
    assert targets.ptx == (Arch.parse(ptx) if ptx else None)


LATEST = "89 90 100 120"


def arches(text: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(word) for word in text.split())


def shown(sass: tuple[Arch, ...], ptx: tuple[Arch, ...]) -> str:
    return f"{' '.join(map(str, sass))} | {' '.join(map(str, ptx))}".strip()


@pytest.mark.parametrize(("version", "wheel", "archive"), table("compile/official.txt"))
def test_official_lists_by_version(version: str, wheel: str, archive: str) -> None:
    """The lists are from pull requests 23671, 25126 and 26230.

    Those of 1.21.0's and 1.23.2's wheels are the code of the containers that hold most in PyPI's wheels.
    """
    listed = arch_list(version)
    made = [rules_for(version).read_list(text) for text in (listed.wheel, listed.archive)]
    assert [shown(each.sass, each.ptx) for each in made] == [wheel, archive]


@pytest.mark.parametrize(("sm", "version", "told", "made"), table("compile/sets.txt"))
def test_what_a_set_becomes(sm: str, version: str, told: str, made: str) -> None:
    assert cmake_list(arches(sm)) == told
    found = rules_for(version).read_list(told)
    assert shown(found.sass, found.ptx) == made


@pytest.mark.parametrize(("text", "version", "made"), table("compile/lists.txt"))
def test_suffixes_of_a_list(text: str, version: str, made: str) -> None:
    found = rules_for(version).read_list(text)
    assert shown(found.sass, found.ptx) == made


def test_families_are_refused_by_two_lines() -> None:
    found = {
        version: rules_for(version).refused(arches("90 100f"))
        for version in ("1.22.0", "1.23.0", "1.24.4", "1.25.0")
    }
    assert found == {"1.22.0": (), "1.23.0": arches("100f"), "1.24.4": arches("100f"), "1.25.0": ()}
    with pytest.raises(ValueError, match="Unrecognized CUDA architecture: 100f"):
        rules_for("1.23.0").read_list("90-real;100f-real")


def test_a_word_that_is_no_architecture() -> None:
    with pytest.raises(ValueError, match="Unrecognized CUDA architecture: native"):
        rules_for("1.23.2").read_list("90;native")


VERSIONS = {"nvidia": "1.23.2", "assembled": "1.21.0"}


def planned(sm: str, version: str, base: str = "nvidia", *, widen: bool = True) -> BuildPlan:
    variant = Variant(name="latest", sm=arches(sm), generations=(), widen=widen)
    return packages.plan(variant=variant, base=base, ort_version=version)


@pytest.mark.parametrize(("sm", "version", "base", "added"), table("compile/widened.txt"))
def test_what_comes_into_a_set(sm: str, version: str, base: str, added: str) -> None:
    plan = planned(sm, version, base)
    assert proposed(plan) == arches(added)
    wider = widened(plan)
    assert wider.added == arches(added)
    assert set(wider.variant.sm) == {*arches(sm), *arches(added)}
    assert list(wider.variant.sm) == sorted(wider.variant.sm)


def test_nothing_is_added_unasked_or_to_what_is_repacked() -> None:
    plain = planned(LATEST, "1.23.2", widen=False)
    assert widened(plain) is plain
    wheel = replace(planned(LATEST, "1.23.2"), origin=Origin.WHEEL, profile=None)
    assert widened(wheel) is wheel


def test_a_set_that_is_narrowed_is_told_with_the_ways_out(told: Callable[[object], None]) -> None:
    plans = {base: planned(LATEST, version, base, widen=False) for base, version in VERSIONS.items()}
    found = {base: [*check_reach(plan, compile_plan(plan).whole_list.sass)] for base, plan in plans.items()}
    assert found["assembled"] == []
    (finding,) = found["nvidia"]
    told(finding)
