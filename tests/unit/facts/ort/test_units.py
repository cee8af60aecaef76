"""Tests of kinds of units. Expected values: official wheels' containers, counted; ORT's source filters, read.

The devices that launch a unit are transcribed from ORT 1.21.0's sources, not computed.
"""

import pytest

from builder.facts.gpu.architectures import Arch
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.units import (
    UnitSet,
    cmake_list,
    compiled_launches,
    explained_by,
    left_out,
    meant_for,
    observed_unit_sets,
    shared_ptx,
    unit_sets,
)
from tests.support.factories.unit_counts import FULL, FULL_LEGACY
from tests.support.messages import Told
from tests.support.tables import table

READ = rules_for("1.21.0")

WHEEL_1_31_1 = ("75 80 86 89 90a 120a", "80 86 89 90a 120a", "90a", "120a")
"""SASS of the 609 containers in onnxruntime-gpu 1.31.1's provider: of 217, 91, 292 and 9 of them."""

ASKED_1_31_1 = "75 80 86 89 90 120"


def arches(text: str) -> tuple[Arch, ...]:
    return tuple(Arch.parse(word) for word in text.split())


def sets(sm: str, version: str) -> tuple[UnitSet, ...]:
    rules = rules_for(version)
    return unit_sets(rules.read_list(cmake_list(arches(sm))).sass, rules)


def test_every_container_of_the_official_provider_is_explained(told: Told) -> None:
    made = sets(ASKED_1_31_1, "1.31.1")
    for held in WHEEL_1_31_1:
        told(f"{held}: {explained_by(arches(held), made)[0].name}")
    assert {" ".join(map(str, sorted(kind.sass))) for kind in made} == set(WHEEL_1_31_1)


@pytest.mark.parametrize("held", ["75 80 86 89 90a", "75 86 89 90a 120a", "80", "90", "120a 90a", ""])
def test_a_container_that_lost_an_architecture_is_not_explained(held: str) -> None:
    assert explained_by(arches(held), sets(ASKED_1_31_1, "1.31.1")) == ()


def held(counts: dict[str, int]) -> list[frozenset[Arch]]:
    return [frozenset(arches(text)) for text, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize("sm", FULL)
def test_our_full_builds_of_1_21_are_explained_container_by_container(sm: str) -> None:
    containers = held(FULL[sm])
    made = observed_unit_sets(containers, "1.21.0")
    assert all(explained_by(one, made) for one in containers)
    assert not explained_by(arches("90"), made)


@pytest.mark.parametrize("lost", ["50 52 60 61", "70", "50", "50 52 60 70", "52 60 61 70"])
def test_one_container_that_lost_an_architecture_makes_every_part_a_gap(lost: str) -> None:
    damaged = {**FULL_LEGACY, "50 52 60 61 70": 145, lost: FULL_LEGACY.get(lost, 0) + 1}
    made = observed_unit_sets(held(damaged), "1.21.0")
    assert meant_for(Arch(5, 2), made, arches(lost))
    assert meant_for(Arch(7, 0), made, arches(lost))
    assert not explained_by(arches(lost), made)


def test_a_turing_card_is_not_served_by_volta_s_code_where_orts_dispatch_asks_for_turing_s() -> None:
    """sm_70 runs on 7.5, but ORT launches memory-efficient attention's fmha_sm75.cu there, which
    is missing."""
    made = observed_unit_sets(held(FULL_LEGACY), "1.21.0")
    meant = {sass: meant_for(Arch(7, 5), made, arches(sass)) for sass in FULL_LEGACY}
    assert meant == {"50 52 60 61 70": False, "50 52 60 61": False, "70": True, "50": True}
    volta = {sass: meant_for(Arch(7, 0), made, arches(sass)) for sass in FULL_LEGACY}
    assert volta == {"50 52 60 61 70": True, "50 52 60 61": False, "70": True, "50": False}


@pytest.mark.parametrize(
    ("sm", "version"),
    [("50 60 70", "1.31.1"), ("75 80 86", "1.28.0"), ("70 75 120", "1.27.1"), ("70 75 120", "1.28.0")],
)
def test_kinds_of_units(sm: str, version: str, told: Told) -> None:
    told("\n".join(map(str, sets(sm, version))))


def test_what_a_container_was_meant_for() -> None:
    made = sets(ASKED_1_31_1, "1.31.1")
    flash, hopper, damaged = arches("80 86 89 90a 120a"), arches("90a"), arches("75 80")
    assert [meant_for(arch, made, flash) for arch in arches("75 80 120")] == [False, True, True]
    assert [meant_for(arch, made, hopper) for arch in arches("80 90 120")] == [False, True, False]
    assert all(meant_for(arch, made, damaged) for arch in arches(ASKED_1_31_1))


DEVICES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121)


