"""Reader of a Windows library: its sections, its name, and the libraries that it imports.

Source: Microsoft's "PE Format"; for the loader's limit of 96 sections, the chapter "COFF File Header" in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from builder.binary.elf_headers import EXECINSTR, LARGEST, NOBITS, PROGBITS, Buffer, FormatError, Section

_DOS, _AT = b"MZ", 0x3C

_FARTHEST = 1 << 16
"""Offset that the PE header must be below; linkers write it at some 250."""

_HEAD = 64
"""Bytes of the DOS header."""

_SIGNATURE = b"PE\0\0"

_FILE_HEADER = struct.Struct("<4sHHIIIHH")
"""Signature, machine, number of sections, time, offset and number of symbols, bytes of the optional header,
characteristics."""

_MACHINES = {0x8664: "x86-64", 0xAA64: "aarch64", 0x14C: "x86"}

_OPTIONAL = {0x10B: ("<28xI60xI", 96), 0x20B: ("<24xQ76xI", 112)}
"""Format of base address and number of directories, and the first directory's offset, by magic number."""

_EXPORT, _IMPORT, _SIGNATURES, _DELAYED = 0, 1, 4, 13
"""Numbers of directories. The signatures' address is an offset in the file, behind the last section."""

_SECTION = struct.Struct("<8sIIII12xI")
"""A section's name, size and address in memory, size and offset in the file, flags."""

_MOST_SECTIONS = 96

_EXECUTE = 0x20000000

_FULL_NAMES = {name[:8]: name for name in (".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment")}
"""The full names of CUDA's sections by the eight bytes to which a linker cuts a section's name."""

_MOST_LIBRARIES, _LONGEST_NAME = 1 << 10, 1 << 10

_MOST_EXPORTS = 1 << 16

_BY_OFFSET = 1
"""The attribute of a delayed import whose addresses are relative to the image base; very old imports without
the attribute have absolute addresses."""


class PeError(FormatError):
    """The file is incomplete, or not a PE file for x64, ARM64 or x86."""


@dataclass(frozen=True)
class Pe:
    """One DLL or program for Windows, by the data that the Windows loader uses."""

    sections: tuple[Section, ...]
    machine: str
    soname: str | None
    """The name in the library's export directory; ``None`` without one."""
    needed: tuple[str, ...]
    """File names of the libraries that it imports, first those at load time, then delayed ones."""
    forwards: tuple[str, ...] = ()
    """File names of the libraries that its forwarded exports lead to; using such an export loads them."""


def is_pe_head(head: bytes) -> bool:
    """Return whether a file with these first 64 bytes begins like a PE file."""
    return len(head) >= _HEAD and head.startswith(_DOS) and _HEAD <= _start(head) < _FARTHEST


def is_pe(buffer: Buffer) -> bool:
    """Return whether the file begins like a PE file of any kind."""
    return is_pe_head(bytes(buffer[:_HEAD]))


def read_pe(buffer: Buffer) -> Pe:
    """Return a PE file's sections, machine, own name and imports. Raises ``PeError`` for a bad file."""
    if len(buffer) > LARGEST:
        raise PeError(f"a file of {len(buffer):,} bytes: no library is larger than 4 GiB", LARGEST)
    return _Reader(buffer).read()


def read_exports(buffer: Buffer) -> frozenset[str]:
    """Return the names of what a PE file exports. Raises ``PeError`` for a bad file."""
    return frozenset(_Reader(buffer).exports())


def _start(head: bytes) -> int:
    (start,) = struct.unpack_from("<I", head, _AT)
    return int(start)


