"""Which GPUs a set loses on its way through ORT's CMake, and what is added for them.

Expected values: NVIDIA's "CUDA 12.9 family-specific features" (``a`` runs on its own capability alone, plain
code on its major version from its minor on); ``ARCHITECTURES_WITH_ACCEL`` of ORT's cuda_configuration.cmake.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.gpu.architectures import Arch
from builder.onnxruntime.toolchain import hold_reach, lost, made, proposed, widened
from builder.project.build_plan import BuildPlan
from builder.project.variants import Origin, Variant
from tests.support.factories import packages

LATEST = "89 90 100 120"


def arches(text: str) -> tuple[Arch, ...]:
    return tuple(map(Arch.parse, text.split()))


def planned(sm: str, version: str, base: str = "nvidia", *, widen: bool = True) -> BuildPlan:
    variant = Variant(name="latest", sm=arches(sm), generations=(), widen=widen)
    return packages.plan(variant=variant, base=base, ort_version=version)


@pytest.mark.parametrize(
    ("sm", "version", "base", "added"),
    [
        (LATEST, "1.23.2", "nvidia", "103 121"),
        (LATEST, "1.22.0", "nvidia", ""),  # CMake takes the list as it is
        (LATEST, "1.21.0", "assembled", ""),
        (LATEST, "1.23.2", "assembled", ""),  # ptxas makes sm_100 and sm_120: CMake never sees them
        ("100", "1.23.2", "nvidia", "103"),
        ("120", "1.23.2", "nvidia", "121"),
        ("100 103", "1.23.2", "nvidia", ""),
        ("100a 120a", "1.23.2", "nvidia", ""),  # asked for as they are
        ("120f", "1.22.0", "nvidia", ""),
        ("120f", "1.23.2", "nvidia", ""),  # refused (C008)
        ("89 90", "1.23.2", "nvidia", ""),  # there is no 9.1
        ("50 52 60 61 70", "1.23.2", "nvidia", ""),
    ],
)
def test_what_comes_into_a_set(sm: str, version: str, base: str, added: str) -> None:
    plan = planned(sm, version, base)
    assert proposed(plan) == arches(added)
    wider = widened(plan)
    assert wider.added == arches(added)
    assert set(wider.variant.sm) == {*arches(sm), *arches(added)}
    assert list(wider.variant.sm) == sorted(wider.variant.sm)


def test_both_bases_serve_the_same_gpus_once_a_set_is_widened() -> None:
    nvidia = widened(planned(LATEST, "1.23.2"))
    assembled = widened(planned(LATEST, "1.21.0", "assembled"))
    found = made(nvidia.variant.sm, nvidia).sass
    assert found == arches("89 90a 100a 103 120a 121")
    assert made(assembled.variant.sm, assembled).sass == arches(LATEST)
    assert lost(made(assembled.variant.sm, assembled).sass, found) == ()
    assert lost(found, made(assembled.variant.sm, assembled).sass) == ()


def test_nothing_is_added_unasked_or_to_what_is_repacked() -> None:
    plain = planned(LATEST, "1.23.2", widen=False)
    assert widened(plain) is plain
    wheel = replace(planned(LATEST, "1.23.2"), origin=Origin.WHEEL, profile=None)
    assert widened(wheel) is wheel


def test_a_set_that_is_narrowed_is_told_with_the_cards_and_the_ways_out() -> None:
    plan = planned(LATEST, "1.23.2", widen=False)
    (finding,) = hold_reach(plan, made(plan.variant.sm, plan).sass)
    assert str(finding) == (
        "warning C012 variants.latest.sm: plain code for this set runs on 10.3 (B300, GB300) and 12.1 "
        "(GB10 (DGX Spark)) too, and what the package will hold does not run there natively\n"
        "    wanted: --widen, or variants.latest.widen: true, or sm_103, sm_121 in variants.latest.sm\n"
        "    got:    sm_89, sm_90a, sm_100a, sm_120a"
    )


@pytest.mark.parametrize(
    ("sm", "version", "base"),
    [
        (LATEST, "1.21.0", "assembled"),
        ("89 90 100 103 120 121", "1.23.2", "nvidia"),
        ("90", "1.23.2", "nvidia"),
    ],
)
def test_a_set_that_keeps_its_gpus_is_not_warned_of(sm: str, version: str, base: str) -> None:
    plan = planned(sm, version, base, widen=False)
    assert list(hold_reach(plan, made(plan.variant.sm, plan).sass)) == []
