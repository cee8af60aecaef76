"""The dynamic section, symbols and symbol versions of a library: ELF64 little-endian.

Dynamic section, symbols and their versions are found through the section headers, which no library of a
package lacks. Sources: the System V ABI, chapters "Dynamic Linking" and "Symbol Table", and the Linux
Standard Base on symbol versions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from builder.binary.elf_headers import (
    Buffer,
    ElfError,
    Section,
    asks_for_executable_stack,
    machine_of,
    names_in,
    read_sections,
    single_section,
    strings_of,
)

_NEEDED, _SONAME, _RPATH, _RUNPATH = _TAGS = 1, 14, 15, 29

_DYNAMIC, DYNSYM, _VERDEF, _VERNEED, _VERSYM = 6, 11, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF

_ENTRY_SIZE, _VERNEED_SIZE, _VERDEF_SIZE, _VERDAUX_SIZE, _SYMBOL_SIZE = 16, 16, 20, 8, 24

_MOST_ENTRIES = 65_536
"""Entries of a dynamic section that are read; real ones have some forty."""

_MOST_VERSIONS = 0x7FFF
"""A symbol names its version in fifteen bits."""

_MOST_SYMBOLS = 1 << 20

_MOST_SYMBOL_TEXT = 16 << 20
"""Bytes of all symbols' names. A provider that exports all its inner symbols has some ten million."""

_EMPTY_NAME = 0
"""Offset of the empty name, which every string table begins with."""

_UNDEFINED, _ABSOLUTE = 0, 0xFFF1

_LOCAL, _WEAK = 0, 2

_VISIBLE_OUTSIDE = (0, 3)
"""Visibility default and protected; hidden and internal symbols are the library's own."""

_VERSION_INDEX = 0x7FFF
"""Mask of a symbol's version index; the highest bit says whether the version is the default one."""

_UNVERSIONED = (0, 1)
"""Version indices of a local symbol and of one without a version; 1 is the library's own name too."""

_GLIBC = re.compile(r"(GLIBC|GLIBCXX)_(\d+(?:\.\d+)*)")


class Symbol(NamedTuple):
    """One dynamic symbol. ``version`` is empty without one, ``library`` where none is named to have it."""

    name: str
    version: str = ""
    library: str = ""


@dataclass(frozen=True)
class Symbols:
    """The dynamic symbols of one library that other libraries see."""

    exports: frozenset[Symbol]
    """Symbols it defines, without the names of its own versions, which linkers define as symbols too."""
    asks: tuple[Symbol, ...]
    """Symbols others must define, in the table's order, without weak ones: those may stay undefined."""


NO_SYMBOLS = Symbols(exports=frozenset(), asks=())


@dataclass(frozen=True)
class Elf:
    """One library as the dynamic loader sees it."""

    sections: tuple[Section, ...]
    soname: str | None
    needed: tuple[str, ...]
    runpath: str | None
    rpath: str | None
    glibc: str | None
    """Highest ``GLIBC_`` version it needs, ``2.17``; ``None`` when it needs none."""
    glibcxx: str | None
    """Highest ``GLIBCXX_`` version it needs, ``3.4.22``."""
    defines: tuple[str, ...] = ()
    """Symbol versions it defines, ``VERS_1.23.2``; the first is its own name as a rule."""
    machine: str = "x86-64"
    executable_stack: bool = False
    """Whether loading it makes the stack executable."""
    symbols: Symbols = NO_SYMBOLS