def capable(*numbers: int) -> tuple[Arch, ...]:
    return tuple(Arch(number // 10, number % 10) for number in numbers)


def test_units_are_launched_on_what_the_sources_ask_for() -> None:
    read = READ.launches
    found = {launch.name: {arch.number for arch in launch.launched(capable(*DEVICES))} for launch in read}
    assert found == {name: set(map(int, numbers.split())) for name, numbers in table("ort/launches.txt")}


@pytest.mark.parametrize("sm", FULL)
def test_sets_of_three_variants(sm: str, told: Told) -> None:
    whole = frozenset(arches(sm))
    parts = [(launch, part) for launch, part in compiled_launches(whole, READ) if part != whole]
    told("\n".join(f"{launch.name}: {' '.join(map(str, sorted(part)))}" for launch, part in parts))


def test_units_without_which_nothing_is_lost() -> None:
    both = ["flash attention", "lean attention"]
    assert [launch.name for launch in left_out(capable(50, 61, 75), READ)] == both
    assert [launch.name for launch in left_out(capable(100, 120), READ)] == both
    assert left_out(capable(75, 80), READ) == ()


@pytest.mark.parametrize("version", ["1.20.1", "1.22.2", "1.23.2", "1.31.1"])
def test_nothing_is_left_out_of_releases_that_were_not_read(version: str) -> None:
    sm, rules = capable(50, 52, 61, 100), rules_for(version)
    assert (rules.launches, [*compiled_launches(sm, rules)], left_out(sm, rules)) == ((), [], ())
    assert (rules.without_device_code, shared_ptx(sm, rules)) == ((), {})


def test_ptx_is_shared_within_a_set_that_holds_both() -> None:
    def pairs(*numbers: int) -> list[tuple[int, int]]:
        return [(new.number, old.number) for new, old in shared_ptx(capable(*numbers), READ).items()]

    assert pairs(50, 52, 60, 61, 70) == [(52, 50), (61, 60)]
    assert pairs(52, 61, 70) == []
    assert pairs(60, 61, 80, 86, 89, 90, 100, 120) == [(61, 60)]


def test_flash_and_lean_attention_are_made_from_one_ptx_from_ampere_to_hopper() -> None:
    """So ``modern`` and ``latest``, without an architecture in common, share their most expensive pieces."""
    flash, lean, experts = (READ.launches[place] for place in (0, 1, -1))
    for attention in (flash, lean):
        assert shared_ptx(capable(80), READ, attention) == {}
        assert shared_ptx(capable(80, 86), READ, attention) == {Arch(8, 6): Arch(8, 0)}
        assert shared_ptx(capable(89, 90), READ, attention) == dict.fromkeys(capable(89, 90), Arch(8, 0))
        assert shared_ptx(capable(80, 89), rules_for("1.23.0"), attention) == {}
    assert shared_ptx(capable(89, 90), READ, experts) == {}


def test_flash_attention_s_sass_for_8_0_serves_8_6_where_the_set_has_it() -> None:
    flash, lean, *_ = READ.launches
    assert flash.compiled(capable(75, 80, 86)) == {Arch(8, 0)}
    assert flash.compiled(capable(75, 86)) == {Arch(8, 6)}
    assert flash.compiled((Arch(8, 0, "a"), Arch(8, 6))) == {Arch(8, 0, "a"), Arch(8, 6)}
    assert lean.compiled(capable(75, 80, 86)) == set(capable(80, 86))
