"""What the dynamic loader reads of a library: ELF64 little-endian, nothing else.

Source: the System V ABI, chapters "Object Files" and "Dynamic Linking", and the Linux Standard Base on symbol
versions. Everything is found through the section headers, which no library of a package lacks.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

Buffer = Union[bytes, memoryview, mmap.mmap]

_MAGIC = b"\x7fELF"
_HEADER_SIZE = 64
_CLASS_64, _LITTLE_ENDIAN, _X86_64 = 2, 1, 62
_STRTAB, _DYNAMIC, _NOBITS, _VERNEED = 3, 6, 8, 0x6FFFFFFE
_NEEDED, _SONAME, _RPATH, _RUNPATH = 1, 14, 15, 29
_VERSION = re.compile(r"(GLIBC|GLIBCXX)_(\d+(?:\.\d+)*)")
_LONGEST_NAME = 4096
_VERSION_SIZE = 16


class ElfError(ValueError):
    """The file is not a whole ELF64 little-endian x86-64 file. ``offset`` is where it goes wrong."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(f"{message} (at offset {offset:#x})")


@dataclass(frozen=True)
class Section:
    """One section: ``offset`` and ``size`` in bytes. ``kind`` is ``sh_type``."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def in_file(self) -> bool:
        """Whether its bytes lie in the file (``.bss`` has none)."""
        return self.kind not in (0, _NOBITS)


@dataclass(frozen=True)
class Elf:
    """What the loader asks of one library."""

    sections: Tuple[Section, ...]
    soname: Optional[str]
    needed: Tuple[str, ...]
    runpath: Optional[str]
    rpath: Optional[str]
    glibc: Optional[str]
    """Highest ``GLIBC_`` version it needs, ``2.17``; ``None`` when it needs none."""
    glibcxx: Optional[str]
    """Highest ``GLIBCXX_`` version it needs, ``3.4.22``."""


def is_elf(buffer: Buffer) -> bool:
    """Whether the bytes begin like an ELF file of any kind."""
    return bytes(buffer[: len(_MAGIC)]) == _MAGIC


def read_elf(buffer: Buffer) -> Elf:
    """Everything the loader would read. Raises ``ElfError``."""
    sections = read_sections(buffer)
    tags = _dynamic(buffer, sections)
    versions = _needed_versions(buffer, sections)
    return Elf(
        sections=sections,
        soname=_first(tags, _SONAME),
        needed=tuple(tags.get(_NEEDED, ())),
        runpath=_first(tags, _RUNPATH),
        rpath=_first(tags, _RPATH),
        glibc=_highest(versions, "GLIBC"),
        glibcxx=_highest(versions, "GLIBCXX"),
    )


def read_sections(buffer: Buffer) -> Tuple[Section, ...]:
    """All sections; each one that has bytes lies wholly in the file. Raises ``ElfError``."""
    _require_supported(buffer)
    (table,) = struct.unpack_from("<Q", buffer, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", buffer, 58)
    if count == 0 or entry_size != _HEADER_SIZE or names_index >= count:
        raise ElfError("no usable section headers", 58)
    if table + count * entry_size > len(buffer):
        raise ElfError(
            f"truncated: section headers end at {table + count * entry_size:,}, the file at {len(buffer):,}",
            table,
        )
    headers = list(struct.iter_unpack("<IIQQQQIIQQ", bytes(buffer[table : table + count * entry_size])))
    names_at, names_size = headers[names_index][4], headers[names_index][5]
    return tuple(
        _section(buffer, header, table + index * entry_size, names_at, names_size)
        for index, header in enumerate(headers)
    )


def _require_supported(buffer: Buffer) -> None:
    if not is_elf(buffer):
        raise ElfError("not an ELF file", 0)
    if len(buffer) < _HEADER_SIZE:
        raise ElfError(f"truncated: the file ends after {len(buffer)} bytes, within its header", len(buffer))
    if buffer[4] != _CLASS_64:
        raise ElfError("not a 64-bit ELF file", 4)
    if buffer[5] != _LITTLE_ENDIAN:
        raise ElfError("not a little-endian ELF file", 5)
    (machine,) = struct.unpack_from("<H", buffer, 18)
    if machine != _X86_64:
        raise ElfError(f"not for x86-64 (machine {machine})", 18)


def _section(buffer: Buffer, header: Tuple[int, ...], at: int, names_at: int, names_size: int) -> Section:
    name, kind, _flags, _address, offset, size, link, info, _align, _entry_size = header
    end = min(names_at + names_size, len(buffer))
    section = Section(_text(buffer, names_at + name, end), kind, offset, size, link, info)
    if section.in_file and offset + size > len(buffer):
        raise ElfError(
            f"truncated: section {section.name} ends at {offset + size:,}, the file at {len(buffer):,}", at
        )
    return section


def _dynamic(buffer: Buffer, sections: Sequence[Section]) -> Dict[int, List[str]]:
    """Names by dynamic tag, of the tags that hold a name."""
    found: Dict[int, List[str]] = {}
    for section in sections:
        if section.kind == _DYNAMIC:
            strings = _strings(sections, section)
            for tag, value in _dynamic_entries(buffer, section):
                if tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH):
                    found.setdefault(tag, []).append(_name(buffer, strings, value))
    return found


def _dynamic_entries(buffer: Buffer, section: Section) -> Iterator[Tuple[int, int]]:
    whole = section.size - section.size % 16
    for tag, value in struct.iter_unpack("<qQ", bytes(buffer[section.offset : section.offset + whole])):
        if tag == 0:
            return
        yield tag, value


def _needed_versions(buffer: Buffer, sections: Sequence[Section]) -> List[str]:
    """Every symbol version asked of another library, ``GLIBC_2.17``."""
    found: List[str] = []
    for section in sections:
        if section.kind == _VERNEED:
            strings = _strings(sections, section)
            found += [_name(buffer, strings, name) for name in _version_names(buffer, section)]
    return found


def _version_names(buffer: Buffer, section: Section) -> List[int]:
    """String offsets of a verneed chain. Links go forward only, and no chain has more of them than room."""
    names: List[int] = []
    room = section.size // _VERSION_SIZE
    at, end = section.offset, section.offset + section.size
    for _ in range(room):
        _require_inside(at, end)
        _version, _count, _file, step, following = struct.unpack_from("<HHIII", buffer, at)
        entry = at
        while step and len(names) <= room:
            entry += step
            _require_inside(entry, end)
            _hash, _flags, _other, name, step = struct.unpack_from("<IHHII", buffer, entry)
            names.append(name)
        if not following or len(names) > room:
            break
        at += following
    if len(names) > room:
        raise ElfError("symbol versions overlap", at)
    return names


def _require_inside(at: int, end: int) -> None:
    if at + _VERSION_SIZE > end:
        raise ElfError("symbol versions run past the end of their section", at)


def _strings(sections: Sequence[Section], section: Section) -> Section:
    if section.link >= len(sections) or sections[section.link].kind != _STRTAB:
        raise ElfError(f"section {section.name} names no string table", section.offset)
    return sections[section.link]


def _name(buffer: Buffer, strings: Section, offset: int) -> str:
    return _text(buffer, strings.offset + offset, strings.offset + strings.size)


def _text(buffer: Buffer, start: int, end: int) -> str:
    if start >= end:
        raise ElfError("a name lies outside its string table", start)
    name, terminator, _rest = bytes(buffer[start : min(end, start + _LONGEST_NAME)]).partition(b"\0")
    if not terminator:
        raise ElfError("a name does not end within its string table", start)
    return name.decode("utf-8", "replace")


def _first(tags: Dict[int, List[str]], tag: int) -> Optional[str]:
    return tags[tag][0] if tag in tags else None


def _highest(versions: Sequence[str], family: str) -> Optional[str]:
    matches = [match for match in map(_VERSION.fullmatch, versions) if match and match[1] == family]
    numbers = [tuple(int(part) for part in match[2].split(".")) for match in matches]
    return ".".join(map(str, max(numbers))) if numbers else None
