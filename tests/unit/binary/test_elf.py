"""Tests of the reader of ELF headers, sections and dynamic symbols: a fault is told with its offset.

Rows of symbols are those that readelf shows for the official 1.21.0 wheel.
"""

import struct
from functools import partial

import pytest

from builder.binary import elf_headers
from builder.binary.elf import Symbol, Symbols, read_elf
from builder.binary.elf_headers import ElfError, Section, read_sections
from tests.support.factories.binaries import (
    ABSOLUTE,
    HIDDEN,
    LOCAL,
    NOT_DEFAULT,
    PROTECTED,
    RWX,
    UNDEFINED,
    UNIQUE,
    WEAK,
    Row,
    assert_refused,
    elf,
    header_of,
    linked,
    patched,
)
from tests.support.messages import Refused

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

_refused = partial(assert_refused, read_elf, ElfError)


def test_all_the_loader_would_read() -> None:
    found = read_elf(LIBRARY)
    assert found.soname == "libdemo.so.1"
    assert found.needed == ("libcudart.so.12", "libc.so.6")
    assert (found.runpath, found.rpath) == ("$ORIGIN", None)
    assert (found.glibc, found.glibcxx) == ("2.17", "3.4.9")
    assert found.defines == ("libdemo.so.1", "VERS_1.23.2")
    assert not found.executable_stack
    assert found.sections == read_sections(LIBRARY)


def test_a_library_that_asks_for_nothing() -> None:
    found = read_elf(elf(rpath="/opt/x"))
    assert (found.soname, found.needed, found.runpath, found.rpath) == (None, (), None, "/opt/x")
    assert (found.glibc, found.glibcxx, found.defines) == (None, None, ())


@pytest.mark.parametrize(("stack", "asks"), [(6, False), (RWX, True), (1, True), (None, True)])
def test_who_asks_for_an_executable_stack(stack: int | None, asks: bool) -> None:
    """glibc 2.36 made the stack rwxp for a library without the header."""
    assert read_elf(elf(stack=stack)).executable_stack is asks


SECTIONS = {section.name: section for section in read_sections(LIBRARY)}

SIZE, TEXT, NAMES = len(LIBRARY), SECTIONS[".text"], SECTIONS[".shstrtab"]

TEXT_HEADER, NAMES_HEADER = header_of(LIBRARY, ".text"), header_of(LIBRARY, ".shstrtab")

DYNAMIC, STRINGS = SECTIONS[".dynamic"].offset, SECTIONS[".dynstr"].offset

VERSIONS = SECTIONS[".gnu.version_d"].offset

_spoilt = partial(patched, LIBRARY)


@pytest.mark.parametrize(("place", "form", "value"), [(54, "<H", 0), (32, "<Q", 1 << 60)])
def test_without_program_headers_nobody_reads_their_place_and_size(place: int, form: str, value: int) -> None:
    assert read_elf(patched(elf(stack=None), place, form, value)).executable_stack


_LOAD, _NOTE, _R = 1, 4, 4


def _with_segments(*segments: tuple[int, int, int, int]) -> bytes:
    """Return the library with these segments at its end, each by kind, flags, offset and size."""
    table = b"".join(struct.pack("<IIQQQQQQ", *one[:3], 0, 0, one[3], 0, 0) for one in segments)
    head = LIBRARY[:32] + struct.pack("<Q", len(LIBRARY)) + LIBRARY[40:56] + struct.pack("<H", len(segments))
    return head + LIBRARY[58:] + table


LAST, EMPTY = (_LOAD, _R, SIZE + 2 * 56 - 8, 8), (_LOAD, _R, 1 << 40, 0)

LONG_NAME = elf({"x" * 65_536: b""})

PROGRAM = int(struct.unpack_from("<Q", LIBRARY, 32)[0])

