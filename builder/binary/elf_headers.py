"""Reader of the headers of an ELF64 little-endian file: sections, names in string tables, ``PT_GNU_STACK``.

Sources: the System V ABI, chapters "Object Files" and "Program Loading and Dynamic Linking"; the Linux gABI
extension on ``PT_GNU_STACK``; glibc's ``elf/dl-load.c`` and ``sysdeps/x86_64/stackinfo.h``.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Union

Buffer = Union[bytes, mmap.mmap]

LARGEST = 4 << 30
"""Most bytes of a file that is read. The largest library of a package has 0.7 GiB; x86-64 code reaches 2."""

_MAGIC = b"\x7fELF"

_HEADER_SIZE = 64

_CLASS_64, _LITTLE_ENDIAN = 2, 1

_MACHINES = {62: "x86-64", 183: "aarch64"}
"""Names of machines by ``e_machine``; other machines are read too and get a number as their name."""

PROGBITS, _STRTAB, NOBITS = 1, 3, 8

EXECINSTR = 4

_LONGEST_NAME = 1 << 16
"""Most bytes of one name with its final zero. Symbols of CUTLASS and RUNPATHs of Bazel have thousands."""

_MOST_TEXT = 1 << 20
"""Most bytes of all names that one table refers to, repeated names included; real tables have below 500."""

_MOST_OBJECT_TEXT, _NAMES_FOR_A_BYTE = 1 << 26, 4
"""The limit on names for an object file, which has a section for each function: the smaller of an absolute
number of bytes and a number per byte of the file."""

_MOST_SECTIONS = 1 << 18
"""Most sections of a file whose first section header holds their number: ``e_shnum`` reaches 65,279."""

_SHORT, _LONG = 64, 4 << 20
"""Bytes of the first and of the longest stretch: the bytes that are searched for are usually near."""


def stretches(buffer: Buffer, start: int, end: int) -> Iterator[range]:
    """Yield consecutive ranges of offsets to search, from ``start`` to ``end``, in growing sizes.

    A range of ``_LONG`` bytes that are all zero is skipped. The pages of a range of ``_LONG`` bytes are
    released after the caller has processed the range.
    """
    size = _SHORT
    while start < end:
        stop = min(end, start + size)
        if size < _LONG or not _is_zeros(buffer, start, stop):
            yield range(start, stop)
        if size == _LONG:
            release_pages(buffer, start, stop)
        start, size = stop, min(2 * size, _LONG)


def _is_zeros(buffer: Buffer, start: int, stop: int) -> bool:
    """Return whether all bytes are zero. It compares the first ``_SHORT`` bytes first, to find data fast."""
    if isinstance(buffer, MappedFile) and buffer.is_hole(start, stop):
        return True
    return all(buffer[start:end] == bytes(end - start) for end in (min(stop, start + _SHORT), stop))


def release_pages(buffer: Buffer, start: int, end: int) -> None:
    """Release the memory pages of a mapped file between two offsets; a later read loads them again.

    Windows releases pages without a call and has none for it.
    """
    if isinstance(buffer, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        first = start - start % mmap.PAGESIZE
        if end > first:
            buffer.madvise(mmap.MADV_DONTNEED, first, end - first)


class MappedFile(mmap.mmap):
    """A read-only memory map of an open file. The file must stay open while ``is_hole`` is used."""

    _number: int

    def __new__(cls, file: IO[bytes]) -> MappedFile:  # noqa: PYI034 - Self is newer than Python 3.9
        """Map the whole file, which must not be empty."""
        made = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        made._number = file.fileno()
        return made

    def is_hole(self, start: int, stop: int) -> bool:
        """Return whether the bytes are a hole of a sparse file: zeros without blocks on the disk."""
        if not hasattr(os, "SEEK_DATA"):
            return False
        try:
            return os.lseek(self._number, start, os.SEEK_DATA) >= stop
        except OSError as error:
            return error.errno == errno.ENXIO


class FormatError(ValueError):
    """The file is incomplete or not of its kind. ``offset``: the place of the fault, in bytes."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        self._message = message
        super().__init__(f"{message} (at offset {offset:#x})")

    def inside(self, what: str, start: int) -> FormatError:
        """Return this error for the enclosing file, in which the part called ``what`` begins at ``start``."""
        return type(self)(f"{what}: {self._message}", self.offset + start)


