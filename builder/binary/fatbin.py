"""Reader of the fatbin containers of a file, without NVIDIA's tools.

The whole file is read. In ``.nv_fatbin`` and ``__nv_relfatbin``, the sections that the CUDA runtime and
cuobjdump read, every byte must belong to a container or be padding. Elsewhere, but not in machine code, a
container is recognised by its first eight bytes: cuFFT 11.4 keeps 24,453 in ``.ldata``, cuBLASLt 12.9 469 in
``.cask_resource``. These bytes at an offset that is no multiple of eight (18 times in libcudf) are a
container only if an image follows. An incomplete container raises ``FatbinError``, so that a caller never
takes a part for the whole. Counts agree with cuobjdump 12.4, image for image, on every library of a package.

``nvcc -rdc=true`` puts each unit's code into ``__nv_relfatbin``, as input of a device link whose output lies
in ``.nv_fatbin``. Each container that is registered with CUDA has a wrapper of 24 bytes in
``.nvFatBinSegment``: magic, version, the container's address, and a pointer. Version 2 marks the output of a
device link; its pointer leads to the list of the link's inputs, which is filled in while the library is
loaded. A DLL's file holds the container's address; for an ELF library it is the addend of a relocation.
Sources: ``crt/link.stub`` and ``fatbinary_section.h`` of CUDA 12; the System V ABI on relocations.
"""

from __future__ import annotations

import struct
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from builder.binary.bare_images import read_cubin, read_ptx, releasing_pages
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
    LINK_INPUT,
    MOST_IMAGES,
    SECTIONS,
    Container,
    FatbinError,
    Region,
    is_image,
    read_container,
)
from builder.binary.file_kinds import HEAD, NO_SECTIONS, ArchiveError, FileKind, kind_of, read_members
from builder.binary.payloads import CodeFinder
from builder.binary.pe import is_pe, read_pe

_ALIGNMENT = 8

MOST_STRAYS = 1 << 18
"""Most places in a file that begin like a container and are none. Libraries that pack fatbins have a few."""

LARGEST_OBJECT = 1 << 27
"""Most bytes of an object in an archive, which is copied to be read."""

MOST_SECTIONS = 1 << 20
"""Most sections in all objects of an archive."""


def read_containers(buffer: Buffer) -> tuple[Container, ...]:
    """Return all containers of a file of any ``FileKind``, in the file's order; empty without device code.

    Raises ``FatbinError`` for a fatbin section with other bytes than containers and padding and for an
    incomplete container elsewhere, and another ``FormatError`` for an incomplete file.
    """
    kind = kind_of(bytes(buffer[:HEAD]))
    if len(buffer) > LARGEST and kind in {*NO_SECTIONS, FileKind.ARCHIVE}:
        raise FatbinError(f"a file of {len(buffer):,} bytes: no library is larger than 4 GiB", LARGEST)
    containers: list[Container] = []
    room = MOST_IMAGES
    for container in _all(buffer, kind, iter(range(MOST_STRAYS)), CodeFinder()):
        room -= len(container.images)
        if room < 0:  # the image at index `room` is the first one too many
            raise FatbinError(f"more than {MOST_IMAGES:,} images in a file", container.images[room].offset)
        containers.append(container)
    with_sections = kind in {FileKind.LIBRARY, FileKind.DLL}
    linked = linked_offsets(buffer, _sections(buffer)) if with_sections else frozenset()
    return tuple(replace(one, linked=True) if one.offset in linked else one for one in containers)


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
        yield from releasing_pages(buffer, range(end), _dense_containers(buffer, whole, strays, code))
    else:
        yield from _in_regions(buffer, _regions(buffer), strays, code)


def _of_archive(buffer: Buffer, strays: Iterator[int], code: CodeFinder) -> Iterator[Container]:
    """Yield the containers of an archive's members; all bytes of a member of unknown kind are searched."""
    room = MOST_SECTIONS
    for name, kind, start, end in read_members(buffer):
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
            containers = _dense_containers(buffer, region, strays, code)
        else:
            containers = _scattered_containers(buffer, region, strays, code)
        yield from releasing_pages(buffer, range(region.start, region.end), containers)


