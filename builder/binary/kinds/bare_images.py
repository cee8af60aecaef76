"""Readers of cubins and PTX without a container; each is returned as a container of one image.

A cubin's ELF flags hold its architecture (LLVM's ``llvm/BinaryFormat/ELF.h``, ``EF_CUDA_SM`` and the
constants next to it). The flags do not hold the suffix ``f`` (seen in NVRTC 12.9's code for all
architectures), nor the suffix ``a`` of CUDA 13 (90a and 120a in ONNX Runtime 1.31.1). Cubins of the newer ABI
hold the options of their assembler in ``.note.nv.tkinfo``, with the suffix: ``-arch sm_120f``.
"""

from __future__ import annotations

import re
import struct

from builder.binary.elf_headers import Buffer
from builder.binary.fatbin_format import ARCHES, Container, FatbinError, Image, Kind
from builder.binary.kernels import CUBIN, PTX, CodeFinder
from builder.binary.kinds.file_kinds import HEAD, PTX_HEAD
from builder.binary.payloads.payload_bytes import Compression
from builder.gpu.architectures import Arch

_HEADER = struct.Struct("<8xB23xQQIHHHHH")
"""A cubin's ELF header: version of the ABI, offsets of program and section headers, flags, the ELF header's
size, size and number of the program headers, size and number of the section headers."""

_FIRST_ABI = 7

_SUFFIX_A = {False: 0x800, True: 0x8}
"""The flag for the suffix ``a``, by whether the ABI is newer than the first."""


def read_cubin(buffer: Buffer, start: int, end: int, code: CodeFinder) -> Container:
    """Return the cubin at ``start`` as a container. Raises ``FatbinError`` for a bad header."""
    return _alone(buffer, start, end, Kind.SASS, cubin_arch(buffer, start, end, code), (0, 0), code)


def cubin_arch(buffer: Buffer, start: int, end: int, code: CodeFinder | None = None) -> Arch:
    """Return the architecture of the cubin at ``start``. Raises ``FatbinError`` for a bad header.

    ``code`` limits the bytes of all cubins of its file in which a suffix is searched for.
    """
    if end - start < _HEADER.size:
        raise FatbinError("truncated: the file ends within its header", start)
    abi, programs, sections, flags, _size, of_program, count, of_section, number = _HEADER.unpack_from(
        buffer, start
    )
    size = max(programs + of_program * count, sections + of_section * number)
    if size > end - start:
        raise FatbinError("truncated: a cubin's headers lie behind its end", start)
    number = flags >> 8 & 0xFF if abi > _FIRST_ABI else flags & 0xFF
    if number not in ARCHES:
        raise FatbinError(f"a cubin for architecture {number}", start)
    suffix = "a" if flags & _SUFFIX_A[abi > _FIRST_ABI] else ""
    if abi > _FIRST_ABI:
        most = code.searchable(size) if code else size
        suffix = _suffix_told(buffer, start, start + most, number) or suffix
    return Arch(number // 10, number % 10, suffix)


_OPTION = re.compile(rb"-arch[= ]sm_(\d{2,3})([af]?)\b")

_OPTION_SIZE = 16


def _suffix_told(buffer: Buffer, start: int, end: int, number: int) -> str:
    """Return the suffix in the assembler's options; empty where they name none for this architecture."""
    at = buffer.find(b"-arch", start, end)
    told = _OPTION.match(bytes(buffer[at : at + _OPTION_SIZE])) if at != -1 else None
    return told[2].decode() if told and int(told[1]) == number else ""


def read_ptx(buffer: Buffer, start: int, end: int, code: CodeFinder) -> Container:
    """Return the PTX at ``start`` as a container. Raises ``FatbinError`` where no PTX begins there."""
    match = PTX_HEAD.match(bytes(buffer[start : min(end, start + HEAD)]))
    if match is None:
        raise FatbinError("no PTX where it must begin", start)
    isa = int(match[1]), int(match[2])
    return _alone(buffer, start, end, Kind.PTX, Arch.parse(match[3].decode()), isa, code)


def _alone(
    buffer: Buffer, start: int, end: int, kind: Kind, arch: Arch, isa: tuple[int, int], code: CodeFinder
) -> Container:
    size = end - start
    mark = CUBIN if kind is Kind.SASS else PTX
    runnable = code.holds_code(
        mark, Compression.NONE, lambda most: bytes(buffer[start : start + min(size, most)]), size
    )
    image = Image(kind, arch, Compression.NONE, size, size, start, isa, runnable)
    return Container(offset=start, section="", images=(image,))