class ElfError(FormatError):
    """The file is incomplete, or not an ELF64 little-endian file."""


@dataclass(frozen=True)
class Section:
    """One section: ``offset`` and ``size`` in bytes. ``kind`` is ``sh_type``, ``flags`` is ``sh_flags``.

    Sections of a PE file are described with ELF's numbers for kind and flags.
    """

    name: str
    kind: int
    offset: int
    size: int
    link: int
    flags: int
    address: int
    """The section's virtual address; for a PE file, with the image base added."""

    @property
    def in_file(self) -> bool:
        """Whether the section's bytes lie in the file (``.bss`` has none)."""
        return self.kind not in (0, NOBITS)

    @property
    def executable(self) -> bool:
        """Whether the section holds machine code of the host (SHF_EXECINSTR)."""
        return bool(self.flags & EXECINSTR)


def machine_of(buffer: Buffer) -> str:
    """Return the processor that an ELF file is for: ``x86-64``, ``aarch64``, or a number, ``machine 243``.

    Every processor is accepted: device code lies in the same sections for each of them, and packages hold
    objects for other hardware too, like MindSpore's for Ascend, machine 4137. Raises ``ElfError`` for a file
    that is no 64-bit little-endian ELF file or has more than ``LARGEST`` bytes.
    """
    if not buffer:
        raise ElfError("the file is empty", 0)
    if bytes(buffer[: len(_MAGIC)]) != _MAGIC:
        raise ElfError("not an ELF file", 0)
    if len(buffer) < _HEADER_SIZE:
        raise ElfError(f"truncated: the file ends after {len(buffer)} bytes, within its header", len(buffer))
    if buffer[4] != _CLASS_64:
        raise ElfError("not a 64-bit ELF file", 4)
    if buffer[5] != _LITTLE_ENDIAN:
        raise ElfError("not a little-endian ELF file", 5)
    (machine,) = struct.unpack_from("<H", buffer, 18)
    if len(buffer) > LARGEST:
        raise ElfError(f"a file of {len(buffer):,} bytes: no library is larger than 4 GiB", LARGEST)
    return _MACHINES.get(machine, f"machine {machine}")


def _is_object(buffer: Buffer) -> bool:
    return bytes(buffer[16:18]) == b"\1\0"


def section_count(buffer: Buffer) -> int:
    """Return the number of sections that the ELF header names. Raises ``ElfError`` for a bad header."""
    return _section_table(buffer)[1]


