"""Tests of relocatable device code: a device link's result is judged instead of its inputs, as drivers do."""

from __future__ import annotations

import struct

import pytest

from builder.binary.coverage import LibraryCoverage, cover
from builder.binary.fatbin import read_containers
from builder.binary.library import read_library
from builder.contents.cuobjdump import count_images
from builder.facts.gpu.architectures import Arch, Capability
from tests.support.factories.binaries import (
    LTOIR,
    PTX,
    SASS,
    container,
    elf,
    empty_cubin,
    image,
    patched,
    relocatable,
    sass,
)

INPUT = container(image(SASS, 70), image(SASS, 80), image(PTX, 90))


def _covered(library: bytes) -> LibraryCoverage:
    found = cover("lib/libx.so", read_containers(library), specialised=False)
    assert found is not None
    return found


def _on(found: LibraryCoverage, *devices: str) -> list[str]:
    return [found.support[Capability.parse(device)].value for device in devices]


@pytest.mark.parametrize("relocated", [True, False])
def test_the_linked_container_is_told_by_its_wrapper(relocated: bool) -> None:
    found = read_containers(relocatable(sass(70, 80), INPUT, relocated=relocated))
    assert [(one.section, one.linked) for one in found] == [
        ("__nv_relfatbin", False),
        (".nv_fatbin", False),
        (".nv_fatbin", True),
    ]


def test_what_is_linked_is_judged_and_else_the_inputs_compiled_and_linked_anew() -> None:
    """bitsandbytes for CUDA 11.8 to 12.6 has PTX for 9.0 in each input and none in the linked image."""
    found = _covered(relocatable(sass(70, 80), INPUT, INPUT, beside=INPUT))
    assert (found.containers, found.link_inputs) == (4, 2)
    assert _on(found, "7.0", "8.6", "9.0", "12.0") == ["native", "native", "jit", "jit"]
    assert _on(found, "5.0", "6.1") == ["none", "none"]
    tally = found.tally[Capability(12, 0)]
    assert (tally.native, tally.jit, tally.none) == (0, 2, 0)


def test_an_input_without_ptx_is_in_the_way_of_a_link() -> None:
    """The link fails if an input has neither PTX nor a cubin for the GPU (nvcc's manual)."""
    served = _covered(relocatable(sass(70), INPUT, sass(90)))
    refused = _covered(relocatable(sass(70), INPUT, sass(80)))
    assert [one.tally[Capability(9, 0)].jit for one in (served, refused)] == [1, 0]


def test_no_driver_links_inputs_of_lto_ir() -> None:
    """``nvcc -rdc=true -dlto`` leaves LTO IR alone in an input, and an empty cubin is in nobody's way."""
    lto, nothing = container(image(LTOIR, 80)), container(empty_cubin(80))
    for inputs in ([lto], [lto, INPUT]):
        found = _covered(relocatable(sass(80), *inputs, beside=INPUT))
        assert _on(found, "8.0", "5.0") == ["native", "none"]
        assert found.tally[Capability(9, 0)].jit == 1, "the other unit"
    assert _covered(relocatable(sass(80), nothing, INPUT)).tally[Capability(9, 0)].jit == 1


def test_inputs_that_lack_a_gpu_take_nothing_from_what_is_linked() -> None:
    """TensorFlow's framework links SASS for 6.0 to 8.9, while most of its inputs have SASS for 9.0 only."""
    found = _covered(relocatable(sass(60, 70, 80), INPUT, sass(90), beside=sass(60, 70, 80)))
    assert _on(found, "6.0", "7.5", "8.9", "5.0") == ["native", "native", "native", "none"]


def test_without_a_link_each_container_stands_for_itself() -> None:
    found = _covered(elf({"__nv_relfatbin": sass(80), ".nv_fatbin": sass(70, 80)}))
    assert (found.link_inputs, _on(found, "8.0", "7.0")) == (0, ["native", "partial"])


def test_cuobjdump_lists_link_inputs_only_where_nothing_else_is() -> None:
    both = read_containers(relocatable(sass(70), sass(90)))
    assert count_images(both).sass == {Arch(5, 0): 1, Arch(7, 0): 1}
    inputs = read_containers(elf({"__nv_relfatbin": sass(90), ".ldata": sass(80)}))
    assert count_images(inputs).sass == {Arch(9, 0): 1}


DAMAGES = {"version": ("<I", 4, 3), "magic": ("<I", 0, 0), "pointer": ("<Q", 8, 1 << 63)}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_wrapper_that_says_something_else_links_nothing(damage: str) -> None:
    library = relocatable(sass(70), INPUT, relocated=False)
    at = library.index(struct.pack("<II", 0x466243B1, 2))
    form, place, value = DAMAGES[damage]
    damaged = patched(library, at + place, form, value)
    assert not any(one.linked for one in read_containers(damaged))
    assert read_library("lib/libx.so", damaged).problem is None
