"""The dynamic symbols of an ELF file: what it defines for others, what it asks of them, with their versions.

Sources: the System V ABI, chapter "Symbol Table", and the Linux Standard Base on symbol versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from builder.binary.elf_dynamic import versions_by_index
from builder.binary.elf_frame import Buffer, ElfError, Section, only, strings_of

_DYNSYM, _VERSYM = 11, 0x6FFFFFFF

_SYMBOL_SIZE = 24

_UNDEFINED, _ABSOLUTE = 0, 0xFFF1

_LOCAL, _WEAK = 0, 2

_SEEN_OUTSIDE = (0, 3)
"""Visibility default and protected; hidden and internal ones are the library's own."""

_INDEX = 0x7FFF
"""A version index without its highest bit, which says whether it is the default one."""

_NO_VERSION = (0, 1)
"""The index of a local symbol, and of one without a version; the library's own name has the second too."""

_MOST_SYMBOLS = 1 << 20

_MOST_TEXT = 16 << 20
"""Bytes of all names. A provider whose inner symbols all leaked has some ten."""

_LONGEST_NAME = 1 << 16
"""CUTLASS has names of several thousand bytes."""


class Symbol(NamedTuple):
    """One dynamic symbol. ``version`` is empty without one, ``library`` where none is named to have it."""

    name: str
    version: str = ""
    library: str = ""


@dataclass(frozen=True)
class Symbols:
    """The symbols of one library that others see."""

    exports: frozenset[Symbol]
    """What it defines, without the names of its own versions, which linkers define as symbols too."""
    asks: tuple[Symbol, ...]
    """What others must define, in the table's order. Weak ones are left out: without them it loads too."""


NO_SYMBOLS = Symbols(exports=frozenset(), asks=())


class _Entry(NamedTuple):
    """One row of the table; ``name`` is an offset, ``version`` an index."""

    name: int
    binding: int
    visibility: int
    section: int
    version: int


def read_symbols(buffer: Buffer, sections: Sequence[Section]) -> Symbols:
    """All dynamic symbols; a library without any has none. Raises ``ElfError``."""
    table = only(sections, _DYNSYM)
    if table is None:
        return NO_SYMBOLS
    entries = [entry for entry in _entries(buffer, sections, table) if entry.binding != _LOCAL]
    wanted = [entry for entry in entries if entry.section == _UNDEFINED and entry.binding != _WEAK]
    defined = [entry for entry in entries if entry.section and entry.visibility in _SEEN_OUTSIDE]
    versions = versions_by_index(buffer, sections)
    strings = strings_of(sections, table)
    names = _names(buffer, strings, [entry.name for entry in (*wanted, *defined)])
    found = [_symbol(entry, name, versions) for entry, name in zip((*wanted, *defined), names, strict=False)]
    asks, shown = found[: len(wanted)], zip(defined, found[len(wanted) :], strict=False)
    own = {(_ABSOLUTE, version) for library, version in versions.values() if not library}
    exports = frozenset(symbol for entry, symbol in shown if (entry.section, symbol.name) not in own)
    return Symbols(exports=exports, asks=tuple(asks))


def _entries(buffer: Buffer, sections: Sequence[Section], table: Section) -> Iterator[_Entry]:
    count = table.size // _SYMBOL_SIZE
    if count > _MOST_SYMBOLS:
        raise ElfError(f"{count:,} dynamic symbols", table.offset)
    rows = bytes(buffer[table.offset : table.offset + count * _SYMBOL_SIZE])
    versions = _version_indices(buffer, only(sections, _VERSYM), count)
    for (name, info, other, section, _value, _size), version in zip(
        struct.iter_unpack("<IBBHQQ", rows), versions, strict=False
    ):
        yield _Entry(name, info >> 4, other & 3, section, version)


def _version_indices(buffer: Buffer, section: Section | None, count: int) -> Sequence[int]:
    """One per symbol; a library without the table has no versions."""
    if section is None:
        return [1] * count
    if section.size < 2 * count:
        raise ElfError(f"section {section.name} holds no version for each symbol", section.offset)
    return struct.unpack_from(f"<{count}H", buffer, section.offset)


def _symbol(entry: _Entry, name: str, versions: dict[int, tuple[str, str]]) -> Symbol:
    index = entry.version & _INDEX
    library, version = ("", "") if index in _NO_VERSION else versions.get(index, ("", ""))
    return Symbol(name, version, library)


def _names(buffer: Buffer, strings: Section, offsets: Sequence[int]) -> list[str]:
    names: list[str] = []
    room = _MOST_TEXT
    for offset in offsets:
        start = strings.offset + offset
        end = buffer.find(b"\0", start, min(strings.offset + strings.size, start + _LONGEST_NAME))
        if end < 0:
            raise ElfError("a symbol's name does not end within its string table", start)
        names.append(bytes(buffer[start:end]).decode("utf-8", "replace"))
        room -= end - start
        if room < 0:
            raise ElfError(f"more than {_MOST_TEXT:,} bytes of symbols' names", start)
    return names
