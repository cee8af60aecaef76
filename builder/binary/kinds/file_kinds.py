"""What a file is, by its first bytes: each kind that device code comes in.

Sources: the System V ABI on ``e_type`` and ``e_machine``, of which 190 is CUDA; FreeBSD's ``ar(5)``, and GNU
``ar``'s manual on thin archives; NVIDIA's PTX ISA, "Directives", on how PTX begins.
"""

from __future__ import annotations

import re
import struct
from enum import Enum

from builder.binary.kinds.pe import is_pe_head

HEAD = 1024
"""Bytes at the start of a file that ``kind_of`` has to see."""


class FileKind(Enum):
    """What a file is."""

    LIBRARY = "a library"
    """Also a program."""
    DLL = "a DLL"
    """Also a program for Windows."""
    OBJECT = "an object file"
    ARCHIVE = "an archive of objects"
    FATBIN = "a bare fatbin"
    """As ``nvcc --fatbin`` writes it."""
    CUBIN = "a bare cubin"
    PTX = "PTX text"


NO_SECTIONS = (FileKind.FATBIN, FileKind.CUBIN, FileKind.PTX)
"""What has device code and nothing around it."""

_ELF, _OBJECT, _CUDA = b"\x7fELF", 1, 190

_MAGICS = {
    b"\x50\xed\x55\xba": FileKind.FATBIN,
    b"!<arch>\n": FileKind.ARCHIVE,
    b"!<thin>\n": FileKind.ARCHIVE,
}

_SPACE = rb"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"

PTX_HEAD = re.compile(
    rb"%b\.version\s+(\d{1,2})\.(\d{1,2})\s%b\.target\s+sm_(\d{2,3}[af]?)\b" % (_SPACE, _SPACE)
)
"""The version of its instruction set and its architecture, behind comments alone."""


def kind_of(head: bytes) -> FileKind | None:
    """What a file with these first ``HEAD`` bytes is; ``None`` for anything that is not read here."""
    if head.startswith(_ELF):
        of, machine = struct.unpack_from("<HH", head.ljust(20, b"\0"), 16)
        return FileKind.CUBIN if machine == _CUDA else FileKind.OBJECT if of == _OBJECT else FileKind.LIBRARY
    known = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), None)
    if known or not head:
        return known
    if is_pe_head(head):
        return FileKind.DLL
    return FileKind.PTX if PTX_HEAD.match(head) else None
