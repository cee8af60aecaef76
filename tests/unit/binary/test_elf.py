"""test_elf."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import pytest

from builder.binary.elf import read_elf
from builder.binary.elf_headers import ElfError, is_elf, read_sections
from tests.support.factories.binaries import RWX, elf

LIBRARY = elf(
    {".text": b"\x90" * 40},
    soname="libdemo.so.1",
    needed=("libcudart.so.12", "libc.so.6"),
    runpath="$ORIGIN",
    versions={
        "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.9"),
        "libstdc++.so.6": ("GLIBCXX_3.4.9", "CXXABI_1.3"),
    },
    defines=("libdemo.so.1", "VERS_1.23.2"),
)


def test_all_the_loader_would_read() -> None:
    found = read_elf(LIBRARY)
    assert found.soname == "libdemo.so.1"
    assert found.needed == ("libcudart.so.12", "libc.so.6")
    assert (found.runpath, found.rpath) == ("$ORIGIN", None)
    assert (found.glibc, found.glibcxx) == ("2.17", "3.4.9")
    assert found.defines == ("libdemo.so.1", "VERS_1.23.2")
    assert not found.executable_stack


def test_a_library_that_asks_for_nothing() -> None:
    found = read_elf(elf(rpath="/opt/x"))
    assert (found.soname, found.needed, found.runpath, found.rpath) == (None, (), None, "/opt/x")
    assert (found.glibc, found.glibcxx, found.defines) == (None, None, ())


def test_sections_with_offset_and_size() -> None:
    by_name = {section.name: section for section in read_sections(LIBRARY)}
    text = by_name[".text"]
    assert LIBRARY[text.offset : text.offset + text.size] == b"\x90" * 40
    assert not by_name[".bss"].in_file


def test_only_code_is_executable() -> None:
    bad = bytearray(LIBRARY)
    at = _header_of(".text")
    struct.pack_into("<Q", bad, at + 8, 0x6)  # SHF_ALLOC and SHF_EXECINSTR
    struct.pack_into("<Q", bad, _header_of(".dynamic") + 8, 0x3)  # SHF_WRITE and SHF_ALLOC
    sections = read_sections(bytes(bad))
    assert [section.name for section in sections if section.executable] == [".text"]


@pytest.mark.parametrize(("stack", "asks"), [(6, False), (RWX, True), (1, True), (None, True)])
def test_who_asks_for_an_executable_stack(stack: int | None, asks: bool) -> None:
    """Without the header too: glibc 2.36 turned the stack to rwxp for a library that had lost it."""
    assert read_elf(elf(stack=stack)).executable_stack is asks


@pytest.mark.parametrize(
    ("place", "form", "value", "message"),
    [
        (54, "<H", 32, "no usable program headers"),
        (32, "<Q", 1 << 60, "truncated: program headers end at"),
        (56, "<H", 0xFFFF, "truncated: program headers end at"),
    ],
)
def test_program_headers_that_lie(place: int, form: str, value: int, message: str) -> None:
    bad = bytearray(LIBRARY)
    struct.pack_into(form, bad, place, value)
    with pytest.raises(ElfError, match=message):
        read_elf(bytes(bad))


def test_a_segment_past_the_end_of_the_file() -> None:
    bad = bytearray(LIBRARY)
    (program,) = struct.unpack_from("<Q", bad, 32)
    struct.pack_into("<Q", bad, program + 32, 1 << 40)
    with pytest.raises(ElfError, match="a segment ends at") as caught:
        read_elf(bytes(bad))
    assert caught.value.offset == program


@pytest.mark.parametrize("name", [".dynamic", ".gnu.version_r", ".gnu.version_d"])
def test_a_section_that_is_there_twice(name: str) -> None:
    """Thousands of headers over the same bytes would be read thousands of times."""
    kind = next(section.kind for section in read_sections(LIBRARY) if section.name == name)
    bad = bytearray(LIBRARY)
    struct.pack_into("<I", bad, _header_of(".text") + 4, kind)
    with pytest.raises(ElfError, match=f"two sections of type {kind:#x}"):
        read_elf(bytes(bad))


LONG = "x" * 2000


@pytest.mark.parametrize(
    "more",
    [
        {"sections": {f"{LONG}{number}": b"x" for number in range(600)}},
        {"needed": [LONG] * 600},
        {"versions": {"libc.so.6": [LONG] * 600}},
        {"defines": [LONG] * 600},
    ],
    ids=lambda more: next(iter(more)),
)
def test_more_names_than_any_library_has(more: dict[str, Any]) -> None:
    """Many may be one name: what they come to counts, not the string table's size."""
    read_elf(elf(needed=[LONG] * 500))
    with pytest.raises(ElfError, match="more than 1,048,576 bytes of names"):
        read_elf(elf(**more))


