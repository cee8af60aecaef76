"""Tests of providers of ORT 1.27 and newer, in which some units are compiled for part of the list.

The containers are those of the official wheel 1.31.1: of 609, 217 hold all of 75 80 86 89 90a 120a, 91 lack
75, 292 hold 90a alone and 9 hold 120a alone.
"""

from __future__ import annotations

import pytest

from builder.binary.coverage import Support, cover
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, Kind
from builder.config.variants import Variant
from builder.contents.rules.device_code import check_provider
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.units import expected_unit_sets, observed_unit_sets
from builder.finding import Severity
from tests.support.factories.binaries import BLACKWELL, SASS, A, container, elf, image

WHOLE = "75 80 86 89 90a 120a"

OFFICIAL = (WHOLE, WHOLE, "80 86 89 90a 120a", "90a", "90a", "90a", "120a")

PATH = "lib/libonnxruntime_providers_cuda.so"

VARIANT = Variant(name="v", sm=tuple(map(Arch.parse, ["75", "80", "86", "89", "90", "120"])), generations=())


def _unit(arches: str) -> bytes:
    parsed = map(Arch.parse, arches.split())
    return container(*(image(SASS, one.number, (A if one.suffix else 0) | BLACKWELL) for one in parsed))


def _provider(*units: str) -> tuple[Container, ...]:
    return read_containers(elf({".nv_fatbin": b"".join(map(_unit, units))}))


def _support(containers: tuple[Container, ...], version: str, device: str) -> Support:
    unit_sets = observed_unit_sets((one.arches(Kind.SASS) for one in containers), version)
    found = cover(PATH, containers, specialised=False, unit_sets=unit_sets)
    assert found is not None
    return found.support[Capability.parse(device)]


def _codes(containers: tuple[Container, ...], version: str | None) -> list[str]:
    return [one.code.name for one in check_provider(PATH, containers, VARIANT, Severity.WARNING, version)]


@pytest.mark.parametrize("device", ["7.5", "8.0", "8.6", "8.8", "8.9", "9.0", "12.0"])
def test_units_for_one_architecture_are_no_gap_of_the_others(device: str) -> None:
    """8.8 has no gap either: no unit is compiled for 8.8, which runs the code for 8.6."""
    assert _support(_provider(*OFFICIAL), "1.31.1", device) is Support.NATIVE


@pytest.mark.parametrize("device", ["7.0", "10.0", "12.1"])
def test_what_no_unit_is_compiled_for_has_nothing(device: str) -> None:
    assert _support(_provider(*OFFICIAL), "1.31.1", device) is Support.NONE


def test_before_units_were_split_the_same_containers_have_gaps() -> None:
    assert _support(_provider(*OFFICIAL), "1.26.0", "8.6") is Support.PARTIAL


def test_a_unit_that_lost_an_architecture_is_a_gap_still() -> None:
    damaged = _provider(*OFFICIAL, "75 80 86 89 90a")
    assert _support(damaged, "1.31.1", "12.0") is Support.PARTIAL
    assert _codes(damaged, "1.31.1") == ["A005"]


def test_the_check_takes_split_units_for_whole_from_their_version_on() -> None:
    assert _codes(_provider(*OFFICIAL), "1.31.1") == []
    assert _codes(_provider(*OFFICIAL), "1.26.0") == ["A005"] * 6
    assert _codes(_provider(*OFFICIAL), None) == ["A005"] * 6  # no version in its bytes


def test_units_of_one_kind_alone_are_no_provider() -> None:
    assert _codes(_provider("90a", "90a"), "1.31.1") == ["A001"] * 5  # all but 90


def test_a_set_that_orts_cmake_refuses_is_judged_strictly() -> None:
    assert expected_unit_sets((Arch.parse("120f"),), "1.23.2", ()) == ()
    assert expected_unit_sets((Arch.parse("75"), Arch.parse("90")), "1.26.0", ()) == ()


def test_no_container_makes_no_kind() -> None:
    assert observed_unit_sets((), "1.31.1") == ()


LEGACY_1_21 = ("50 52 60 61 70",) * 3 + ("50 52 60 61",) + ("70",) * 5 + ("50",) * 2
"""Containers of a full build of 1.21.0 for legacy: three units for the whole list and all that
are for part of it."""


@pytest.mark.parametrize("device", ["5.0", "5.2", "6.1", "7.0", "7.5", "8.6"])
def test_a_full_build_for_legacy_serves_its_own_cards_and_turing_in_part(device: str) -> None:
    """7.5 is served by sm_70, except fmha_sm75.cu, which ORT launches there."""
    wanted = {"7.5": Support.PARTIAL, "8.6": Support.NONE}.get(device, Support.NATIVE)
    assert _support(_provider(*LEGACY_1_21), "1.21.0", device) is wanted
