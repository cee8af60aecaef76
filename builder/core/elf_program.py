"""What the program headers of an ELF file say: its build-id, and whether it asks for an executable stack.

Sources: the System V ABI, chapter "Program Loading and Dynamic Linking"; the Linux gABI extension on
``PT_GNU_STACK``; glibc's ``elf/dl-load.c`` and ``sysdeps/x86_64/stackinfo.h``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Iterator, Optional, Sequence, Tuple

from builder.core.elf_sections import Buffer, ElfError, require_supported

_ENTRY_SIZE = 56
_NOTE, _GNU_STACK = 4, 0x6474E551
_EXECUTE = 1
_BUILD_ID, _GNU = 3, b"GNU\0"
_NOTE_HEADER_SIZE = 12
_WIDE = 8
_MOST_NOTES = 4096
"""Of a library; real ones have one or two."""
_LONGEST_BUILD_ID = 64


@dataclass(frozen=True)
class Segment:
    """One program header: ``offset`` and ``size`` in the file, in bytes."""

    kind: int
    flags: int
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True)
class _Note:
    """One note: who it is from, and where its text lies in the file. Of a long name only the beginning."""

    owner: bytes
    kind: int
    offset: int
    size: int


def read_segments(buffer: Buffer) -> Tuple[Segment, ...]:
    """All program headers; each one that has bytes lies wholly in the file. Raises ``ElfError``."""
    require_supported(buffer)
    (table,) = struct.unpack_from("<Q", buffer, 32)
    entry_size, count = struct.unpack_from("<HH", buffer, 54)
    if count and entry_size != _ENTRY_SIZE:
        raise ElfError("no usable program headers", 54)
    if count and table + count * _ENTRY_SIZE > len(buffer):
        end = table + count * _ENTRY_SIZE
        raise ElfError(f"truncated: program headers end at {end:,}, the file at {len(buffer):,}", table)
    headers = struct.iter_unpack("<IIQQQQQQ", bytes(buffer[table : table + count * _ENTRY_SIZE]))
    return tuple(
        _segment(buffer, header, table + index * _ENTRY_SIZE) for index, header in enumerate(headers)
    )


def asks_for_executable_stack(segments: Sequence[Segment]) -> bool:
    """Whether ``PT_GNU_STACK`` has the flag X, or is not there at all.

    Without the header glibc takes its default for x86-64, a stack that is executable; from 2.41 on ``dlopen``
    refuses such a library. (The kernel's own default differs, and is for programs only.)
    """
    stacks = [segment for segment in segments if segment.kind == _GNU_STACK]
    return not stacks or any(stack.flags & _EXECUTE for stack in stacks)


def find_build_id(buffer: Buffer, segments: Sequence[Segment]) -> Optional[str]:
    """The first GNU build-id in a note segment, in hex; ``None`` without one. Raises ``ElfError``."""
    notes = (note for segment in segments if segment.kind == _NOTE for note in _notes(buffer, segment))
    for count, note in enumerate(notes):
        if count == _MOST_NOTES:
            raise ElfError(f"more than {_MOST_NOTES:,} notes", note.offset)
        if (note.owner, note.kind) == (_GNU, _BUILD_ID):
            if not 0 < note.size <= _LONGEST_BUILD_ID:
                raise ElfError(f"a build-id of {note.size:,} bytes", note.offset)
            return bytes(buffer[note.offset : note.offset + note.size]).hex()
    return None


def _segment(buffer: Buffer, header: Tuple[int, ...], at: int) -> Segment:
    kind, flags, offset, _address, _physical, size, _in_memory, alignment = header
    if size and offset + size > len(buffer):
        raise ElfError(f"truncated: a segment ends at {offset + size:,}, the file at {len(buffer):,}", at)
    return Segment(kind, flags, offset, size, alignment)


def _notes(buffer: Buffer, segment: Segment) -> Iterator[_Note]:
    """The notes of a segment, padded to 8 bytes where it is aligned so, else to 4."""
    step = _WIDE if segment.alignment == _WIDE else 4
    at, end = 0, segment.size
    while at + _NOTE_HEADER_SIZE <= end:
        name_size, size, kind = struct.unpack_from("<III", buffer, segment.offset + at)
        name_at = at + _NOTE_HEADER_SIZE
        text_at = _padded(name_at + name_size, step)
        if text_at + size > end:
            raise ElfError("a note runs past the end of its segment", segment.offset + at)
        owner_at = segment.offset + name_at
        owner = bytes(buffer[owner_at : owner_at + min(name_size, len(_GNU) + 1)])
        yield _Note(owner, kind, segment.offset + text_at, size)
        at = _padded(text_at + size, step)


def _padded(size: int, to: int) -> int:
    return -(-size // to) * to
