"""Tests of hostile and unusual files: each is refused at the exact offset of its fault, or read correctly."""

from __future__ import annotations

import struct
from functools import partial

import pytest

from builder.binary.elf import read_elf
from builder.binary.elf_headers import ElfError
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import FatbinError
from tests.support.factories.binaries import (
    LZ4,
    PTX,
    SASS,
    assert_refused,
    container,
    elf,
    header_of,
    image,
    patched,
    sass,
)
from tests.support.messages import Told

BEGIN = bytes.fromhex("50ed55ba01001000")

LIBRARY = elf({".text": b"\x90" * 32, ".nv_fatbin": sass(50, 60)}, needed=("libc.so.6",))

WHERE = LIBRARY.index(BEGIN)

_refused = partial(assert_refused, read_containers, FatbinError)


def _table(data: bytes) -> int:
    return int(struct.unpack_from("<Q", data, 40)[0])


NO_ELF_FILES = {
    "zero-length": (b"", 0),
    "text": (b"#!/bin/sh\nexec true\n", 0),
    "four bytes": (b"\x7fELF", 4),
    "cut in its header": (LIBRARY[:63], 63),
    "a header alone": (LIBRARY[:64], _table(LIBRARY)),
    "cut in half": (LIBRARY[:400], _table(LIBRARY)),
    "last byte missing": (LIBRARY[:-1], _table(LIBRARY)),
    "32-bit": (patched(LIBRARY, 4, "<B", 1), 4),
    "big-endian": (patched(LIBRARY, 5, "<B", 2), 5),
    "too many section headers": (patched(LIBRARY, 60, "<H", 0xFFFF), _table(LIBRARY)),
    "no section headers": (patched(LIBRARY, 60, "<H", 0), 58),
    "a table of headers that wraps round": (patched(LIBRARY, 40, "<Q", 2**64 - 64), 2**64 - 64),
}
"""By fault: data, and the fault's offset."""


@pytest.mark.parametrize("machine", [21, 243, 4137])
def test_a_library_for_any_processor_is_read(machine: int) -> None:
    """POWER, which CUDA supported, RISC-V, and MindSpore's objects for Ascend."""
    data = patched(LIBRARY, 18, "<H", machine)
    assert read_elf(data).machine == f"machine {machine}"
    assert read_containers(data) == read_containers(LIBRARY)


@pytest.mark.parametrize("name", NO_ELF_FILES)
def test_no_whole_elf_file(name: str, told: Told) -> None:
    data, offset = NO_ELF_FILES[name]
    for read in (read_containers, read_elf):
        with pytest.raises(ElfError) as caught:
            read(data)
        assert caught.value.offset == offset
        told(caught.value)


ONE, TWO = sass(50), sass(60)

LONG_WAY = 2**64 - 64 - 24
"""Payload size for which, in 64 bits, the next image would be the same image again."""

NO_CONTAINERS = {
    "one byte short": (ONE[:-1], 0),
    "a header alone": (ONE[:16], 0),
    "cut in its header": (ONE + TWO[:12], 104),
    "a size that runs past the end": (patched(ONE, 8, "<Q", 1 << 40), 0),
    "a size that leads back": (patched(ONE, 8, "<Q", 2**64 - 16), 0),
    "a container over the next one": (patched(ONE, 8, "<Q", 88 + len(TWO)) + TWO, 104),
    "a container that ends within its image": (patched(ONE, 8, "<Q", 80) + TWO, 16),
    "a container within an image": (container(image(SASS, 50, payload=24), image(SASS, 60)[:63]), 104),
    "an image that is its own successor": (patched(ONE, 16 + 8, "<Q", LONG_WAY), 16),
    "an image without a header": (patched(ONE, 16 + 4, "<I", 0), 16),
    "an image over the next one": (
        container(patched(image(SASS, 50), 8, "<Q", 24 + 8), image(SASS, 60)),
        16 + 64 + 32,
    ),
    "a packed image longer than its payload": (container(image(PTX, 90, LZ4, payload=24, packed=25)), 16),
}
"""By fault: data, and the fault's offset in the data."""


