"""Tests of pairing the libraries of two sources, and of the change for each GPU."""

from dataclasses import replace

import pytest

from builder.binary.comparison import Effect, compare
from builder.binary.library import Inspected
from builder.facts.gpu.architectures import Capability
from tests.support.factories.binaries import PTX, container, image, sass
from tests.support.factories.libraries import PLAIN, covered
from tests.support.messages import Told


def library(name: str, *arches: int, machine: str = "x86-64") -> Inspected:
    return Inspected(name=name, coverage=covered(sass(*arches)), machine=machine, size=1000)


PAIRED = {
    "same": ("a/libx.so", "a/libx.so"),
    "moved": ("onnxruntime/capi/libx.so", "lib/libx.so"),
    "new version": ("libcudnn_ops.so.8", "libcudnn_ops.so.9"),
    "auditwheel's hash": ("libcudart-9335f6a2.so.11.0", "libcudart-1a2b3c4d.so.12"),
    "other Python": ("_C.cpython-310.so", "_C.cpython-312.so"),
    "a file a CUDA": ("libx_cuda118.so", "libx_cuda128.so"),
    "one left": ("a/libx.so.1 b/libx.so.1", "b/libx.so.1 c/libx.so.2"),
    "two": ("a/libx.so b/libx.so", "c/libx.so"),
}
"""Names of libraries in the old and in the new source."""


@pytest.mark.parametrize("how", PAIRED)
def test_libraries_are_paired_by_what_they_are(how: str, told: Told) -> None:
    old, new = ([library(name, 75) for name in names.split()] for names in PAIRED[how])
    pairs = compare(old, new).pairs
    told("\n".join(f"{one.old and one.old.name} → {one.new and one.new.name}" for one in pairs))


JIT = Inspected(name="lib", coverage=covered(container(image(PTX, 75))))

PARTIAL = Inspected(name="lib", coverage=covered(sass(86), sass(80)))
"""A library with code for 8.0 in one of two containers; 8.6 runs both, by its own code and by sm_80."""


@pytest.mark.parametrize(
    ("old", "new", "device", "effect"),
    [
        (library("lib", 60), library("lib", 75), "6.0", Effect.LOST),
        (library("lib", 75), library("lib", 60), "6.0", Effect.WON),
        (library("lib", 86), JIT, "8.6", Effect.WORSE),
        (JIT, library("lib", 86), "8.6", Effect.BETTER),
        (library("lib", 80), PARTIAL, "8.0", Effect.LOST),
        (PARTIAL, library("lib", 90), "8.0", Effect.WORSE),
        (library("lib", 80), library("lib", 86), "8.6", Effect.SAME),
        (library("lib", 80), replace(PLAIN, name="lib"), "8.0", Effect.LOST),
    ],
)
def test_what_became_of_a_gpu(old: Inspected, new: Inspected, device: str, effect: Effect) -> None:
    found = compare([old], [new])
    (pair,) = found.pairs
    assert found.changes[Capability.parse(device)].effect is effect
    assert pair.changes(found.gpus)[Capability.parse(device)].effect is effect


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