REFUSED = {
    "program headers of 55 bytes": (_spoilt(54, "<H", 55), 54),
    "program headers of 57 bytes": (_spoilt(54, "<H", 57), 54),
    "program headers that wrap round": (_spoilt(32, "<Q", 1 << 63), 1 << 63),
    "program headers past the end": (_spoilt(32, "<Q", SIZE - 55), SIZE - 55),
    "65,535 program headers": (_spoilt(56, "<H", 0xFFFF), PROGRAM),
    "a segment past the end": (_with_segments(EMPTY, (_LOAD, _R, SIZE + 2 * 56 - 8, 9)), SIZE + 56),
    "a segment that wraps round": (_with_segments((_LOAD, _R, 1 << 63, 8)), SIZE),
    **{
        f"another {name}": (_spoilt(TEXT_HEADER + 4, "<I", SECTIONS[name].kind), TEXT.offset)
        for name in (".dynamic", ".gnu.version_r", ".gnu.version_d")
    },
    **{
        f"string table {link}": (_spoilt(header_of(LIBRARY, ".dynamic") + 40, "<I", link), DYNAMIC)
        for link in (len(SECTIONS), 2, 0xFFFFFFFF)
    },
    "a section past the end": (_spoilt(TEXT_HEADER + 32, "<Q", SIZE - TEXT.offset + 1), TEXT_HEADER),
    "section headers of 63 bytes": (_spoilt(58, "<H", 63), 58),
    "section headers of 65 bytes": (_spoilt(58, "<H", 65), 58),
    "no section of names": (_spoilt(62, "<H", len(SECTIONS)), 58),
    "a name outside": (_spoilt(TEXT_HEADER, "<I", NAMES.size), NAMES.offset + NAMES.size),
    "a name without an end": (
        _spoilt(NAMES_HEADER + 32, "<Q", NAMES.size - 1),
        NAMES.offset + NAMES.size - 10,
    ),
    "names past the end": (_spoilt(NAMES_HEADER + 32, "<Q", 1 << 62), NAMES_HEADER),
    "a name that is too long": (LONG_NAME, LONG_NAME.index(b"xx")),
    "a version's name far outside": (_spoilt(VERSIONS + 20, "<I", 0xFFFFFFF0), STRINGS + 0xFFFFFFF0),
    "a needed name far outside": (_spoilt(DYNAMIC + 8, "<Q", (1 << 64) - 16), STRINGS + (1 << 64) - 16),
}
"""Libraries with one fault, and its offset."""


@pytest.mark.parametrize("fault", REFUSED)
def test_a_fault_is_told_with_its_offset(fault: str, refused: Refused) -> None:
    library, offset = REFUSED[fault]
    with refused(ElfError) as caught:
        read_elf(library)
    assert caught.value.offset == offset


@pytest.mark.parametrize("behind", [(_NOTE, _R, SIZE + 2 * 56, 32), EMPTY])
def test_the_last_segment_may_end_where_the_file_does(behind: tuple[int, int, int, int]) -> None:
    assert read_elf(_with_segments(LAST, behind)).soname == "libdemo.so.1"


def test_the_last_section_may_end_where_the_file_does() -> None:
    last = patched(LIBRARY, TEXT_HEADER + 32, "<Q", SIZE - TEXT.offset)
    assert read_elf(last).soname == "libdemo.so.1"


def test_a_file_larger_than_any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_headers, "LARGEST", len(LIBRARY))
    assert read_elf(LIBRARY).soname == "libdemo.so.1"
    message = f"a file of {len(LIBRARY) + 1:,} bytes: no library is larger than 4 GiB"
    _refused(LIBRARY + b"\0", message, len(LIBRARY))


def test_names_at_the_edge_of_their_table() -> None:
    assert read_sections(patched(LIBRARY, TEXT_HEADER, "<I", NAMES.size - 1))[5].name == ""
    assert read_sections(elf({"x" * 4095: b""}))[3].name == "x" * 4095


def test_a_name_that_is_no_text() -> None:
    assert read_elf(LIBRARY.replace(b"libc.so.6\0", b"lib\xff.so.6\0")).needed[1] == "lib\ufffd.so.6"


LONG = "x" * 2000


def test_as_many_names_as_a_library_may_have() -> None:
    names = [LONG] * 524
    assert len(read_elf(elf(needed=[*names, "y" * 576])).needed) == 525
    library = elf(needed=[*names, "y" * 577])
    _refused(library, "more than 1,048,576 bytes of names", library.index(b"yy"))


def test_a_dynamic_section_without_an_end() -> None:
    library = elf({".text": struct.pack("<qQ", 21, 0) * 65_536})
    at, text = header_of(library, ".dynamic"), _section_of(".text", library)
    longest = patched(patched(library, at + 24, "<Q", text.offset), at + 32, "<Q", 65_535 * 16)
    assert read_elf(longest).needed == ()
    _refused(patched(longest, at + 32, "<Q", 65_536 * 16), "a dynamic section without an end", text.offset)


def _section_of(name: str, library: bytes = LIBRARY) -> Section:
    return next(section for section in read_sections(library) if section.name == name)


