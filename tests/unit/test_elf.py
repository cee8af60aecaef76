from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest

from builder.core.elf import ElfError, is_elf, read_elf, read_sections
from tests.binaries import elf

LIBRARY = elf(
    {".text": b"\x90" * 40},
    soname="libdemo.so.1",
    needed=("libcudart.so.12", "libc.so.6"),
    runpath="$ORIGIN",
    versions={
        "libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.9"),
        "libstdc++.so.6": ("GLIBCXX_3.4.9", "CXXABI_1.3"),
    },
)


def test_all_the_loader_would_read() -> None:
    found = read_elf(LIBRARY)
    assert found.soname == "libdemo.so.1"
    assert found.needed == ("libcudart.so.12", "libc.so.6")
    assert (found.runpath, found.rpath) == ("$ORIGIN", None)
    assert (found.glibc, found.glibcxx) == ("2.17", "3.4.9")


def test_a_library_that_asks_for_nothing() -> None:
    found = read_elf(elf(rpath="/opt/x"))
    assert (found.soname, found.needed, found.runpath, found.rpath) == (None, (), None, "/opt/x")
    assert (found.glibc, found.glibcxx) == (None, None)


def test_sections_with_offset_and_size() -> None:
    by_name = {section.name: section for section in read_sections(LIBRARY)}
    text = by_name[".text"]
    assert LIBRARY[text.offset : text.offset + text.size] == b"\x90" * 40
    assert not by_name[".bss"].in_file


def test_the_same_from_a_memoryview() -> None:
    assert read_elf(memoryview(LIBRARY)) == read_elf(LIBRARY)


@pytest.mark.parametrize(
    ("bad", "message", "offset"),
    [
        (b"", "not an ELF file", 0),
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
    shoff, count = struct.unpack_from("<Q", LIBRARY, 40)[0], struct.unpack_from("<H", LIBRARY, 60)[0]
    at = next(
        shoff + 64 * i for i in range(count) if struct.unpack_from("<I", LIBRARY, shoff + 64 * i + 4)[0] == 1
    )
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
