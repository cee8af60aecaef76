"""This module determines the kind of a file with device code, and reads the members of a static library.

A file's first bytes give its kind. An archive of objects, ``libfoo.a``, may be in the format of System V, GNU
or BSD; a thin archive of GNU ``ar`` holds only the names of its objects. Sources: the System V ABI on
``e_type`` and ``e_machine``, of which 190 is CUDA; FreeBSD's ``ar(5)``, and GNU ``ar``'s manual on thin
archives; NVIDIA's PTX ISA, "Directives", on how PTX begins.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from builder.binary.elf_headers import Buffer, FormatError
from builder.binary.pe import is_pe_head

HEAD = 1024
"""Number of a file's first bytes that ``kind_of`` needs."""


class FileKind(Enum):
    """Kinds of files, named as messages name them."""

    LIBRARY = "a library"
    """A shared library or a program, as an ELF file."""
    DLL = "a DLL"
    """A DLL or a program for Windows."""
    OBJECT = "an object file"
    ARCHIVE = "an archive of objects"
    FATBIN = "a bare fatbin"
    """A file that ``nvcc --fatbin`` writes."""
    CUBIN = "a bare cubin"
    PTX = "PTX text"


NO_SECTIONS = (FileKind.FATBIN, FileKind.CUBIN, FileKind.PTX)
"""Kinds of files that consist of device code only and have no sections for the host."""

_ELF, _OBJECT, _CUDA = b"\x7fELF", 1, 190

_MAGICS = {
    b"\x50\xed\x55\xba": FileKind.FATBIN,
    b"!<arch>\n": FileKind.ARCHIVE,
    b"!<thin>\n": FileKind.ARCHIVE,
}

DEBIAN_PACKAGE = b"!<arch>\ndebian-binary"
"""The first bytes of a ``.deb``, which is an archive of tars and not of objects (Debian's ``deb(5)``)."""

_SPACE = rb"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"

PTX_HEAD = re.compile(
    rb"%b\.version\s+(\d{1,2})\.(\d{1,2})\s%b\.target\s+sm_(\d{2,3}[af]?)\b" % (_SPACE, _SPACE)
)
"""The beginning of PTX: comments, the version of the PTX ISA (groups 1, 2), the architecture (group 3)."""


def kind_of(head: bytes) -> FileKind | None:
    """Return the kind of a file with these first ``HEAD`` bytes; ``None`` for a file of another kind."""
    if head.startswith(_ELF):
        of, machine = struct.unpack_from("<HH", head.ljust(20, b"\0"), 16)
        return FileKind.CUBIN if machine == _CUDA else FileKind.OBJECT if of == _OBJECT else FileKind.LIBRARY
    known = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), None)
    if known or not head:
        return None if head.startswith(DEBIAN_PACKAGE) else known
    if is_pe_head(head):
        return FileKind.DLL
    return FileKind.PTX if PTX_HEAD.match(head) else None


_BEGIN, _THIN = b"!<arch>\n", b"!<thin>\n"

_HEADER, _SIZE_AT, _END = 60, slice(48, 58), b"`\n"

_MOST_MEMBERS = 1 << 15
"""Most members of an archive; libtorch_cuda's has some thousand."""

_TABLES = (b"/", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED")

_NAMES = b"//"

_IMPORT = b"\0\0\xff\xff"
"""The first bytes of a member of an import library of Windows: the name of one function, and no code (the PE
format's documentation, "Import Header")."""

_BSD = b"#1/"
"""Before the length of a long BSD name, which stands before the member's bytes and counts as part of them."""


class ArchiveError(FormatError):
    """The archive is incomplete, thin (without its objects), or too large to be read."""


class ObjectFile(NamedTuple):
    """One member of an archive: its name, kind, and the offsets of its bytes in the archive."""

    name: str
    kind: FileKind | None
    start: int
    end: int


def read_members(buffer: Buffer) -> Iterator[ObjectFile]:
    """Yield the members in the archive's order, without tables of symbols and names.

    Raises ``ArchiveError`` for a thin or damaged archive.
    """
    if bytes(buffer[: len(_THIN)]) == _THIN:
        raise ArchiveError("a thin archive: its objects lie elsewhere, name those or their folder", 0)
    at, names, room = len(_BEGIN), b"", _MOST_MEMBERS
    while at < len(buffer):
        header = bytes(buffer[at : at + _HEADER])
        if len(header) < _HEADER or not header.endswith(_END):
            raise ArchiveError("no whole header of a member where one must begin", at)
        digits, start = header[_SIZE_AT].strip(b" "), at + _HEADER
        if not digits.isdigit() or start + int(digits) > len(buffer):
            raise ArchiveError("truncated: a member ends behind the file's end", at)
        end = start + int(digits)
        name = header[:16].rstrip(b" ")
        if name.startswith(_BSD) and name[len(_BSD) :].isdigit():
            begin, start = start, min(end, start + int(name[len(_BSD) :]))
            name = bytes(buffer[begin : min(start, begin + _LONGEST_NAME)]).rstrip(b"\0")
        if name == _NAMES:
            names = bytes(buffer[start : min(end, start + _LONGEST_NAMES)])
        elif name not in _TABLES and bytes(buffer[start : start + len(_IMPORT)]) != _IMPORT:
            room -= 1
            if room < 0:
                raise ArchiveError(f"more than {_MOST_MEMBERS:,} members", at)
            kind = kind_of(bytes(buffer[start : min(end, start + HEAD)]))
            yield ObjectFile(_shown(name, names), kind, start, end)
        at = end + end % 2


_LONGEST_NAMES, _LONGEST_NAME = 1 << 24, 256


def _shown(name: bytes, names: bytes) -> str:
    if name[:1] == b"/" and name[1:].isdigit():
        place = int(name[1:])
        name = names[place : place + _LONGEST_NAME].partition(b"\n")[0]
    return name.removesuffix(b"/").decode(errors="replace")
