"""Reader of cubins and PTX outside of containers: data that a library passes to the driver itself.

The library decides which of them it uses on a GPU, so they are counted and not judged. Compilers put such
arrays into the sections of constants and variables; only these sections are searched.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from builder.binary.elf_headers import PROGBITS, Buffer, Section, read_sections, stretches
from builder.binary.fatbin_format import BEGIN, HEADER, Container, FatbinError, Kind
from builder.binary.kernels import CodeFinder
from builder.binary.kinds.bare_images import read_cubin, read_ptx
from builder.binary.kinds.file_kinds import HEAD, FileKind, kind_of
from builder.binary.kinds.static_library import read_members
from builder.gpu.architectures import Arch

_DATA = (".rodata", ".rdata", ".data")

_DATA_OF_ONE = tuple(f"{name}{mark}" for name in _DATA for mark in ".$")

_MARKS = {FileKind.CUBIN: b"\x7fELF\x02\x01\x01", FileKind.PTX: b".version "}
"""The bytes at which a cubin, and PTX after its comments, begins."""

MOST_MARKS = 1 << 18
"""Most places of a file that begin like a cubin or PTX; ONNX Runtime's provider has 184."""

RawCode = Mapping[Kind, Mapping[Arch, int]]


def data_of(sections: Iterable[Section], start: int = 0) -> Iterator[Section]:
    """Yield the sections with data of an object at offset ``start``, all with the same name.

    Compilers put each variable of an object into a section of its own.
    """
    for section in sections:
        if section.name in _DATA or section.name.startswith(_DATA_OF_ONE):
            yield replace(section, name=_DATA[0], offset=section.offset + start)


def data_of_members(buffer: Buffer) -> Iterator[Section]:
    """Yield the sections with data of an archive's objects, and members of unknown kind as a section each.

    Raises ``FormatError`` for a damaged archive or object.
    """
    for _name, start, end in read_members(buffer):
        kind = kind_of(bytes(buffer[start : min(end, start + HEAD)]))
        if kind is FileKind.OBJECT:
            yield from data_of(read_sections(bytes(buffer[start:end])), start)
        elif kind is None:
            yield Section(_DATA[0], PROGBITS, start, end - start, 0, 0, 0)


def find_raw(buffer: Buffer, sections: Iterable[Section], containers: Sequence[Container]) -> RawCode:
    """Return the numbers of cubins and PTX texts in the data, outside of ``containers``, by architecture.

    Raises ``FatbinError`` for more than ``MOST_MARKS`` places that begin like one.
    """
    found: dict[Kind, Counter[Arch]] = {}
    places = (container.offset for container in containers)
    starts = [at for at in places if bytes(buffer[at : at + len(BEGIN)]) == BEGIN]  # without bare images
    room, code = MOST_MARKS, CodeFinder()
    for section in sections:
        for at, kind in _marks(buffer, section) if section.name in _DATA and section.in_file else ():
            room -= 1
            if room < 0:
                raise FatbinError(f"more than {MOST_MARKS:,} beginnings of cubins and PTX", at)
            before = starts[bisect(starts, at) - 1] if starts and starts[0] < at else None
            if before is None or at >= _end_of(buffer, before):
                for image in _image(buffer, at, section.offset + section.size, kind, code):
                    found.setdefault(image[0], Counter())[image[1]] += 1
    return found


def _marks(buffer: Buffer, section: Section) -> Iterator[tuple[int, FileKind]]:
    end = section.offset + section.size
    for places in stretches(buffer, section.offset, end):
        for kind, mark in _MARKS.items():
            stop = min(end, places.stop + len(mark) - 1)
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
