"""What the dynamic section of an ELF file says, and the symbol versions it needs and defines.

Sources: the System V ABI, chapter "Dynamic Linking", and the Linux Standard Base on symbol versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from builder.binary.elf_frame import Buffer, ElfError, Section, names_in, only, strings_of

NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
_DYNAMIC, _VERDEF, _VERNEED = 6, 0x6FFFFFFD, 0x6FFFFFFE
_ENTRY_SIZE, _VERNEED_SIZE, _VERDEF_SIZE, _VERDAUX_SIZE = 16, 16, 20, 8
_MOST_ENTRIES = 65_536
"""Of a dynamic section; real ones have some forty."""
_MOST_VERSIONS = 0x7FFF
"""A symbol names its version in fifteen bits."""
_NO_NAME = 0
"""Every string table begins with the empty name."""


class _Version(NamedTuple):
    """A version, by the number symbols name it with; ``library`` and ``name`` are offsets of strings."""

    number: int
    library: int
    name: int


def dynamic_names(buffer: Buffer, sections: Sequence[Section]) -> dict[int, list[str]]:
    """Names by dynamic tag, of the four tags above. Raises ``ElfError``."""
    found: dict[int, list[str]] = {}
    section = only(sections, _DYNAMIC)
    if section is not None:
        wanted = (NEEDED, SONAME, RPATH, RUNPATH)
        entries = [entry for entry in _entries(buffer, section) if entry[0] in wanted]
        names = names_in(buffer, strings_of(sections, section), (value for _tag, value in entries))
        for (tag, _value), name in zip(entries, names, strict=False):
            found.setdefault(tag, []).append(name)
    return found


def needed_versions(buffer: Buffer, sections: Sequence[Section]) -> tuple[str, ...]:
    """Every symbol version asked of another library, ``GLIBC_2.17``. Raises ``ElfError``."""
    return _names(buffer, sections, _VERNEED, _need_entries)


def defined_versions(buffer: Buffer, sections: Sequence[Section]) -> tuple[str, ...]:
    """Every symbol version the library defines, ``VERS_1.23.2``; the first is its own name as a rule.

    Raises ``ElfError``.
    """
    return _names(buffer, sections, _VERDEF, _definition_entries)


def versions_by_index(buffer: Buffer, sections: Sequence[Section]) -> dict[int, tuple[str, str]]:
    """What a symbol's version index stands for: the library it is asked of and the version's name.

    The library is empty for a version that this one defines. Raises ``ElfError``.
    """
    found: dict[int, tuple[str, str]] = {}
    for kind, entries in ((_VERDEF, _definition_entries), (_VERNEED, _need_entries)):
        section = only(sections, kind)
        if section is not None:
            read = entries(buffer, section)
            strings = strings_of(sections, section)
            names = names_in(buffer, strings, (entry.name for entry in read))
            libraries = names_in(buffer, strings, (entry.library for entry in read))
            found.update((entry.number, (a, b)) for entry, a, b in zip(read, libraries, names, strict=False))
    return found


def _names(
    buffer: Buffer,
    sections: Sequence[Section],
    kind: int,
    entries: Callable[[Buffer, Section], list[_Version]],
) -> tuple[str, ...]:
    section = only(sections, kind)
    if section is None:
        return ()
    offsets = (entry.name for entry in entries(buffer, section))
    return tuple(names_in(buffer, strings_of(sections, section), offsets))


def _entries(buffer: Buffer, section: Section) -> Iterator[tuple[int, int]]:
    count = min(section.size // _ENTRY_SIZE, _MOST_ENTRIES)
    whole = bytes(buffer[section.offset : section.offset + count * _ENTRY_SIZE])
    for tag, value in struct.iter_unpack("<qQ", whole):
        if tag == 0:
            return
        yield tag, value
    if count == _MOST_ENTRIES:
        raise ElfError("a dynamic section without an end", section.offset)


def _need_entries(buffer: Buffer, section: Section) -> list[_Version]:
    """Those of a verneed chain. Links go forward only, and no chain has more of them than room."""
    names: list[_Version] = []
    room = min(section.size // _VERNEED_SIZE, _MOST_VERSIONS)
    at, end = section.offset, section.offset + section.size
    for _ in range(room):
        _require_inside(at, _VERNEED_SIZE, end)
        _version, _count, library, step, following = struct.unpack_from("<HHIII", buffer, at)
        entry = at
        while step and len(names) <= room:
            entry += step
            _require_inside(entry, _VERNEED_SIZE, end)
            _hash, _flags, index, name, step = struct.unpack_from("<IHHII", buffer, entry)
            names.append(_Version(index, library, name))
        if not following or len(names) > room:
            break
        at += following
    if len(names) > room:
        raise ElfError("symbol versions overlap", at)
    return names


def _definition_entries(buffer: Buffer, section: Section) -> list[_Version]:
    """Those of a verdef chain, the first name of each: the others are its parents."""
    names: list[_Version] = []
    at, end = section.offset, section.offset + section.size
    for _ in range(min(section.size // _VERDEF_SIZE, _MOST_VERSIONS)):
        _require_inside(at, _VERDEF_SIZE, end)
        _version, _flags, index, count, _hash, first, following = struct.unpack_from("<HHHHIII", buffer, at)
        if count:
            _require_inside(at + first, _VERDAUX_SIZE, end)
            (name,) = struct.unpack_from("<I", buffer, at + first)
            names.append(_Version(index, _NO_NAME, name))
        if not following:
            break
        at += following
    return names


def _require_inside(at: int, size: int, end: int) -> None:
    if at + size > end:
        raise ElfError("symbol versions run past the end of their section", at)
