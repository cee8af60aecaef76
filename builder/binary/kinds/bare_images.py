"""Cubins and PTX without a container around them: each is told as a container of one image.

A cubin's flags have its architecture: LLVM's ``llvm/BinaryFormat/ELF.h``, ``EF_CUDA_SM`` and its neighbours.
The suffix ``f`` is not among them, as all that NVRTC 12.9 compiles for shows, and of CUDA 13's ``a`` neither:
ONNX Runtime 1.31.1 has 90a and 120a without. Cubins of the newer ABI have the words of their assembler in
``.note.nv.tkinfo``, and there ``-arch sm_120f``.
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
"""Version of the ABI, places of program and section headers, flags, sizes and numbers of these headers."""

_FIRST_ABI = 7

_SUFFIX_A = {False: 0x800, True: 0x8}
"""By whether the ABI is newer than the first."""


def read_cubin(buffer: Buffer, start: int, end: int, code: CodeFinder) -> Container:
    """The cubin at ``start`` as a container. Raises ``FatbinError``."""
    return _alone(buffer, start, end, Kind.SASS, cubin_arch(buffer, start, end), (0, 0), code)


def cubin_arch(buffer: Buffer, start: int, end: int) -> Arch:
    """The architecture in the header of the cubin at ``start``. Raises ``FatbinError``."""
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
        suffix = _suffix_told(buffer, start, start + size, number) or suffix
    return Arch(number // 10, number % 10, suffix)


_OPTION = re.compile(rb"-arch[= ]sm_(\d{2,3})([af]?)\b")

_OPTION_SIZE = 16


def _suffix_told(buffer: Buffer, start: int, end: int, number: int) -> str:
    """The suffix in the words of the assembler; nothing where there are none for this architecture."""
    at = buffer.find(b"-arch", start, end)
    told = _OPTION.match(bytes(buffer[at : at + _OPTION_SIZE])) if at != -1 else None
    return told[2].decode() if told and int(told[1]) == number else ""


def read_ptx(buffer: Buffer, start: int, end: int, code: CodeFinder) -> Container:
    """The PTX at ``start`` as a container. Raises ``FatbinError``."""
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
