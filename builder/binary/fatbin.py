"""Fatbin containers of a file, read natively: what device code is in it, unit by unit.

The whole file is read. In ``.nv_fatbin`` and ``__nv_relfatbin``, where the CUDA run time and cuobjdump look,
every byte has to belong to a container. Anywhere else but in machine code a container is known by its first
eight bytes: cuFFT 11.4 keeps 24,453 in ``.ldata``, cuBLASLt 12.9 469 in ``.cask_resource``. One that does not
lie at a multiple of eight, as 18 of libcudf do, is one where an image follows. What is not whole raises
``FatbinError``: the caller must never take a part for all.
Counts agree with cuobjdump 12.4, image for image, on every library of a package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from builder.binary.device_link import linked_offsets
from builder.binary.elf_headers import (
    LARGEST,
    Buffer,
    FormatError,
    Section,
    read_sections,
    release_pages,
    section_count,
    stretches,
)
from builder.binary.fatbin_format import (
    BEGIN,
    HEADER,
    MOST_IMAGES,
    SECTIONS,
    Container,
    FatbinError,
    Region,
    is_image,
    read_container,
)
from builder.binary.kernels import CodeFinder
from builder.binary.kinds.bare_images import read_cubin, read_ptx
from builder.binary.kinds.file_kinds import HEAD, NO_SECTIONS, FileKind, kind_of
from builder.binary.kinds.pe import is_pe, read_pe
from builder.binary.kinds.static_library import ArchiveError, read_members

_ALIGNMENT = 8

MOST_STRAYS = 1 << 18
"""Of what begins like a container and is none, in a file. A library that packs fatbins has a handful."""

_AT_ONCE = 32 << 20
"""Bytes of a mapped file that stay in memory behind the reader."""


LARGEST_OBJECT = 1 << 27
"""Bytes of an object in an archive, which is copied to be read."""

MOST_SECTIONS = 1 << 20
"""Of all objects of an archive."""


def read_containers(buffer: Buffer) -> tuple[Container, ...]:
    """All containers of a file of any kind that ``kind_of`` knows, in its order; none without device code.

    Raises ``FatbinError`` for a fatbin section that is not containers from end to end and for a container
    elsewhere that is not whole, and other ``FormatError`` for what else is not whole.
    """
    kind = kind_of(bytes(buffer[:HEAD]))
    if len(buffer) > LARGEST and kind in {*NO_SECTIONS, FileKind.ARCHIVE}:
        raise FatbinError(f"a file of {len(buffer):,} bytes: no library is larger than 4 GiB", LARGEST)
    found: list[Container] = []
    room = MOST_IMAGES
    for container in _all(buffer, kind, iter(range(MOST_STRAYS)), CodeFinder()):
        room -= len(container.images)
        if room < 0:  # so many of the container's images are too many
            raise FatbinError(f"more than {MOST_IMAGES:,} images in a file", container.images[room].offset)
        found.append(container)
    with_sections = kind in {FileKind.LIBRARY, FileKind.DLL}
    linked = linked_offsets(buffer, _sections(buffer)) if with_sections else frozenset()
    return tuple(replace(one, linked=True) if one.offset in linked else one for one in found)


def _sections(buffer: Buffer) -> tuple[Section, ...]:
    return read_pe(buffer).sections if is_pe(buffer) else read_sections(buffer)


def _all(
    buffer: Buffer, kind: FileKind | None, strays: Iterator[int], code: CodeFinder
) -> Iterator[Container]:
    end = len(buffer)
    if kind is FileKind.ARCHIVE:
        yield from _of_archive(buffer, strays, code)
    elif kind is FileKind.CUBIN:
        yield read_cubin(buffer, 0, end, code)
    elif kind is FileKind.PTX:
        yield read_ptx(buffer, 0, end, code)
    elif kind is FileKind.FATBIN:
        whole = Region("", 0, end)
        yield from _releasing_pages(buffer, whole, _dense_containers(buffer, whole, code))
    else:
        yield from _in_regions(buffer, _regions(buffer), strays, code)


def _of_archive(buffer: Buffer, strays: Iterator[int], code: CodeFinder) -> Iterator[Container]:
    """The containers of an archive's members; of what is no ELF file and no image, from end to end."""
    room = MOST_SECTIONS
    for name, start, end in read_members(buffer):
        kind = kind_of(bytes(buffer[start : min(end, start + HEAD)]))
        if kind not in {FileKind.OBJECT, FileKind.LIBRARY, FileKind.CUBIN, FileKind.PTX}:
            yield from _in_regions(buffer, [Region("", start, end)], strays, code)
            continue
        if end - start > LARGEST_OBJECT:
            raise ArchiveError(f"{name} has {end - start:,} bytes: take it out by `ar x` and name it", start)
        member = bytes(buffer[start:end])
        try:
            room -= section_count(member) if kind in {FileKind.OBJECT, FileKind.LIBRARY} else 0
            if room < 0:
                raise ArchiveError(f"more than {MOST_SECTIONS:,} sections: take it apart by `ar x`", 0)
            for container in _all(member, kind, strays, code):
                images = (replace(image, offset=image.offset + start) for image in container.images)
                yield replace(container, offset=container.offset + start, images=tuple(images))
        except FormatError as error:
            raise error.inside(name, start) from error
        release_pages(buffer, start, end)


