"""What the dynamic section of an ELF file says, and the symbol versions it needs and defines.

Sources: the System V ABI, chapter "Dynamic Linking", and the Linux Standard Base on symbol versions.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from builder.core.elf_sections import Buffer, ElfError, Section, names_in, only, strings_of

NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
_DYNAMIC, _VERDEF, _VERNEED = 6, 0x6FFFFFFD, 0x6FFFFFFE
_ENTRY_SIZE, _VERNEED_SIZE, _VERDEF_SIZE, _VERDAUX_SIZE = 16, 16, 20, 8
_MOST_ENTRIES = 65_536
"""Of a dynamic section; real ones have some forty."""
_MOST_VERSIONS = 0x7FFF
"""A symbol names its version in fifteen bits."""


def dynamic_names(buffer: Buffer, sections: Sequence[Section]) -> Dict[int, List[str]]:
    """Names by dynamic tag, of the four tags above. Raises ``ElfError``."""
    found: Dict[int, List[str]] = {}
    section = only(sections, _DYNAMIC)
    if section is not None:
        wanted = (NEEDED, SONAME, RPATH, RUNPATH)
        entries = [entry for entry in _entries(buffer, section) if entry[0] in wanted]
        names = names_in(buffer, strings_of(sections, section), (value for _tag, value in entries))
        for (tag, _value), name in zip(entries, names):
            found.setdefault(tag, []).append(name)
    return found


def needed_versions(buffer: Buffer, sections: Sequence[Section]) -> Tuple[str, ...]:
    """Every symbol version asked of another library, ``GLIBC_2.17``. Raises ``ElfError``."""
    return _names(buffer, sections, _VERNEED, _need_names)


def defined_versions(buffer: Buffer, sections: Sequence[Section]) -> Tuple[str, ...]:
    """Every symbol version the library defines, ``VERS_1.23.2``; the first is its own name as a rule.

    Raises ``ElfError``.
    """
    return _names(buffer, sections, _VERDEF, _definition_names)


def _names(
    buffer: Buffer, sections: Sequence[Section], kind: int, offsets: Callable[[Buffer, Section], List[int]]
) -> Tuple[str, ...]:
    section = only(sections, kind)
    if section is None:
        return ()
    return tuple(names_in(buffer, strings_of(sections, section), offsets(buffer, section)))


def _entries(buffer: Buffer, section: Section) -> Iterator[Tuple[int, int]]:
    count = min(section.size // _ENTRY_SIZE, _MOST_ENTRIES)
    whole = bytes(buffer[section.offset : section.offset + count * _ENTRY_SIZE])
    for tag, value in struct.iter_unpack("<qQ", whole):
        if tag == 0:
            return
        yield tag, value
    if count == _MOST_ENTRIES:
        raise ElfError("a dynamic section without an end", section.offset)


def _need_names(buffer: Buffer, section: Section) -> List[int]:
    """String offsets of a verneed chain. Links go forward only, and no chain has more of them than room."""
    names: List[int] = []
    room = min(section.size // _VERNEED_SIZE, _MOST_VERSIONS)
    at, end = section.offset, section.offset + section.size
    for _ in range(room):
        _require_inside(at, _VERNEED_SIZE, end)
        _version, _count, _file, step, following = struct.unpack_from("<HHIII", buffer, at)
        entry = at
        while step and len(names) <= room:
            entry += step
            _require_inside(entry, _VERNEED_SIZE, end)
            _hash, _flags, _other, name, step = struct.unpack_from("<IHHII", buffer, entry)
            names.append(name)
        if not following or len(names) > room:
            break
        at += following
    if len(names) > room:
        raise ElfError("symbol versions overlap", at)
    return names


def _definition_names(buffer: Buffer, section: Section) -> List[int]:
    """String offsets of a verdef chain, the first name of each: the others are its parents."""
    names: List[int] = []
    at, end = section.offset, section.offset + section.size
    for _ in range(min(section.size // _VERDEF_SIZE, _MOST_VERSIONS)):
        _require_inside(at, _VERDEF_SIZE, end)
        _version, _flags, _index, count, _hash, first, following = struct.unpack_from("<HHHHIII", buffer, at)
        if count:
            _require_inside(at + first, _VERDAUX_SIZE, end)
            names += struct.unpack_from("<I", buffer, at + first)
        if not following:
            break
        at += following
    return names


def _require_inside(at: int, size: int, end: int) -> None:
    if at + size > end:
        raise ElfError("symbol versions run past the end of their section", at)
