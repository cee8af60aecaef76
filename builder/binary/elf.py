"""Reader of the dynamic section, symbols and symbol versions of an ELF64 little-endian library.

It finds them through the section headers, which every library of a package has. Sources: the System V ABI,
chapters "Dynamic Linking" and "Symbol Table", and the Linux Standard Base on symbol versions.
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

_ENTRY_SIZE, _VERNEED_SIZE, _VERDEF_SIZE, _SYMBOL_SIZE = 16, 16, 20, 24

_MOST_ENTRIES = 65_536
"""Highest number of entries of a dynamic section; real sections have some forty."""

_MOST_VERSIONS = 0x7FFF
"""Highest number of symbol versions: a symbol's version index has fifteen bits."""

_MOST_SYMBOLS = 1 << 20

_MOST_SYMBOL_TEXT = 16 << 20
"""Highest sum of bytes of symbol names. A provider that exports its inner symbols has some ten million."""

_EMPTY_NAME = 0
"""Offset of the empty name at the beginning of every string table."""

_UNDEFINED, _ABSOLUTE = 0, 0xFFF1

_LOCAL, _WEAK = 0, 2

_VISIBLE_OUTSIDE = (0, 3)
"""The visibilities default and protected; other libraries do not see hidden and internal symbols."""

_VERSION_INDEX = 0x7FFF
"""Mask of a symbol's version index, without the highest bit, the mark of a hidden (non-default) version."""

_UNVERSIONED = (0, 1)
"""Version indices of a local symbol and of a symbol without a version; 1 is also the library's own name."""

_GLIBC = re.compile(r"(GLIBC|GLIBCXX)_(\d+(?:\.\d+)*)")


class Symbol(NamedTuple):
    """One dynamic symbol. ``version`` and ``library`` are empty where the symbol names none."""

    name: str
    version: str = ""
    library: str = ""


@dataclass(frozen=True)
class Symbols:
    """The dynamic symbols of one library that other libraries see."""

    exports: frozenset[Symbol]
    """Symbols that the library defines, without the symbols that linkers add as names of versions."""
    asks: tuple[Symbol, ...]
    """Symbols that other libraries must define, in the table's order; weak symbols are not among them."""


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
    """Highest ``GLIBC_`` version that the library needs, ``2.17``; ``None`` when it needs none."""
    glibcxx: str | None
    """Highest ``GLIBCXX_`` version that the library needs, ``3.4.22``; ``None`` when it needs none."""
    defines: tuple[str, ...] = ()
    """Symbol versions that the library defines, ``VERS_1.23.2``; the first is usually its own name."""
    machine: str = "x86-64"
    executable_stack: bool = False
    """Whether loading the library makes the stack executable."""
    symbols: Symbols = NO_SYMBOLS


def read_elf(buffer: Buffer, *, symbols: bool = True) -> Elf:
    """Return what the loader uses of a library. Raises ``ElfError`` unless it is a whole ELF file.

    Symbols are read only with ``symbols``: those of frameworks have names of tens of millions of bytes.
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
    """Return the names in the dynamic section by their tag, for the tags in ``_TAGS``."""
    by_tag: dict[int, list[str]] = {}
    section = single_section(sections, _DYNAMIC)
    if section is not None:
        entries = [entry for entry in _dynamic_entries(buffer, section) if entry[0] in _TAGS]
        names = names_in(buffer, strings_of(sections, section), (value for _tag, value in entries))
        for tag, value in entries:
            by_tag.setdefault(tag, []).append(names[value])
    return by_tag


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
    """A symbol version. ``library`` is the library that must define it; empty for this library itself."""

    number: int
    """The index by which symbols refer to the version."""
    library: str
    name: str


_VersionEntry = tuple[int, int, int]
"""A version in its section: index, offset of the library's name, offset of the version's name."""


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
    """Return the entries of the verneed section. Raises ``ElfError`` for an entry outside, or too many.

    Links lead forward only, and a section cannot hold more entries than fit into its size.
    """
    entries: list[_VersionEntry] = []
    room = min(section.size // _VERNEED_SIZE, _MOST_VERSIONS)
    for at, entry in _chain(buffer, section, "<HHIII", section.offset, room):
        _version, _count, library, first, _next = entry
        names = _chain(buffer, section, "<IHHII", at + first, room + 1) if first else ()
        for _, (_hash, _flags, index, name, _next_name) in names:
            if len(entries) == room:
                raise ElfError("symbol versions overlap", at)
            entries.append((index, library, name))
    return entries


def _definition_entries(buffer: Buffer, section: Section) -> list[_VersionEntry]:
    """Return the entries of the verdef section, each with its first name; further names are its parents.

    Raises ``ElfError`` for an entry outside of the section.
    """
    entries: list[_VersionEntry] = []
    room = min(section.size // _VERDEF_SIZE, _MOST_VERSIONS)
    for at, entry in _chain(buffer, section, "<HHHHIII", section.offset, room):
        _version, _flags, index, count, _hash, first, _next = entry
        if count:
            ((_, (name, _next_name)),) = _chain(buffer, section, "<II", at + first, 1)
            entries.append((index, _EMPTY_NAME, name))
    return entries


def _chain(
    buffer: Buffer, section: Section, form: str, at: int, most: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield offset and fields of each entry, the last of which is the distance to the next entry, or 0."""
    for _ in range(most):
        if at + struct.calcsize(form) > section.offset + section.size:
            raise ElfError("symbol versions run past the end of their section", at)
        fields = struct.unpack_from(form, buffer, at)
        yield at, fields
        if not fields[-1]:
            return
        at += fields[-1]


def _highest(versions: Iterable[_SymbolVersion], family: str) -> str | None:
    matches = [match for match in (_GLIBC.fullmatch(version.name) for version in versions) if match]
    numbers = [tuple(map(int, match[2].split("."))) for match in matches if match[1] == family]
    return ".".join(map(str, max(numbers))) if numbers else None


class _SymbolRow(NamedTuple):
    """One row of the symbol table; ``name`` is the name's offset, ``section`` and ``version`` are indices."""

    name: int
    binding: int
    visibility: int
    section: int
    version: int


def _symbols(buffer: Buffer, sections: Sequence[Section], versions: Mapping[int, _SymbolVersion]) -> Symbols:
    """Return the dynamic symbols that other libraries see; none for a library without a symbol table."""
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
    """Return the entries of a symbol table: name's offset, info, other, section's index, value, size.

    Raises ``ElfError`` for more than ``_MOST_SYMBOLS`` entries.
    """
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
    """Return one version index per symbol; each is "no version" for a library without a version table.

    Raises ``ElfError`` where the table has fewer entries than ``count``.
    """
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