def _fault(data: bytes) -> FatbinError:
    with pytest.raises(FatbinError) as caught:
        read_containers(data)
    return caught.value


@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin", ".ldata", ".rodata"])
@pytest.mark.parametrize("name", NO_CONTAINERS)
def test_no_whole_container_in_a_section(name: str, section: str) -> None:
    data, offset = NO_CONTAINERS[name]
    library = elf({".data": b"just before it..", section: data})
    inside, bare = _fault(library), _fault(data)
    assert inside.offset == library.index(BEGIN) + offset
    said = str(bare).replace("the file", f"section {section}").replace(f"{offset:#x}", f"{inside.offset:#x}")
    assert str(inside) == said


@pytest.mark.parametrize("name", NO_CONTAINERS)
def test_no_whole_container_in_a_bare_fatbin(name: str, told: Told) -> None:
    data, offset = NO_CONTAINERS[name]
    assert _fault(data).offset == offset
    told(_fault(data))


def test_the_first_eight_bytes_alone() -> None:
    _refused(BEGIN, "a container's header runs past the end of the file", 0)
    _refused(BEGIN + bytes(8), "a container of size zero", 0)


@pytest.mark.parametrize(
    "data",
    [
        BEGIN[:4] + bytes(60),
        BEGIN[:4] + bytes.fromhex("02001000") + b"\xff" * 56,
        BEGIN[:4] + bytes.fromhex("01001800") + b"\xff" * 56,
        b"\xff" + BEGIN + b"\xff" * 55,
        b"\xff" * 4 + BEGIN + b"\xff" * 52,
        BEGIN + bytes(8) + b"\xff" * 48,
    ],
    ids=["magic", "version 2", "another header", "at an odd byte", "at a multiple of four", "empty"],
)
def test_a_magic_that_is_no_container_s(data: bytes) -> None:
    assert read_containers(elf({".rodata": data, ".data": data})) == ()


def test_what_begins_like_a_container_but_is_none_is_refused_outside_machine_code() -> None:
    library = elf({".rodata": b"\xff" * 8 + BEGIN + struct.pack("<Q", 64) + bytes(64)})
    _refused(library, "unknown image version 0x0000 with a header of 0 bytes", library.index(BEGIN) + 16)


def test_a_fatbin_section_that_two_headers_name_is_not_counted_twice() -> None:
    library = elf({".nv_fatbin": sass(50), "__nv_relfatbin": sass(60)})
    where = library.index(BEGIN)
    place = header_of(library, "__nv_relfatbin") + 24
    changed = patched(library, place, "<QQ", where, len(sass(50)))
    _refused(changed, "section __nv_relfatbin overlaps the one before it", where)


def test_containers_that_two_other_sections_share_are_read_once() -> None:
    library = elf({".data": sass(50) + sass(60), ".ldata": bytes(208)})
    place = header_of(library, ".ldata") + 24
    changed = patched(library, place, "<QQ", library.index(BEGIN), 208)
    assert [found.section for found in read_containers(changed)] == [".data", ".data"]


def test_a_section_that_runs_past_the_end_of_the_file() -> None:
    at = header_of(LIBRARY, ".nv_fatbin")
    for size in (1 << 40, 2**64 - WHERE):
        changed = patched(LIBRARY, at + 32, "<Q", size)
        message = f"truncated: section .nv_fatbin ends at {WHERE + size:,}, the file at {len(LIBRARY):,}"
        for read in (read_containers, read_elf):
            assert_refused(read, ElfError, changed, message, at)


def test_a_fatbin_section_that_claims_the_whole_file() -> None:
    changed = patched(LIBRARY, header_of(LIBRARY, ".nv_fatbin") + 24, "<QQ", 0, len(LIBRARY))
    _refused(changed, "no container where one must begin: magic 0x464c457f", 0)