def _in_regions(
    buffer: Buffer, regions: Iterable[Region], strays: Iterator[int], code: CodeFinder
) -> Iterator[Container]:
    for region in regions:
        if region.name in SECTIONS:
            containers = _dense_containers(buffer, region, code)
        else:
            containers = _scattered_containers(buffer, region, strays, code)
        yield from _releasing_pages(buffer, region, containers)


def _regions(buffer: Buffer) -> Iterator[Region]:
    """The file from end to end but for machine code, without overlaps: nothing is read twice.

    A region may be empty, or end before it starts. A flag does not make a fatbin section machine code: the
    run time asks for its name.
    """
    at = 0
    sections = [section for section in _sections(buffer) if section.in_file and section.size]
    for section in sorted(sections, key=lambda section: section.offset):
        listed, end = section.name in SECTIONS, section.offset + section.size
        if listed and section.offset < at:
            raise FatbinError(f"section {section.name} overlaps the one before it", section.offset)
        yield Region("", at, section.offset)
        if listed or not section.executable:
            yield Region(section.name, max(at, section.offset), end)
        at = max(at, end)
    yield Region("", at, len(buffer))


def _releasing_pages(buffer: Buffer, region: Region, containers: Iterator[Container]) -> Iterator[Container]:
    """Yield the same containers, and give the pages behind them back to the system."""
    kept = region.start
    for container in containers:
        yield container
        if container.offset - kept >= _AT_ONCE:
            release_pages(buffer, kept, container.offset)
            kept = container.offset
    release_pages(buffer, kept, region.end)


def _dense_containers(buffer: Buffer, region: Region, code: CodeFinder) -> Iterator[Container]:
    """Yield the containers of a region that is containers and padding, and nothing else."""
    at = _skip_zeros(buffer, region.start, region.end)
    if at == region.end:
        raise FatbinError(f"{region} holds no container", region.start)
    while at < region.end:
        container, end = read_container(buffer, at, region, code)
        yield container
        at = _skip_zeros(buffer, end, region.end)


def _scattered_containers(
    buffer: Buffer, region: Region, strays: Iterator[int], code: CodeFinder
) -> Iterator[Container]:
    """Yield the containers of a region that may hold other things; ``strays`` only look like containers.

    Programs that write fatbins have an empty container's header as a constant: no code, no gap.
    """
    at = region.start
    while (at := _find_begin(buffer, at, region.end, strays)) < region.end:
        if not any(buffer[at + len(BEGIN) : at + HEADER.size]):
            _count_stray(strays, at)
            at += HEADER.size
            continue
        container, at = read_container(buffer, at, region, code)
        yield container


def _find_begin(buffer: Buffer, start: int, end: int, strays: Iterator[int]) -> int:
    """The offset where a container may begin from ``start`` on, or ``end``."""
    for places in stretches(buffer, start, end):
        stop = min(end, places.stop + len(BEGIN) - 1)
        at = buffer.find(BEGIN, places.start, stop)
        while at != -1:
            if at % _ALIGNMENT == 0 or is_image(buffer, at + HEADER.size):
                return at
            _count_stray(strays, at)
            at = buffer.find(BEGIN, at + len(BEGIN), stop)
    return end


def _count_stray(strays: Iterator[int], at: int) -> None:
    """Count a beginning that is no container. One by one hundreds of millions of them would take an hour."""
    if next(strays, None) is None:
        raise FatbinError(f"more than {MOST_STRAYS:,} beginnings of containers that are none", at)


def _skip_zeros(buffer: Buffer, start: int, end: int) -> int:
    """The offset of the first non-zero byte from ``start`` on, or ``end``: containers are padded."""
    for places in stretches(buffer, start, end):
        rest = buffer[places.start : places.stop].lstrip(b"\0")
        if rest:
            return places.stop - len(rest)
    return end
