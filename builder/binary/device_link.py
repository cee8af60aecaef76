"""This module finds the containers that a device link made in a library with relocatable device code.

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
from collections.abc import Iterator, Sequence

from builder.binary.elf_headers import Buffer, Section
from builder.binary.fatbin_format import LINK_INPUT

_SEGMENT = ".nvFatBinSegment"

_WRAPPER = struct.Struct("<IIQQ")

_MAGIC, _LINKED, _POINTER_AT = 0x466243B1, 2, 8

_RELA, _RELOCATION = 4, struct.Struct("<QQq")
"""The section type SHT_RELA, and one entry: the address to change, symbol and type, the addend."""

_AT_ONCE = _RELOCATION.size << 16

_MOST_WRAPPERS, _MOST_RELOCATIONS = 1 << 16, 1 << 23


def linked_offsets(buffer: Buffer, sections: Sequence[Section]) -> frozenset[int]:
    """Return the file offsets of the containers that a device link made; none without relocatable code."""
    if all(section.name != LINK_INPUT for section in sections):
        return frozenset()
    pointers = dict(_pointers(buffer, sections))
    pointers.update(_relocated(buffer, sections, frozenset(pointers)))
    placed = sorted((one for one in sections if one.in_file and one.address), key=lambda one: one.address)
    starts = [section.address for section in placed]
    found = ((placed[bisect(starts, address) - 1], address) for address in pointers.values() if placed)
    return frozenset(
        section.offset + address - section.address
        for section, address in found
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
            for at in range(section.offset, end, _AT_ONCE):
                entries = _RELOCATION.iter_unpack(bytes(buffer[at : min(end, at + _AT_ONCE)]))
                yield from ((place, value) for place, _type, value in entries if place in wanted)