def _regions(buffer: Buffer) -> Iterator[Region]:
    """Yield the regions of a file, except machine code, without overlaps.

    A region may be empty, or end before it starts. A fatbin section is yielded even if it is flagged as
    machine code, because the CUDA runtime finds it by name.
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


def _dense_containers(
    buffer: Buffer, region: Region, strays: Iterator[int], code: CodeFinder
) -> Iterator[Container]:
    """Yield the containers of a region that consists of containers and padding.

    Raises ``FatbinError`` for a region without a container or with other bytes.
    """
    at = _skip_zeros(buffer, region.start, region.end)
    if at == region.end:
        raise FatbinError(f"{region} holds no container", region.start)
    empty = True
    while at < region.end:
        container, end = read_container(buffer, at, region, code)
        if container.images:
            empty = False
            yield container
        else:
            _count_stray(strays, at)
        at = _skip_zeros(buffer, end, region.end)
    if empty:
        raise FatbinError(f"{region} holds empty containers alone", region.start)


def _scattered_containers(
    buffer: Buffer, region: Region, strays: Iterator[int], code: CodeFinder
) -> Iterator[Container]:
    """Yield the containers of a region that may hold other bytes.

    ``strays`` has an item left for each further place that may look like a container and be none. An empty
    container's header, a constant of programs that write fatbins, is such a place.
    """
    at = region.start
    while (at := _find_begin(buffer, at, region.end, strays)) < region.end:
        if not any(buffer[at + len(BEGIN) : at + HEADER.size]):
            _count_stray(strays, at)
            at += HEADER.size
            continue
        container, after = read_container(buffer, at, region, code)
        if container.images:
            yield container
        else:
            _count_stray(strays, at)
        at = after


def _find_begin(buffer: Buffer, start: int, end: int, strays: Iterator[int]) -> int:
    """Return the first offset from ``start`` on where a container may begin, or ``end``."""
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
    """Count a place that looks like a container and is none. Raises ``FatbinError`` for too many of them.

    Hundreds of millions of them, examined one by one, would take an hour.
    """
    if next(strays, None) is None:
        raise FatbinError(f"more than {MOST_STRAYS:,} beginnings of containers that are none", at)


def _skip_zeros(buffer: Buffer, start: int, end: int) -> int:
    """Return the offset of the first non-zero byte from ``start`` on, or ``end``."""
    for places in stretches(buffer, start, end):
        rest = buffer[places.start : places.stop].lstrip(b"\0")
        if rest:
            return places.stop - len(rest)
    return end


_SEGMENT = ".nvFatBinSegment"

_WRAPPER = struct.Struct("<IIQQ")

_MAGIC, _LINKED, _POINTER_AT = 0x466243B1, 2, 8

_RELA, _RELOCATION = 4, struct.Struct("<QQq")
"""The section type SHT_RELA, and one entry: the address to change, symbol and type, the addend."""

_RELOCATIONS_AT_ONCE = _RELOCATION.size << 16

_MOST_WRAPPERS, _MOST_RELOCATIONS = 1 << 16, 1 << 23


def linked_offsets(buffer: Buffer, sections: Sequence[Section]) -> frozenset[int]:
    """Return the file offsets of the containers that a device link made; none without relocatable code."""
    if all(section.name != LINK_INPUT for section in sections):
        return frozenset()
    pointers = dict(_pointers(buffer, sections))
    pointers.update(_relocated(buffer, sections, frozenset(pointers)))
    placed = sorted(
        (candidate for candidate in sections if candidate.in_file and candidate.address),
        key=lambda candidate: candidate.address,
    )
    starts = [section.address for section in placed]
    pointed = ((placed[bisect(starts, address) - 1], address) for address in pointers.values() if placed)
    return frozenset(
        section.offset + address - section.address
        for section, address in pointed
        if 0 <= address - section.address < section.size
    )


def _pointers(buffer: Buffer, sections: Sequence[Section]) -> Iterator[tuple[int, int]]:
    """Yield the address of each pointer to a linked container, with the pointer's value in the file."""
    room = _MOST_WRAPPERS * _WRAPPER.size
    for section in sections:
        if section.name == _SEGMENT and section.in_file:
            size = min(section.size, room) // _WRAPPER.size * _WRAPPER.size
            room -= size
            whole = bytes(buffer[section.offset : section.offset + size])
            for place, (magic, version, pointer, _inputs) in enumerate(_WRAPPER.iter_unpack(whole)):
                if (magic, version) == (_MAGIC, _LINKED):
                    yield section.address + place * _WRAPPER.size + _POINTER_AT, pointer


def _relocated(
    buffer: Buffer, sections: Sequence[Section], wanted: frozenset[int]
) -> Iterator[tuple[int, int]]:
    """Yield the addresses of ``wanted`` that a relocation changes, with the relocation's addend.

    The loader writes the addend there; linkers usually leave zeros in the file.
    """
    room = _MOST_RELOCATIONS * _RELOCATION.size
    for section in sections:
        if wanted and section.kind == _RELA and section.in_file:
            end = section.offset + min(section.size, room) // _RELOCATION.size * _RELOCATION.size
            room -= end - section.offset
            for at in range(section.offset, end, _RELOCATIONS_AT_ONCE):
                entries = _RELOCATION.iter_unpack(bytes(buffer[at : min(end, at + _RELOCATIONS_AT_ONCE)]))
                yield from ((place, value) for place, _type, value in entries if place in wanted)