def test_a_dynamic_section_without_an_end() -> None:
    library = elf({".text": struct.pack("<qQ", 21, 0) * 70_000})
    at = _header_of(".dynamic", library)
    text = next(section for section in read_sections(library) if section.name == ".text")
    bad = bytearray(library)
    struct.pack_into("<QQ", bad, at + 24, text.offset, text.size)
    with pytest.raises(ElfError, match="without an end") as caught:
        read_elf(bytes(bad))
    assert caught.value.offset == text.offset


def _header_of(name: str, library: bytes = LIBRARY) -> int:
    table = int(struct.unpack_from("<Q", library, 40)[0])
    return table + 64 * [section.name for section in read_sections(library)].index(name)


@pytest.mark.parametrize(
    ("bad", "message", "offset"),
    [
        (b"", "the file is empty", 0),
        (b"#!/bin/sh\n" * 20, "not an ELF file", 0),
        (LIBRARY[:40], "truncated", 40),
        (LIBRARY[:4] + b"\x01" + LIBRARY[5:], "not a 64-bit", 4),
        (LIBRARY[:5] + b"\x02" + LIBRARY[6:], "not a little-endian", 5),
        (LIBRARY[:18] + b"\xb7\0" + LIBRARY[20:], "not for x86-64", 18),
        (LIBRARY[:60] + b"\0\0" + LIBRARY[62:], "no usable section headers", 58),
        (LIBRARY[:-100], "truncated", None),
        (LIBRARY.replace(b"libc.so.6\0", b"libc.so.6!", 1)[:-1], "truncated", None),
    ],
)
def test_what_is_no_whole_elf_file_says_where(bad: bytes, message: str, offset: int | None) -> None:
    with pytest.raises(ElfError, match=message) as caught:
        read_elf(bad)
    assert offset in (None, caught.value.offset)


def test_a_section_past_the_end_of_the_file() -> None:
    at = _header_of(".text")
    bad = bytearray(LIBRARY)
    struct.pack_into("<Q", bad, at + 32, 1 << 30)
    with pytest.raises(ElfError, match=r"section \.text ends at") as caught:
        read_elf(bytes(bad))
    assert caught.value.offset == at


def test_a_version_chain_that_overlaps_itself_ends() -> None:
    """Every word says "four bytes on": walked naively that is quadratic in the section's size."""
    good = elf(versions={"libc.so.6": ("GLIBC_2.17",) * 1000})
    versions = next(section for section in read_sections(good) if section.name == ".gnu.version_r")
    words = struct.pack("<I", 4) * (versions.size // 4 - 4) + bytes(16)
    bad = good[: versions.offset] + words + good[versions.offset + versions.size :]
    with pytest.raises(ElfError, match="symbol versions overlap"):
        read_elf(bad)


def test_a_definition_chain_that_leaves_its_section() -> None:
    definitions = next(one for one in read_sections(LIBRARY) if one.name == ".gnu.version_d")
    bad = bytearray(LIBRARY)
    struct.pack_into("<I", bad, definitions.offset + 16, 1 << 20)
    with pytest.raises(ElfError, match="run past the end") as caught:
        read_elf(bytes(bad))
    assert caught.value.offset == definitions.offset + (1 << 20)


def test_what_stands_behind_the_end_of_the_dynamic_section_is_not_read() -> None:
    library = elf(needed=("libc.so.6", "libm.so.6"))
    dynamic = next(section for section in read_sections(library) if section.name == ".dynamic")
    bad = bytearray(library)
    struct.pack_into("<qQ", bad, dynamic.offset, 0, 0)
    assert read_elf(bytes(bad)).needed == ()


def test_any_changed_byte_is_read_or_refused() -> None:
    source = random.Random(20)  # noqa: S311 - mutations that repeat
    for _ in range(3000):
        bad = bytearray(LIBRARY)
        for _ in range(source.randint(1, 4)):
            bad[source.randrange(len(bad))] = source.randrange(256)
        with suppress(ElfError):
            read_elf(bytes(bad))


def test_is_elf_looks_at_the_magic_alone() -> None:
    assert is_elf(LIBRARY)
    assert not is_elf(b"\x7fEL")