def read_elf(buffer: Buffer, *, symbols: bool = True) -> Elf:
    """Read all that the loader would read of a library. Raises ``ElfError``.

    Frameworks have names of symbols by the ten million bytes, so they are left out without ``symbols``.
    """
    sections = read_sections(buffer)
    tags = _dynamic_names(buffer, sections)
    defined = _versions(buffer, sections, _VERDEF, _definition_entries)
    needed = _versions(buffer, sections, _VERNEED, _need_entries)
    versions = {version.number: version for version in (*defined, *needed)}
    return Elf(
        sections=sections,
        soname=_first(tags, _SONAME),
        needed=tuple(tags.get(_NEEDED, ())),
        runpath=_first(tags, _RUNPATH),
        rpath=_first(tags, _RPATH),
        glibc=_highest(needed, "GLIBC"),
        glibcxx=_highest(needed, "GLIBCXX"),
        defines=tuple(version.name for version in defined),
        machine=machine_of(buffer),
        executable_stack=asks_for_executable_stack(buffer),
        symbols=_symbols(buffer, sections, versions) if symbols else NO_SYMBOLS,
    )


def _first(tags: Mapping[int, Sequence[str]], tag: int) -> str | None:
    return tags[tag][0] if tag in tags else None


def _dynamic_names(buffer: Buffer, sections: Sequence[Section]) -> dict[int, list[str]]:
    """The names of the dynamic section by their tag, of the tags in ``_TAGS``."""
    found: dict[int, list[str]] = {}
    section = single_section(sections, _DYNAMIC)
    if section is not None:
        entries = [entry for entry in _dynamic_entries(buffer, section) if entry[0] in _TAGS]
        names = names_in(buffer, strings_of(sections, section), (value for _tag, value in entries))
        for tag, value in entries:
            found.setdefault(tag, []).append(names[value])
    return found


