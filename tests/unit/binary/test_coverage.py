"""Tests of coverage from device code: a GPU runs it natively, by JIT, in part, or not at all.

A device link's result is judged instead of its inputs, as drivers do.
"""

import struct

import pytest

from builder.binary.coverage import (
    ContainerTally,
    LibraryCoverage,
    Support,
    combine,
    cover,
    lacking,
    promised_by,
)
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container
from builder.binary.library import read_library
from builder.contents.cuobjdump import count_images
from builder.facts.gpu.architectures import Arch, Capability
from tests.support import present
from tests.support.factories.binaries import (
    BLACKWELL,
    LTOIR,
    LZ4,
    PTX,
    SASS,
    ZSTD,
    A,
    F,
    container,
    elf,
    empty_cubin,
    image,
    patched,
    relocatable,
    sass,
)
from tests.support.factories.libraries import covered
from tests.support.tables import table


def _containers(*raw: bytes) -> tuple[Container, ...]:
    return read_containers(elf({".nv_fatbin": b"".join(raw)}))


WITH_PTX = container(image(SASS, 80), image(PTX, 90))

EXACT = container(image(SASS, 90, A), image(SASS, 100, A | BLACKWELL), image(SASS, 120, A | BLACKWELL))

SPECIALISED = [sass(80, 86), sass(89), sass(100), container(image(SASS, 50), image(PTX, 52))]


def _with(found: LibraryCoverage, support: str, devices: str) -> list[str]:
    """Return those of the devices that have this support."""
    return [one for one in devices.split() if found.support[Capability.parse(one)].value == support]


@pytest.mark.parametrize(
    ("containers", "support"),
    [
        ([sass(75, 80, 86)] * 183 + [sass(75, 80)], {"native": "7.5 8.0 8.6 8.9"}),
        ([sass(75, 80, 86)] * 183 + [sass(80, 86)], {"native": "8.0 8.6", "partial": "7.5"}),
        ([WITH_PTX, WITH_PTX], {"native": "8.0", "jit": "9.0 12.1", "none": "7.5"}),
        ([WITH_PTX, sass(80)], {"native": "8.0", "partial": "9.0 12.1"}),
        ([EXACT], {"native": "9.0 10.0 12.0", "none": "10.3 12.1"}),
        ([container(image(SASS, 120, F | BLACKWELL))], {"native": "12.0 12.1"}),
        (SPECIALISED, {"partial": "8.0"}),
    ],
    ids=["one lacks 8.6", "one lacks 7.5", "PTX", "PTX in one", "suffix a", "suffix f", "specialised"],
)
def test_a_gpu_is_served_by_every_container(containers: list[bytes], support: dict[str, str]) -> None:
    found = covered(*containers)
    assert {how: " ".join(_with(found, how, devices)) for how, devices in support.items()} == support


def test_a_library_of_specialised_containers_is_native_where_one_is() -> None:
    """libcublasLt 12.9 has this form: containers for one architecture each, one with PTX of compute_52."""
    support = {"native": "5.0 8.6 8.9 10.0 10.3", "partial": "9.0 11.0 12.0"}
    found = covered(*SPECIALISED, specialised=True)
    assert {how: " ".join(_with(found, how, devices)) for how, devices in support.items()} == support


def test_zstd_counts_only_where_an_old_driver_would_meet_it() -> None:
    newer = container(image(SASS, 80, LZ4), image(SASS, 100, ZSTD | BLACKWELL), image(PTX, 120, ZSTD))
    assert [covered(one).zstd for one in (newer, container(image(SASS, 80, ZSTD)))] == [False, True]


def test_a_library_with_nothing_to_run_does_not_drag_a_package_down() -> None:
    """libcufftw 11.4 has this form: one unit without kernels."""
    empty = covered(container(empty_cubin(52)), path="lib/libcufftw.so.11")
    assert (empty.containers, empty.nothing_to_run) == (1, 1)
    assert set(empty.support.values()) == {Support.NONE}
    assert combine([covered(sass(75)), empty])[Capability(7, 5)] is Support.NATIVE


