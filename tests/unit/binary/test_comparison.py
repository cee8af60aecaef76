"""Tests of pairing the libraries of two sources, and of the change for each GPU."""

from dataclasses import replace

import pytest

from builder.binary.comparison import Effect, compare
from builder.binary.library import Inspected
from builder.facts.gpu.architectures import Capability
from tests.support.factories.binaries import PTX, container, image, sass
from tests.support.factories.libraries import PLAIN, covered
from tests.support.messages import Told
from tests.support.tables import table


def library(name: str, *arches: int, machine: str = "x86-64") -> Inspected:
    return Inspected(name=name, coverage=covered(sass(*arches)), machine=machine, size=1000)


@pytest.mark.parametrize("row", table("libraries/pairs.txt"), ids=lambda row: row[0])
def test_libraries_are_paired_by_what_they_are(row: list[str], told: Told) -> None:
    old, new = ([library(name, 75) for name in names.split()] for names in row[1:])
    pairs = compare(old, new).pairs
    told("\n".join(f"{one.old and one.old.name} → {one.new and one.new.name}" for one in pairs))


SIDES = {
    "JIT": Inspected(name="lib", coverage=covered(container(image(PTX, 75)))),
    "PART": Inspected(name="lib", coverage=covered(sass(86), sass(80))),
    "none": replace(PLAIN, name="lib"),
    **{arch: library("lib", int(arch)) for arch in ("60", "75", "80", "86", "90")},
}


@pytest.mark.parametrize(("old", "new", "device", "effect"), table("libraries/effects.txt"))
def test_what_became_of_a_gpu(old: str, new: str, device: str, effect: str) -> None:
    found = compare([SIDES[old]], [SIDES[new]])
    (pair,) = found.pairs
    for changes in (found.changes, pair.changes(found.gpus)):
        assert changes[Capability.parse(device)].effect is Effect[effect]


def test_where_neither_has_code_nothing_changed() -> None:
    assert compare([PLAIN], [PLAIN]).changes == {}


def test_what_cannot_be_read_in_one_source_counts_in_neither() -> None:
    """Defect: GPUs were lost or won by a library that was damaged in one of the sources."""
    broken = Inspected(name="lib", problem="cut short")
    assert compare([library("lib", 75)], [broken]).changes == {}
    worst, other = library("lib", 60), library("other", 60, 75)
    found = compare([worst, other], [broken, other])
    assert found.read == ([other], [other])
    assert {change.effect for change in found.changes.values()} == {Effect.SAME}


def test_gpus_of_arm_machines_are_compared_where_both_are_for_arm() -> None:
    arm, intel = library("lib", 87, machine="aarch64"), library("lib", 86)
    assert Capability(8, 7) in compare([arm], [arm]).changes
    assert Capability(8, 7) not in compare([arm], [intel]).changes
    assert Capability(8, 7) not in compare([intel], [arm]).changes