def _section_table(buffer: Buffer) -> tuple[int, int, int]:
    """Return the section headers' offset and number, and the index of the section with the sections' names.

    Raises ``ElfError`` where the headers are unusable or not wholly in the file.
    """
    machine_of(buffer)
    (table,) = struct.unpack_from("<Q", buffer, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", buffer, 58)
    if table and not count and table + _HEADER_SIZE <= len(buffer):  # the first section header has the number
        size, names_index = struct.unpack_from("<QI", buffer, table + 32)
        count = min(size, _MOST_SECTIONS)
    if entry_size != _HEADER_SIZE or names_index >= count:
        raise ElfError("no usable section headers", 58)
    if table + count * entry_size > len(buffer):
        raise ElfError(
            f"truncated: section headers end at {table + count * entry_size:,}, the file at {len(buffer):,}",
            table,
        )
    return table, count, names_index


def section_headers(buffer: Buffer) -> tuple[list[tuple[int, ...]], int]:
    """Return the fields of all section headers, and the index of the section with the sections' names.

    The fields are name, kind, flags, address, offset, size, link, info, alignment and size of an entry.
    Raises ``ElfError`` where the headers are unusable or not wholly in the file.
    """
    table, count, names_index = _section_table(buffer)
    whole = bytes(buffer[table : table + count * _HEADER_SIZE])
    return list(struct.iter_unpack("<IIQQQQIIQQ", whole)), names_index


def read_sections(buffer: Buffer) -> tuple[Section, ...]:
    """Return all sections. Raises ``ElfError`` where one with bytes does not lie wholly in the file."""
    table = _section_table(buffer)[0]
    headers, names_index = section_headers(buffer)
    names_at, names_size = headers[names_index][4:6]
    strings = range(names_at, min(names_at + names_size, len(buffer)))
    most = min(_NAMES_FOR_A_BYTE * len(buffer), _MOST_OBJECT_TEXT) if _is_object(buffer) else _MOST_TEXT
    names = names_in(buffer, strings, (header[0] for header in headers), most=most)
    sections = []
    for index, (name, kind, flags, address, offset, size, link, *_rest) in enumerate(headers):
        section = Section(names[name], kind, offset, size, link, flags, address)
        if section.in_file and offset + size > len(buffer):
            ends = f"section {section.name} ends at {offset + size:,}, the file at {len(buffer):,}"
            raise ElfError(f"truncated: {ends}", table + index * _HEADER_SIZE)
        sections.append(section)
    return tuple(sections)


def single_section(sections: Sequence[Section], kind: int) -> Section | None:
    """Return the only section of type ``kind``; ``None`` where there is none. Raises ``ElfError`` for two."""
    alike = [section for section in sections if section.kind == kind]
    if len(alike) > 1:
        raise ElfError(f"two sections of type {kind:#x}: {alike[0].name}, {alike[1].name}", alike[1].offset)
    return alike[0] if alike else None


def strings_of(sections: Sequence[Section], section: Section) -> range:
    """Return the file offsets of the string table that ``section`` links to.

    Raises ``ElfError`` where the linked section is no string table.
    """
    if section.link >= len(sections) or sections[section.link].kind != _STRTAB:
        raise ElfError(f"section {section.name} names no string table", section.offset)
    strings = sections[section.link]
    return range(strings.offset, strings.offset + strings.size)


def names_in(
    buffer: Buffer,
    strings: range,
    offsets: Iterable[int],
    *,
    most: int = _MOST_TEXT,
) -> dict[int, str]:
    """Return the names at ``offsets`` of the string table that lies at ``strings``, by offset.

    Raises ``ElfError`` for a name outside of the table, for a name of ``_LONGEST_NAME`` bytes or more, and
    where all names, repeated offsets included, have more than ``most`` bytes.
    """
    names: dict[int, str] = {}
    room = most
    for offset in offsets:
        at = strings.start + offset
        if at >= strings.stop:
            raise ElfError("a name lies outside its string table", at)
        end = buffer.find(b"\0", at, min(strings.stop, at + _LONGEST_NAME))
        if end == -1:
            raise ElfError("a name does not end within its string table", at)
        names[offset] = bytes(buffer[at:end]).decode(errors="replace")
        room -= end - at
        if room < 0:
            raise ElfError(f"more than {most:,} bytes of names", at)
    return names


_PROGRAM_HEADER_SIZE = 56

_LOAD, _GNU_STACK, _EXECUTE = 1, 0x6474E551, 1


def asks_for_executable_stack(buffer: Buffer) -> bool:
    """Return whether ``PT_GNU_STACK`` has the flag X or is missing. Raises ``ElfError`` for a bad table.

    Without the header, glibc assumes its default for x86-64, an executable stack; from 2.41 on ``dlopen``
    refuses such a library. (The kernel has another default, for programs only.) Every segment of type
    ``PT_LOAD`` must lie wholly in the file; segments of other types, like a patched library's note, need not.
    """
    machine_of(buffer)
    (table,) = struct.unpack_from("<Q", buffer, 32)
    entry_size, count = struct.unpack_from("<HH", buffer, 54)
    if count and entry_size != _PROGRAM_HEADER_SIZE:
        raise ElfError("no usable program headers", 54)
    table_end = table + count * _PROGRAM_HEADER_SIZE
    if count and table_end > len(buffer):
        raise ElfError(f"truncated: program headers end at {table_end:,}, the file at {len(buffer):,}", table)
    stacks = []
    for index, header in enumerate(struct.iter_unpack("<IIQQQQQQ", bytes(buffer[table:table_end]))):
        kind, flags, offset, _address, _physical, size, _in_memory, _alignment = header
        if kind == _LOAD and size and offset + size > len(buffer):
            at = table + index * _PROGRAM_HEADER_SIZE
            raise ElfError(f"truncated: a segment ends at {offset + size:,}, the file at {len(buffer):,}", at)
        if kind == _GNU_STACK:
            stacks.append(flags)
    return not stacks or any(flags & _EXECUTE for flags in stacks)
