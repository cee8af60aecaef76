"""Readers of cubins and PTX without a container: whole files, and data that a library gives to the driver.

A whole file is returned as a container with one image. A library decides which of its bare images it uses on
a GPU, so they are listed but do not affect the verdict. Compilers put such arrays into the sections of
constants and variables; only these sections are searched.

A cubin's ELF flags hold its architecture (LLVM's ``llvm/BinaryFormat/ELF.h``, ``EF_CUDA_SM`` and the
constants next to it). The flags do not hold the suffix ``f`` (seen in NVRTC 12.9's code for all
architectures), nor the suffix ``a`` of CUDA 13 (90a and 120a in ONNX Runtime 1.31.1). Cubins of the newer ABI
hold the options of their assembler in ``.note.nv.tkinfo``, with the suffix: ``-arch sm_120f``.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from builder.binary.elf_headers import Buffer, Section, read_sections, release_pages, stretches
from builder.binary.fatbin_format import ARCHES, BEGIN, HEADER, Container, FatbinError, Image, Kind
from builder.binary.file_kinds import HEAD, PTX_HEAD, FileKind, kind_of, read_members
from builder.binary.payloads import CUBIN, PTX, CodeFinder, Compression
from builder.facts.gpu.architectures import Arch

_HEADER = struct.Struct("<8xB23xQQIHHHHH")
"""A cubin's ELF header: version of the ABI, offsets of program and section headers, flags, the ELF header's
size, size and number of the program headers, size and number of the section headers."""

_FIRST_ABI = 7

_AT_ONCE = 32 << 20
"""Most bytes of a mapped file that have been read and whose pages are not released yet."""

_SUFFIX_A = {False: 0x800, True: 0x8}
"""The flag for the suffix ``a``, by whether the ABI is newer than the first."""

_FIRST_WITH_SUFFIX = 90
"""The first architecture that has one (PTX ISA). A cubin for sm_60 in torch 1.13.1 has the bit, too."""


def read_cubin(buffer: Buffer, start: int, end: int, code: CodeFinder) -> Container:
    """Return the cubin at ``start`` as a container. Raises ``FatbinError`` for a bad header."""
    return _alone(buffer, start, end, Kind.SASS, cubin_arch(buffer, start, end, code), (0, 0), code)


def cubin_arch(buffer: Buffer, start: int, end: int, code: CodeFinder | None = None) -> Arch:
    """Return the architecture of the cubin at ``start``. Raises ``FatbinError`` for a bad header.

    ``code``, shared by all cubins of a file, limits the bytes that are searched for a suffix.
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
    suffix = "a" if number >= _FIRST_WITH_SUFFIX and flags & _SUFFIX_A[abi > _FIRST_ABI] else ""
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
    runnable = code.holds_code(mark, Compression.NONE, buffer, start, size, size)
    image = Image(kind, arch, Compression.NONE, size, size, start, isa, runnable)
    return Container(offset=start, section="", images=(image,))


_DATA = (".rodata", ".rdata", ".data")

_DATA_OF_ONE = tuple(f"{name}{mark}" for name in _DATA for mark in ".$")

_MARKS = {FileKind.CUBIN: b"\x7fELF\x02\x01\x01", FileKind.PTX: b".version "}
"""The first bytes of a cubin, and of PTX after its comments."""

MOST_MARKS = 1 << 18
"""Most places of a file that begin like a cubin or PTX; ONNX Runtime's provider has 184."""

RawCode = Mapping[Kind, Mapping[Arch, int]]


def _data(buffer: Buffer, kind: FileKind, sections: Iterable[Section]) -> Iterator[range]:
    """Yield the offsets of a file's data: those sections, for an archive those of its objects.

    Compilers put each variable of an object into a section of its own. A member of unknown kind is data as a
    whole. Raises ``FormatError`` for a damaged archive or object.
    """
    for section in sections:
        of_one = kind is FileKind.OBJECT and section.name.startswith(_DATA_OF_ONE)
        if section.in_file and (of_one or section.name in _DATA):
            yield range(section.offset, section.offset + section.size)
    for _name, member, start, end in read_members(buffer) if kind is FileKind.ARCHIVE else ():
        if member is None:
            yield range(start, end)
        elif member is FileKind.OBJECT:
            for data in _data(buffer, member, read_sections(bytes(buffer[start:end]))):
                yield range(start + data.start, start + data.stop)


def releasing_pages(buffer: Buffer, places: range, containers: Iterable[Container]) -> Iterator[Container]:
    """Yield ``containers``, and release the memory pages of those that the caller has processed.

    A read of a few bytes may map a quarter of a megabyte around them.
    """
    kept = places.start
    for container in containers:
        yield container
        if container.offset - kept >= _AT_ONCE:
            release_pages(buffer, kept, container.offset)
            kept = container.offset
    release_pages(buffer, kept, places.stop)


def find_raw(
    buffer: Buffer, kind: FileKind, sections: Iterable[Section], containers: Sequence[Container]
) -> RawCode:
    """Count the cubins and PTX texts outside of ``containers``, by kind and architecture.

    ``sections`` are those of a file of this ``kind``. Raises ``FatbinError`` for more than ``MOST_MARKS``
    places that begin like one, and ``FormatError`` for a damaged archive or object.
    """
    arches: dict[Kind, Counter[Arch]] = {}
    places = (one.offset for one in releasing_pages(buffer, range(len(buffer)), containers))
    starts = [at for at in places if bytes(buffer[at : at + len(BEGIN)]) == BEGIN]  # without bare images
    room, code = MOST_MARKS, CodeFinder()
    for data in _data(buffer, kind, sections):
        for at, mark in _marks(buffer, data):
            room -= 1
            if room < 0:
                raise FatbinError(f"more than {MOST_MARKS:,} beginnings of cubins and PTX", at)
            before = starts[bisect(starts, at) - 1] if starts and starts[0] < at else None
            if before is None or at >= _end_of(buffer, before):
                for image in _image(buffer, at, data.stop, mark, code):
                    arches.setdefault(image[0], Counter())[image[1]] += 1
    return arches


def _marks(buffer: Buffer, data: range) -> Iterator[tuple[int, FileKind]]:
    for places in stretches(buffer, data.start, data.stop):
        for kind, mark in _MARKS.items():
            stop = min(data.stop, places.stop + len(mark) - 1)
            at = buffer.find(mark, places.start, stop)
            while at != -1:
                yield at, kind
                at = buffer.find(mark, at + 1, stop)


def _end_of(buffer: Buffer, container: int) -> int:
    _magic, _version, header, size = HEADER.unpack_from(buffer, container)
    return int(container + header + size)


def _image(
    buffer: Buffer, at: int, end: int, kind: FileKind, code: CodeFinder
) -> Iterator[tuple[Kind, Arch]]:
    """Yield the image that begins at ``at``, or nothing where no whole image does."""
    if kind_of(bytes(buffer[at : min(end, at + HEAD)])) is kind:
        try:
            read = read_cubin if kind is FileKind.CUBIN else read_ptx
            (image,) = read(buffer, at, end, code).images
        except FatbinError:
            return
        yield image.kind, image.arch