def test_a_version_chain_that_overlaps_itself_ends() -> None:
    """Each word gives the next entry four bytes further: a naive walk takes time quadratic in the
    section's size."""
    good = elf(versions={"libc.so.6": ("GLIBC_2.17",) * 1000})
    versions = next(section for section in read_sections(good) if section.name == ".gnu.version_r")
    words = struct.pack("<I", 4) * (versions.size // 4 - 4) + bytes(16)
    bad = good[: versions.offset] + words + good[versions.offset + versions.size :]
    _refused(bad, "symbol versions overlap", versions.offset)


@pytest.mark.parametrize(
    ("name", "place", "step", "fits"),
    [
        (".gnu.version_d", 12, 28 + 20, True),  # offset of its name, from its start
        (".gnu.version_d", 12, 28 + 21, False),
        (".gnu.version_d", 16, 0xFFFFFFF0, False),  # offset of the next definition
        (".gnu.version_r", 8, 16 * 6, True),  # offset of the first version
        (".gnu.version_r", 8, 16 * 6 + 1, False),
        (".gnu.version_r", 12, 16 * 6 + 1, False),  # offset of the next library
        (".gnu.version_r", 16 + 12, 0xFFFFFFF0, False),  # offset of the next version, from the first one
    ],
)
def test_a_version_chain_that_leaves_its_section(name: str, place: int, step: int, fits: bool) -> None:
    versions = _section_of(name)
    changed = patched(LIBRARY, versions.offset + place, "<I", step)
    if fits:
        assert read_elf(changed).soname == "libdemo.so.1"
    else:
        at = versions.offset + step + (16 if place == 28 else 0)
        _refused(changed, "symbol versions run past the end of their section", at)


def test_a_version_definition_without_a_name() -> None:
    definitions = _section_of(".gnu.version_d")
    assert read_elf(patched(LIBRARY, definitions.offset + 28 + 6, "<H", 0)).defines == ("libdemo.so.1",)


def test_what_stands_behind_the_end_of_the_dynamic_section_is_not_read() -> None:
    library = elf(needed=("libc.so.6", "libm.so.6"))
    dynamic = _section_of(".dynamic", library)
    assert read_elf(patched(library, dynamic.offset, "<q", 0)).needed == ()


VERSIONS_ASKED = {"libc.so.6": {3: "GLIBC_2.2.5", 5: "GLIBC_2.32"}, "libcudart.so.12": {4: "libcudart.so.12"}}


def symbols(*rows: Row, versions: bool = True) -> Symbols:
    own = {1: "libprovider.so", 2: "VERS_1.0"}
    return read_elf(linked(*rows, asked=VERSIONS_ASKED, defined=own, versions=versions)).symbols


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
        (Row("GLIBC_2.32", ABSOLUTE), True),  # the name of another library's version
        (Row("other bits", visibility=0x84), True),  # only the lowest two bits count
        (Row("bits", visibility=0x84 | HIDDEN), False),
        (Row("local", binding=LOCAL), False),
        (Row("hidden", visibility=HIDDEN), False),
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
    assert _said(library) == f"a name does not end within its string table (at offset {where:#x})"


def test_without_a_weak_symbol_a_library_loads_too() -> None:
    assert symbols(Row("__gmon_start__", UNDEFINED, binding=WEAK)).asks == ()


def test_a_library_without_versions() -> None:
    found = symbols(Row("compress", version=2), Row("crc32", UNDEFINED, version=3), versions=False)
    assert found == Symbols(exports=frozenset({Symbol("compress")}), asks=(Symbol("crc32"),))


def _said(data: bytes) -> str:
    with pytest.raises(ElfError) as raised:
        read_elf(data)
    return str(raised.value)


SAME = struct.pack("<IBBHQQ", 1, 0x12, 0, 2, 0x1000, 8)
"""A row of the table of symbols."""


def test_a_version_table_that_is_too_short() -> None:
    good = linked(Row("GetProvider"), Row("another"))
    at = good.rindex(struct.pack("<QI", 6, 2))  # sh_size of three entries, then sh_link
    (where,) = struct.unpack_from("<Q", good, at - 8)
    message = f"section .gnu.version holds no version for each symbol (at offset {where:#x})"
    assert _said(patched(good, at, "<Q", 5)) == message


def test_more_names_of_symbols_than_any_library_has() -> None:
    """Many rows with the same name of 60,000 bytes must not fill the memory."""
    good = linked(Row("x" * 60_000), *(Row("") for _ in range(1200)))
    at = good.index(SAME)
    assert "more than 16,777,216 bytes of names" in _said(good[:at] + SAME * 1201 + good[at + 1201 * 24 :])