def _dynamic_entries(buffer: Buffer, section: Section) -> Iterator[tuple[int, int]]:
    count = min(section.size // _ENTRY_SIZE, _MOST_ENTRIES)
    whole = bytes(buffer[section.offset : section.offset + count * _ENTRY_SIZE])
    for tag, value in struct.iter_unpack("<QQ", whole):
        if tag == 0:
            return
        yield tag, value
    if count == _MOST_ENTRIES:
        raise ElfError("a dynamic section without an end", section.offset)


class _SymbolVersion(NamedTuple):
    """A symbol version; ``library`` is the one it is asked of, empty where this library defines it."""

    number: int
    """The number that symbols name the version by."""
    library: str
    name: str


_VersionEntry = tuple[int, int, int]
"""A version as it stands in its section: index, offset of the library's name, offset of its own name."""


def _versions(
    buffer: Buffer,
    sections: Sequence[Section],
    kind: int,
    read: Callable[[Buffer, Section], list[_VersionEntry]],
) -> list[_SymbolVersion]:
    section = single_section(sections, kind)
    if section is None:
        return []
    entries, strings = read(buffer, section), strings_of(sections, section)
    names = names_in(buffer, strings, (offset for entry in entries for offset in entry[1:]))
    return [_SymbolVersion(index, names[library], names[name]) for index, library, name in entries]


def _need_entries(buffer: Buffer, section: Section) -> list[_VersionEntry]:
    """The entries of a verneed chain. Links go forward only, and no chain has more of them than room."""
    entries: list[_VersionEntry] = []
    room = min(section.size // _VERNEED_SIZE, _MOST_VERSIONS)
    at, end = section.offset, section.offset + section.size
    for _ in range(room):
        _require_inside(at, _VERNEED_SIZE, end)
        _version, _count, library, step, following = struct.unpack_from("<HHIII", buffer, at)
        entry = at
        while step:
            entry += step
            _require_inside(entry, _VERNEED_SIZE, end)
            if len(entries) == room:
                raise ElfError("symbol versions overlap", at)
            _hash, _flags, index, name, step = struct.unpack_from("<IHHII", buffer, entry)
            entries.append((index, library, name))
        if not following:
            break
        at += following
    return entries


def _definition_entries(buffer: Buffer, section: Section) -> list[_VersionEntry]:
    """The entries of a verdef chain, each by its first name: the other names are its parents."""
    entries: list[_VersionEntry] = []
    at, end = section.offset, section.offset + section.size
    for _ in range(min(section.size // _VERDEF_SIZE, _MOST_VERSIONS)):
        _require_inside(at, _VERDEF_SIZE, end)
        _version, _flags, index, count, _hash, first, following = struct.unpack_from("<HHHHIII", buffer, at)
        if count:
            _require_inside(at + first, _VERDAUX_SIZE, end)
            (name,) = struct.unpack_from("<I", buffer, at + first)
            entries.append((index, _EMPTY_NAME, name))
        if not following:
            break
        at += following
    return entries


def _require_inside(at: int, size: int, end: int) -> None:
    if at + size > end:
        raise ElfError("symbol versions run past the end of their section", at)


def _highest(versions: Iterable[_SymbolVersion], family: str) -> str | None:
    matches = [match for match in (_GLIBC.fullmatch(version.name) for version in versions) if match]
    numbers = [tuple(map(int, match[2].split("."))) for match in matches if match[1] == family]
    return ".".join(map(str, max(numbers))) if numbers else None


class _SymbolRow(NamedTuple):
    """One row of the symbol table; ``name`` is an offset, ``version`` an index."""

    name: int
    binding: int
    visibility: int
    section: int
    version: int


def _symbols(buffer: Buffer, sections: Sequence[Section], versions: Mapping[int, _SymbolVersion]) -> Symbols:
    """All dynamic symbols that other libraries see; a library without a table has none."""
    table = single_section(sections, DYNSYM)
    if table is None:
        return NO_SYMBOLS
    rows = [row for row in _symbol_rows(buffer, sections, table) if row.binding != _LOCAL]
    wanted = [row for row in rows if row.section == _UNDEFINED and row.binding != _WEAK]
    defined = [row for row in rows if row.section and row.visibility in _VISIBLE_OUTSIDE]
    names = names_in(
        buffer,
        strings_of(sections, table),
        (row.name for row in (*wanted, *defined)),
        most=_MOST_SYMBOL_TEXT,
    )
    own = {version.name for version in versions.values() if not version.library}
    shown = [row for row in defined if row.section != _ABSOLUTE or names[row.name] not in own]
    return Symbols(
        exports=frozenset(_symbol(row, names, versions) for row in shown),
        asks=tuple(_symbol(row, names, versions) for row in wanted),
    )


def symbol_entries(buffer: Buffer, table: Section) -> Iterator[tuple[int, ...]]:
    """The entries of a symbol table: name, info, visibility, section, value, size. Raises ``ElfError``."""
    count = table.size // _SYMBOL_SIZE
    if count > _MOST_SYMBOLS:
        raise ElfError(f"{count:,} dynamic symbols", table.offset)
    whole = bytes(buffer[table.offset : table.offset + count * _SYMBOL_SIZE])
    return struct.iter_unpack("<IBBHQQ", whole)


def _symbol_rows(buffer: Buffer, sections: Sequence[Section], table: Section) -> Iterator[_SymbolRow]:
    entries = symbol_entries(buffer, table)
    versions = _version_indices(buffer, single_section(sections, _VERSYM), table.size // _SYMBOL_SIZE)
    for place, (name, info, other, section, _value, _size) in enumerate(entries):
        yield _SymbolRow(name, info >> 4, other & 3, section, versions[place])


def _version_indices(buffer: Buffer, section: Section | None, count: int) -> Sequence[int]:
    """One index per symbol; a library without the table has no versions."""
    if section is None:
        return [_UNVERSIONED[1]] * count
    if section.size < 2 * count:
        raise ElfError(f"section {section.name} holds no version for each symbol", section.offset)
    return struct.unpack_from(f"<{count}H", buffer, section.offset)


def _symbol(row: _SymbolRow, names: Mapping[int, str], versions: Mapping[int, _SymbolVersion]) -> Symbol:
    index = row.version & _VERSION_INDEX
    version = versions.get(index) if index not in _UNVERSIONED else None
    name = names[row.name]
    return Symbol(name, version.name, version.library) if version else Symbol(name)
