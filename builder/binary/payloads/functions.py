"""Reader of the kernels and device functions of one unpacked image, and of the kernels that are stubs.

A cubin is an ELF file: its symbol table has the functions, and a bit of ``st_other`` marks kernels (LLVM's
``llvm/BinaryFormat/ELF.h``, ``STO_CUDA_ENTRY``). PTX is text (NVIDIA's PTX ISA, "Directives").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from builder.binary.elf_headers import FormatError, names_in
from builder.binary.kinds.bare_images import cubin_arch
from builder.binary.kinds.file_kinds import HEAD, PTX_HEAD
from builder.binary.payloads.payload_bytes import PayloadError
from builder.binary.payloads.sass import is_stub
from builder.gpu.architectures import Arch

CUBIN = b"\x7fELF\x02\x01\x01"

_CUDA = 190

_SECTION, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")

_SYMBOLS, _FUNCTION, _KERNEL = 2, 2, 0x10
"""SHT_SYMTAB, STT_FUNC, and the bit of ``st_other`` that marks a kernel."""

_WITHOUT_BYTES = frozenset([0, 8, 0x7000_0007, 0x7000_0009, 0x7000_000A, 0x7000_0015])
"""Types of sections without bytes in the file: SHT_NULL, SHT_NOBITS, and those that cuobjdump calls
CUDA_GLOBAL, CUDA_LOCAL, CUDA_SHARED and CUDA_SHARED_RESERVED, which are the GPU's memory and stand in
relocatable cubins."""

_NAMES_FOR_A_BYTE = 8


class Functions(NamedTuple):
    """The functions in one image."""

    kernels: Mapping[str, bool | None]
    """Whether each kernel is a stub, by its mangled name; ``None`` where that is not known."""
    others: bool
    """Whether the image holds a device function that is no kernel; for PTX, only if it has no kernel."""


def of_cubin(data: bytes, arch: Arch) -> Functions:
    """Return the functions of a cubin whose image header names ``arch``.

    Raises ``PayloadError`` for no whole cubin, or one for an architecture with another number.
    """
    if not data.startswith(CUBIN) or data[18:20] != _CUDA.to_bytes(2, "little"):
        raise PayloadError("no cubin: it does not begin like an ELF file for CUDA")
    try:
        found = cubin_arch(data, 0, len(data))
        if found.number != arch.number:  # the suffix is often missing in a cubin's flags
            raise PayloadError(f"its cubin is for sm_{found.number}, its header says sm_{arch}")
        return _symbols(data, _sections(data), arch)
    except (FormatError, struct.error) as error:
        raise PayloadError(f"no whole cubin: {error}") from error


_Section = tuple[int, ...]
"""A section header: name, type, flags, address, offset, size, link, info, alignment, size of an entry."""


def _sections(data: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    if not count and table:  # e_shnum is too small: the first section header has the number
        (count,) = struct.unpack_from("<Q", data, table + 32)
    end = table + count * _SECTION.size
    if end > len(data):
        raise PayloadError("no whole cubin: its section headers lie behind its end")
    sections = list(_SECTION.iter_unpack(data[table:end]))
    for _name, kind, _flags, _address, offset, size, *_rest in sections:
        if kind not in _WITHOUT_BYTES and offset + size > len(data):
            raise PayloadError("no whole cubin: a section lies behind its end")
    return sections


def _symbols(data: bytes, sections: list[_Section], arch: Arch) -> Functions:
    tables = [section for section in sections if section[1] == _SYMBOLS]
    if len(tables) > 1:
        raise PayloadError("no whole cubin: two symbol tables")
    entries = [entry for table in tables for entry in _functions(data, table) if entry[3] < len(sections)]
    kernels = [entry for entry in entries if entry[2] & _KERNEL]
    if not kernels:
        return Functions({}, bool(entries))
    link = tables[0][6]
    if link >= len(sections):
        raise PayloadError("no whole cubin: its symbols have no names")
    strings = range(sections[link][4], sections[link][4] + sections[link][5])
    names = names_in(data, strings, (entry[0] for entry in kernels), most=_NAMES_FOR_A_BYTE * len(data))
    found = {names[entry[0]]: is_stub(_body(data, sections, entry), arch) for entry in kernels}
    return Functions(found, len(entries) > len(kernels))


def _functions(data: bytes, table: _Section) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield the symbols of defined functions: name's offset, info, other, section's index, value, size."""
    start, size = table[4], table[5] // _SYMBOL.size * _SYMBOL.size
    for entry in _SYMBOL.iter_unpack(data[start : start + size]):
        if entry[1] & 15 == _FUNCTION and entry[3]:
            yield entry


def _body(data: bytes, sections: list[_Section], entry: tuple[int, ...]) -> bytes:
    _name, _info, _other, index, value, size = entry
    section = sections[index]
    if section[1] in _WITHOUT_BYTES or value + size > section[5]:
        raise PayloadError("no whole cubin: a kernel lies outside of its section")
    return data[section[4] + value : section[4] + value + size]


_ENTRY = re.compile(rb"\.entry\s+([\w$%]+)")

_FUNC = re.compile(rb"(\.extern\s+)?\.func\b")

_COMMENT = re.compile(rb"//[^\n]*|(?s:/\*.*?(?:\*/|\Z))|\"[^\"\n]*\"")
"""A comment or a text in quotation marks. A comment that nothing ends takes the rest, so that the search for
its end is not repeated from each further beginning."""

_IDLE = re.compile(
    rb"\{\s*(?:(?://[^\n]*\n|\.loc\s[^\n]*\n|\.pragma\s[^;\n]*;|\$\w+:|ret;|exit;|trap;|brkpt;|bra\s[^;\n]*;)\s*)*\}"
)
"""A kernel's body that only returns or traps."""

_PARAMETERS, _BODY = 1 << 14, 1 << 10
"""Most bytes between a kernel's name and its body, and most bytes of an idle body."""


def of_ptx(data: bytes, arch: Arch) -> Functions:
    """Return the functions of PTX whose image header names ``arch``.

    Raises ``PayloadError`` for no whole PTX, or PTX for another architecture.
    """
    text = data.rstrip(b"\0")
    head = PTX_HEAD.match(text[:HEAD])
    if head is None:
        raise PayloadError("no PTX: .version and .target do not stand at its beginning")
    found = Arch.parse(head[3].decode())
    if found != arch:
        raise PayloadError(f"its PTX is for sm_{found}, its header says {arch}")
    if b"\0" in text:
        raise PayloadError("no whole PTX: zeros stand in its text")
    if not _is_paired(text) and not _is_paired(_COMMENT.sub(b"", text)):
        raise PayloadError("no whole PTX: its braces do not pair")
    kernels = {
        entry[1].decode(): _returns(text, entry.end())
        for entry in _ENTRY.finditer(text)
        if not _in_comment(text, entry.start())
    }
    others = not kernels and any(not found[1] for found in _FUNC.finditer(text))
    return Functions(kernels, others)


def _is_paired(text: bytes) -> bool:
    return text.count(b"{") == text.count(b"}")


def _in_comment(text: bytes, at: int) -> bool:
    first = max(0, at - _PARAMETERS)
    begin = max(text.rfind(b"\n", first, at), first)
    return b"//" in text[begin:at]


def _returns(text: bytes, at: int) -> bool:
    begin = text.find(b"{", at, at + _PARAMETERS)
    return begin != -1 and _IDLE.match(text, begin, begin + _BODY) is not None