class _Reader:
    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        at = _start(self._bytes(0, _HEAD, "the header"))
        header = self._bytes(at, _FILE_HEADER.size, "the header")
        signature, machine, count, _time, _table, _symbols, size, _flags = _FILE_HEADER.unpack(header)
        if signature != _SIGNATURE:
            raise PeError("not a PE file: no signature where its header says", at)
        if machine not in _MACHINES:
            raise PeError(f"not for x64, ARM64 or x86 (machine {machine:#06x})", at + 4)
        if count > _MOST_SECTIONS:
            raise PeError(f"{count} sections, and Windows loads no file with more than {_MOST_SECTIONS}", at)
        self._machine = _MACHINES[machine]
        self._optional_at = at + _FILE_HEADER.size
        self._optional = self._bytes(self._optional_at, size, "the optional header")
        self._base, self._directories, self._sizes = self._read_optional()
        self._sections = tuple(self._read_sections(self._optional_at + size, count))
        if at := self._directory(_SIGNATURES):
            self._bytes(at + self._sizes[_SIGNATURES], 0, "its signature")

    def read(self) -> Pe:
        imports, forwards = (tuple(dict.fromkeys(names)) for names in (self._imports(), self._forwards()))
        return Pe(self._sections, self._machine, self._own_name(), imports, forwards)

    def _bytes(self, at: int, size: int, what: str) -> bytes:
        if at + size > len(self._buffer):
            raise PeError(f"truncated: {what} ends at {at + size:,}, the file at {len(self._buffer):,}", at)
        return bytes(self._buffer[at : at + size])

    def _read_optional(self) -> tuple[int, Sequence[int], Sequence[int]]:
        """Return the base address, and the directories' addresses and sizes, by the directory's number."""
        magic = int.from_bytes(self._optional[:2], "little")
        form, first = _OPTIONAL.get(magic, ("", 0))
        if not form or len(self._optional) < first:
            raise PeError(f"no usable optional header (magic {magic:#06x})", self._optional_at)
        base, count = struct.unpack_from(form, self._optional)
        whole = self._optional[first : first + 8 * min(count, (len(self._optional) - first) // 8)]
        directories = list(struct.iter_unpack("<II", whole))
        return base, [address for address, _size in directories], [size for _address, size in directories]

    def _read_sections(self, at: int, count: int) -> Iterator[Section]:
        table = self._bytes(at, count * 40, "the table of sections")
        for place in range(0, len(table), 40):
            cut, in_memory, address, in_file, offset, flags = _SECTION.unpack_from(table, place)
            name = cut.rstrip(b"\0").decode(errors="replace")
            size = min(in_file, in_memory or in_file)
            self._bytes(offset + size, 0, f"section {name}")
            yield Section(
                name=_FULL_NAMES.get(name, name),
                kind=PROGBITS if size else NOBITS,
                offset=offset,
                size=size,
                link=0,
                flags=EXECINSTR if flags & _EXECUTE else 0,
                address=self._base + address,
            )

    def _own_name(self) -> str | None:
        table = self._directory(_EXPORT)
        return self._name(int.from_bytes(self._at(table, 40)[12:16], "little")) if table else None

    def _forwards(self) -> Iterator[str]:
        """Yield the library of each forwarded export.

        A forwarded export's address lies in the export directory and is that of a text ``DLL.name``.
        """
        for address in self._exported(20):
            if 0 <= address - self._directory(_EXPORT) < self._sizes[_EXPORT]:
                yield f"{self._name(address).rpartition('.')[0]}.dll"

    def exports(self) -> Iterator[str]:
        """Yield the names of exports."""
        yield from map(self._name, self._exported(24))

    def _exported(self, place: int) -> Iterator[int]:
        """Yield the addresses in a table of exports, whose length and address are at ``place``."""
        if table := self._directory(_EXPORT):
            count, addresses = struct.unpack_from("<I4xI", self._at(table, 40), place)
            if count > _MOST_EXPORTS:
                raise PeError(f"{count:,} exports, and Windows counts them with 16 bits", table)
            whole = self._at(addresses, 4 * count) if count else b""
            yield from (address for (address,) in struct.iter_unpack("<I", whole))

    def _imports(self) -> Iterator[str]:
        for entry in self._entries(_IMPORT, "<12xI4x"):
            yield self._name(entry[0])
        for attributes, address in self._entries(_DELAYED, "<II24x"):
            yield self._name(address if attributes & _BY_OFFSET else address - self._base)

    def _entries(self, directory: int, form: str) -> Iterator[tuple[int, ...]]:
        """Yield the entries of a directory up to the one without a name, which marks the directory's end.

        The last field of ``form`` is the address of the name.
        """
        table, size = self._directory(directory), struct.calcsize(form)
        for place in range(_MOST_LIBRARIES if table else 0):
            entry = struct.unpack(form, self._at(table + place * size, size))
            if not entry[-1]:
                return
            yield entry
        if table:
            raise PeError("a directory of imports without an end", table)

    def _directory(self, number: int) -> int:
        return self._directories[number] if number < len(self._directories) else 0

    def _name(self, address: int) -> str:
        start, end = self._place(address)
        stop = self._buffer.find(b"\0", start, min(end, start + _LONGEST_NAME))
        if stop == -1:
            raise PeError("the name of a library does not end within its section", start)
        return bytes(self._buffer[start:stop]).decode(errors="replace")

    def _at(self, address: int, size: int) -> bytes:
        start, end = self._place(address)
        if start + size > end:
            raise PeError("a directory runs past the end of its section", start)
        return bytes(self._buffer[start : start + size])

    def _place(self, address: int) -> tuple[int, int]:
        """Return the file offsets of a relative address and of its section's end.

        Raises ``PeError`` for an address outside of all sections.
        """
        for section in self._sections:
            there = self._base + address - section.address
            if 0 <= there < section.size:
                return section.offset + there, section.offset + section.size
        raise PeError(f"the address {address:#x} lies in no section", 0)