def test_the_tally_is_in_containers() -> None:
    """Counted by hand for 8.6: one native unit, one by JIT, one without code; LTO IR is not counted."""
    found = covered(
        sass(80), container(image(SASS, 75), image(PTX, 75)), sass(90), container(image(LTOIR, 50))
    )
    assert found.tally[Capability(8, 6)] == ContainerTally(native=1, jit=1, none=1)
    assert (found.containers, found.nothing_to_run, [str(arch) for arch in found.ltoir]) == (4, 1, ["50"])
    assert found.support[Capability(8, 6)] is Support.PARTIAL
    assert found.tally[Capability(9, 0)] == ContainerTally(native=1, jit=1, none=1)
    alike = covered(sass(80), sass(75, 80), sass(90))
    assert alike.tally[Capability(8, 0)] == ContainerTally(native=2, jit=0, none=1)


@pytest.mark.parametrize(("held", "asked", "widen", "answer"), table("gpus/standing.txt"))
def test_what_stands_for_an_architecture(held: str, asked: str, widen: str, answer: str) -> None:
    suffixes = {"": 0, "a": A, "f": F}
    arches = map(Arch.parse, held.split())
    containers = _containers(container(*(image(SASS, one.number, suffixes[one.suffix]) for one in arches)))
    lacks = lacking(containers, Arch.parse(asked), widen=widen == "widen")
    assert lacks == (containers if answer == "lacks" else ())


def test_a_gpu_that_nvidia_does_not_list_counts_where_the_bytes_name_it() -> None:
    rubin = Capability.parse("10.7")
    blackwell, both = covered(sass(100)), covered(container(image(SASS, 100), image(SASS, 107)))
    assert rubin not in combine([blackwell])
    assert combine([blackwell, both])[rubin] is Support.NATIVE
    assert combine([covered(sass(90)), both])[rubin] is Support.NONE


def test_an_unlisted_gpu_is_promised_by_its_own_number_only() -> None:
    assert promised_by(Arch.parse("86")) == (Capability(8, 6),)

    def promised(arch: str, *, widen: bool = False) -> str:
        return " ".join(map(str, promised_by(Arch.parse(arch), widen=widen)))

    assert (promised("107"), promised("107a"), promised("107f")) == ("10.7", "10.7", "10.7")
    assert (promised("100f"), promised("103", widen=True)) == ("10.0 10.3", "10.3")
    assert (promised("88"), promised("86", widen=True)) == ("8.8", "8.6 8.9")


INPUT = container(image(SASS, 70), image(SASS, 80), image(PTX, 90))


def _covered(library: bytes) -> LibraryCoverage:
    return present(cover("lib/libx.so", read_containers(library), specialised=False))


def _on(found: LibraryCoverage, *devices: str) -> list[str]:
    return [found.support[Capability.parse(device)].value for device in devices]


@pytest.mark.parametrize("relocated", [True, False])
def test_the_linked_container_is_told_by_its_wrapper(relocated: bool) -> None:
    found = read_containers(relocatable(sass(70, 80), INPUT, relocated=relocated))
    assert [one.section for one in found] == ["__nv_relfatbin", ".nv_fatbin", ".nv_fatbin"]
    assert [one.linked for one in found] == [False, False, True]


def test_what_is_linked_is_judged_and_else_the_inputs_compiled_and_linked_anew() -> None:
    """bitsandbytes for CUDA 11.8 to 12.6 has PTX for 9.0 in each input and none in the linked image."""
    found = _covered(relocatable(sass(70, 80), INPUT, INPUT, beside=INPUT))
    assert (found.containers, found.link_inputs) == (4, 2)
    assert _on(found, "7.0", "8.6", "9.0", "12.0") == ["native", "native", "jit", "jit"]
    assert _on(found, "5.0", "6.1") == ["none", "none"]
    assert found.tally[Capability(12, 0)] == ContainerTally(native=0, jit=2, none=0)


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
