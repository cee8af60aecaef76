"""Expected values: the fatbin containers of the official wheels, counted; ORT's source filters, read."""

from __future__ import annotations

import pytest

from builder.gpu.architectures import Arch
from builder.onnxruntime.units import (
    explained_by,
    kinds_asked,
    kinds_found,
    meant_for,
    split,
    unit_sets,
)

WHEEL_1_31_1 = {
    "75 80 86 89 90a 120a": 217,
    "80 86 89 90a 120a": 91,
    "90a": 292,
    "120a": 9,
}
"""SASS of the 609 containers of the provider in onnxruntime-gpu 1.31.1, by how many hold it."""

ASKED_1_31_1 = "75 80 86 89 90 120"


def arches(text: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(word) for word in text.split())


def kinds(sm: str, version: str) -> dict[str, str]:
    return {kind.name: " ".join(map(str, sorted(kind.sass))) for kind in unit_sets(arches(sm), version)}


def test_every_container_of_the_official_provider_is_explained() -> None:
    made = unit_sets(arches(ASKED_1_31_1), "1.31.1")
    named = {held: explained_by(arches(held), made) for held in WHEEL_1_31_1}
    assert {held: found[0].name for held, found in named.items() if found} == {
        "75 80 86 89 90a 120a": "whole list",
        "80 86 89 90a 120a": "flash attention",
        "90a": "TMA for Hopper",
        "120a": "TMA for Blackwell",
    }
    assert {" ".join(map(str, sorted(kind.sass))) for kind in made} == set(WHEEL_1_31_1)


def test_the_widest_container_tells_the_list() -> None:
    """What ``inspect`` has: containers, and no variant."""
    widest = max(map(arches, WHEEL_1_31_1), key=len)
    assert split(widest, "1.31.1") == unit_sets(arches(ASKED_1_31_1), "1.31.1")


@pytest.mark.parametrize("held", ["75 80 86 89 90a", "75 86 89 90a 120a", "80", "90", "120a 90a", ""])
def test_a_container_that_lost_an_architecture_is_not_explained(held: str) -> None:
    assert explained_by(arches(held), unit_sets(arches(ASKED_1_31_1), "1.31.1")) == ()


@pytest.mark.parametrize("version", ["1.22.0", "1.23.2", "1.26.0"])
def test_older_releases_have_one_kind_of_unit(version: str) -> None:
    assert list(kinds(ASKED_1_31_1, version)) == ["whole list"]


FULL_LEGACY = {"50 52 60 61 70": 146, "50 52 60 61": 1, "70": 5, "50": 2}
"""SASS of a full build of 1.21.0 for legacy, by its 154 sources with kernels: fmha_sm50.cu; fmha_sm70.cu and
the four moe_gemm_kernels_*.cu; fmha_sm75.cu and fmha_sm80.cu, which nothing of the set launches."""

FULL_MODERN = {"75 80 86": 116, "80": 32, "80 86": 3, "75": 3}
"""For modern: 32 flash_fwd_*.cu, whose SASS for sm_80 serves 8.6; fmha_sm80.cu and two lean_fwd_*.cu; three
of fmha_sm*.cu."""

FULL_LATEST = {"89 90 100 120": 113, "89 90": 34, "89": 7}
"""For latest: 32 flash_fwd_*.cu and two lean_fwd_*.cu; three of fmha_sm*.cu and moe_gemm_kernels_*.cu."""


def held(counts: dict[str, int]) -> list[frozenset[Arch]]:
    return [frozenset(arches(text)) for text, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize(
    ("sm", "counts"),
    [("50 52 60 61 70", FULL_LEGACY), ("75 80 86", FULL_MODERN), ("89 90 100 120", FULL_LATEST)],
)
def test_our_full_builds_of_1_21_are_explained_container_by_container(
    sm: str, counts: dict[str, int]
) -> None:
    for made in (kinds_asked(arches(sm), "1.21.0", held(counts)), kinds_found(held(counts), "1.21.0")):
        assert all(explained_by(one, made) for one in held(counts))
        assert not explained_by(arches("90"), made)


@pytest.mark.parametrize("lost", ["50 52 60 61", "70", "50", "50 52 60 70", "52 60 61 70"])
def test_one_container_that_lost_an_architecture_makes_every_part_a_gap(lost: str) -> None:
    damaged = {**FULL_LEGACY, "50 52 60 61 70": 145, lost: FULL_LEGACY.get(lost, 0) + 1}
    made = kinds_asked(arches("50 52 60 61 70"), "1.21.0", held(damaged))
    assert meant_for(Arch(5, 2), made, arches(lost))
    assert meant_for(Arch(7, 0), made, arches(lost))
    assert not explained_by(arches(lost), made)


def test_a_turing_card_is_not_served_by_volta_s_code_where_orts_dispatch_asks_for_turing_s() -> None:
    """sm_70 runs on 7.5; of memory-efficient attention ORT launches fmha_sm75.cu there, which is missing."""
    made = kinds_found(held(FULL_LEGACY), "1.21.0")
    meant = {sass: meant_for(Arch(7, 5), made, arches(sass)) for sass in FULL_LEGACY}
    assert meant == {"50 52 60 61 70": False, "50 52 60 61": False, "70": True, "50": True}
    volta = {sass: meant_for(Arch(7, 0), made, arches(sass)) for sass in FULL_LEGACY}
    assert volta == {"50 52 60 61 70": True, "50 52 60 61": False, "70": True, "50": False}


def test_a_library_compiled_for_the_whole_list_throughout_is_held_to_it() -> None:
    """The official wheel 1.21.0: 155 containers, all alike."""
    official = held({"60 70 75 80 86 90": 155})
    assert kinds_found(official, "1.21.0") == ()
    lean = held({"50 52 60 61 70": 53, "50 52 60 61": 1})
    assert kinds_asked(arches("50 52 60 61 70"), "1.21.0", lean) == ()


@pytest.mark.parametrize(
    ("sm", "version", "expected"),
    [
        ("50 60 70", "1.31.1", {"whole list": "50 60 70"}),
        (
            "75 80 86",
            "1.28.0",
            {"whole list": "75 80 86", "flash attention": "80 86", "LLM": "75 80 86"},
        ),
        (
            "70 75 120",
            "1.27.1",
            {
                "whole list": "70 75 120a",
                "flash attention": "120a",
                "LLM": "75",
                "TMA for Hopper": "90a",
                "TMA for Blackwell": "120a",
            },
        ),
        (
            "70 75 120",
            "1.28.0",
            {
                "whole list": "70 75 120a",
                "flash attention": "120a",
                "LLM": "75 120a",
                "TMA for Hopper": "90a",
                "TMA for Blackwell": "120a",
            },
        ),
    ],
)
def test_kinds_of_units(sm: str, version: str, expected: dict[str, str]) -> None:
    assert kinds(sm, version) == expected


def test_what_a_container_was_meant_for() -> None:
    made = unit_sets(arches(ASKED_1_31_1), "1.31.1")
    flash, hopper, damaged = arches("80 86 89 90a 120a"), arches("90a"), arches("75 80")
    assert [meant_for(arch, made, flash) for arch in arches("75 80 120")] == [False, True, True]
    assert [meant_for(arch, made, hopper) for arch in arches("80 90 120")] == [False, True, False]
    assert all(meant_for(arch, made, damaged) for arch in arches(ASKED_1_31_1))
