"""Tests of the dynamic symbol table; rows are those that readelf shows for the official 1.21.0 wheel."""

from __future__ import annotations

import struct

import pytest

from builder.binary.elf import Symbol, Symbols, read_elf
from builder.binary.elf_headers import ElfError
from tests.support.factories.binaries import (
    ABSOLUTE,
    HIDDEN,
    INTERNAL,
    LOCAL,
    NOT_DEFAULT,
    PROTECTED,
    UNDEFINED,
    UNIQUE,
    WEAK,
    Row,
    elf,
    linked,
    patched,
)

VERSIONS = {"libc.so.6": {3: "GLIBC_2.2.5", 5: "GLIBC_2.32"}, "libcudart.so.12": {4: "libcudart.so.12"}}


def symbols(*rows: Row, versions: bool = True) -> Symbols:
    own = {1: "libprovider.so", 2: "VERS_1.0"}
    return read_elf(linked(*rows, asked=VERSIONS, defined=own, versions=versions)).symbols


def test_what_a_provider_shows_and_asks_for() -> None:
    found = symbols(
        Row("GetProvider", version=2),
        Row("VERS_1.0", ABSOLUTE, version=2),
        Row("cudaMalloc", UNDEFINED, version=4),
        Row("__libc_single_threaded", UNDEFINED, version=5),
        Row("Provider_GetHost", UNDEFINED, version=1),
    )
    assert found.exports == {Symbol("GetProvider", "VERS_1.0")}
    assert found.asks == (
        Symbol("cudaMalloc", "libcudart.so.12", "libcudart.so.12"),
        Symbol("__libc_single_threaded", "GLIBC_2.32", "libc.so.6"),
        Symbol("Provider_GetHost"),
    )


@pytest.mark.parametrize(
    ("name", "index", "version"),
    [
        ("free_for_all", 1, ""),  # the library's own name is no version of a symbol
        ("free_for_all", 1 | NOT_DEFAULT, ""),
        ("old", 2 | NOT_DEFAULT, "VERS_1.0"),
        ("odd", 77, ""),  # a version that is named nowhere
        ("VERS_1.0", 2, "VERS_1.0"),  # a function with the name of a version
    ],
)
def test_the_version_of_a_symbol(name: str, index: int, version: str) -> None:
    assert symbols(Row(name, version=index)).exports == {Symbol(name, version)}


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (Row("weak", binding=WEAK), True),
        (Row("unique", binding=UNIQUE), True),
        (Row("protected", visibility=PROTECTED), True),
        (Row("data", ABSOLUTE), True),
        (Row("GLIBC_2.32", ABSOLUTE), True),  # the name of another library's version
        (Row("other bits", visibility=0x84), True),  # only the lowest two bits count
        (Row("bits", visibility=0x84 | HIDDEN), False),
        (Row("local", binding=LOCAL), False),
        (Row("hidden", visibility=HIDDEN), False),
        (Row("internal", visibility=INTERNAL), False),
        (Row("undefined", UNDEFINED), False),
    ],
    ids=lambda value: value.name if isinstance(value, Row) else "",
)
def test_what_others_see(row: Row, shown: bool) -> None:
    assert symbols(row).exports == ({Symbol(row.name)} if shown else set())


def test_a_name_that_is_too_long() -> None:
    assert symbols(Row("x" * 65_535)).exports == {Symbol("x" * 65_535)}
    library = linked(Row("x" * 65_536))
    where = library.index(b"xx")
    assert _refused(library) == f"a name does not end within its string table (at offset {where:#x})"


def test_names_of_more_than_a_mebibyte() -> None:
    assert len(symbols(*(Row(f"{number}" + "x" * 60_000) for number in range(20))).exports) == 20


def test_without_a_weak_symbol_a_library_loads_too() -> None:
    assert symbols(Row("__gmon_start__", UNDEFINED, binding=WEAK)).asks == ()


def test_a_library_without_versions() -> None:
    found = symbols(Row("compress", version=2), Row("crc32", UNDEFINED, version=3), versions=False)
    assert found == Symbols(exports=frozenset({Symbol("compress")}), asks=(Symbol("crc32"),))


def test_a_library_without_dynamic_symbols() -> None:
    assert read_elf(elf(needed=("libc.so.6",))).symbols == Symbols(exports=frozenset(), asks=())


def test_a_name_as_long_as_cutlass_makes_them() -> None:
    name = "_ZN7cutlass" + "4gemm" * 2000
    assert symbols(Row(name)).exports == {Symbol(name)}


def _refused(data: bytes) -> str:
    with pytest.raises(ElfError) as raised:
        read_elf(data)
    return str(raised.value)


SAME = struct.pack("<IBBHQQ", 1, 0x12, 0, 2, 0x1000, 8)
"""A row of the table of symbols."""


@pytest.mark.parametrize("offset", [1 << 20, 0xFFFFFFFF])
def test_a_name_outside_its_string_table(offset: int) -> None:
    good = linked(Row("GetProvider"))
    bad = patched(good, good.index(SAME), "<I", offset)
    assert "a name lies outside its string table" in _refused(bad)


def test_a_version_table_that_is_too_short() -> None:
    good = linked(Row("GetProvider"), Row("another"))
    at = good.rindex(struct.pack("<QI", 6, 2))  # sh_size of three entries, then sh_link
    (where,) = struct.unpack_from("<Q", good, at - 8)
    message = f"section .gnu.version holds no version for each symbol (at offset {where:#x})"
    assert _refused(patched(good, at, "<Q", 5)) == message


def test_more_names_than_any_library_has() -> None:
    """Many rows with the same name of 60,000 bytes must not fill the memory."""
    good = linked(Row("x" * 60_000), *(Row("") for _ in range(1200)))
    at = good.index(SAME)
    assert "more than 16,777,216 bytes of names" in _refused(good[:at] + SAME * 1201 + good[at + 1201 * 24 :])
