"""This module determines the kind of a file with device code by the file's first bytes.

Sources: the System V ABI on ``e_type`` and ``e_machine``, of which 190 is CUDA; FreeBSD's ``ar(5)``, and GNU
``ar``'s manual on thin archives; NVIDIA's PTX ISA, "Directives", on how PTX begins.
"""

from __future__ import annotations

import re
import struct
from enum import Enum

from builder.binary.kinds.pe import is_pe_head

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
