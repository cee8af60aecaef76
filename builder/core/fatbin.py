"""Fatbin containers of a library, read natively: what device code is in it, unit by unit.

NVIDIA does not document the format. Sources: the readers of n-eiling/cuda-fatbin-decompression,
jiegec/fatbinary and RWTH-ACS/cricket; image counts agree with cuobjdump 12.4 on every library of a package.
Whatever does not look exactly as expected raises ``FatbinError``: the caller must never take a part for the
whole.

Containers are read from ``.nv_fatbin`` and ``__nv_relfatbin``, where the CUDA run time and cuobjdump look.
Some NVIDIA libraries keep more in sections of their own: ``builder.core.coverage`` says what follows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import FrozenSet, Iterator, Tuple

from builder.core.arch import Arch
from builder.core.elf import Buffer, Section, read_sections

SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, bytes after the header
_IMAGE = struct.Struct("<HHIQI8xI8xQ8xQ")  # kind, version, header, payload, packed, arch, flags, unpacked
_IMAGE_VERSION = 0x0101
_LZ4, _ZSTD, _SUFFIX_A, _SUFFIX_F = 0x2000, 0x8000, 0x100000, 0x200000
_ARCHES = range(10, 1000)
_ALIGNMENT, _ZEROS_AT_ONCE = 16, 1 << 20


class FatbinError(ValueError):
    """Bytes in a fatbin section that are no whole container. ``offset`` is in the file."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(f"{message} (at offset {offset:#x})")


class Kind(Enum):
    """What an image is."""

    SASS = "sass"
    PTX = "ptx"
    LTOIR = "ltoir"
    """Input of a link at run time: nothing a driver can run."""
    OTHER = "other"


class Compression(Enum):
    """How an image's payload is packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    """Needs driver 550.54.14 (rapids-cmake's documentation of nvcc's ``-compress-mode``)."""


_KINDS = {1: Kind.PTX, 2: Kind.SASS, 8: Kind.LTOIR}


@dataclass(frozen=True)
class Image:
    """One image: code for one architecture. Sizes in bytes, ``offset`` of its header in the file."""

    kind: Kind
    arch: Arch
    compression: Compression
    size: int
    """As stored, without padding."""
    unpacked_size: int
    """As the driver sees it."""
    offset: int


@dataclass(frozen=True)
class Container:
    """One translation unit's images. ``offset`` of its header in the file."""

    offset: int
    section: str
    images: Tuple[Image, ...]

    def arches(self, kind: Kind) -> FrozenSet[Arch]:
        """The architectures it has images of ``kind`` for."""
        return frozenset(image.arch for image in self.images if image.kind is kind)


def read_containers(buffer: Buffer) -> Tuple[Container, ...]:
    """All containers of an ELF file in the order of its sections; none for a library without device code.

    Raises ``FatbinError`` for a section that is not containers from end to end, and ``ElfError``.
    """
    found = [section for section in read_sections(buffer) if section.name in SECTIONS and section.in_file]
    return tuple(container for section in found for container in _containers(buffer, section))


def _containers(buffer: Buffer, section: Section) -> Iterator[Container]:
    end = section.offset + section.size
    at = _skip_zeros(buffer, section.offset, end)
    if at == end:
        raise FatbinError(f"section {section.name} holds no container", section.offset)
    while at < end:
        first, past = _open_container(buffer, at, end)
        yield Container(offset=at, section=section.name, images=tuple(_images(buffer, first, past)))
        at = _skip_zeros(buffer, past, end)


def _skip_zeros(buffer: Buffer, at: int, end: int) -> int:
    """First non-zero byte from ``at`` on, or ``end``: containers are padded to an alignment."""
    step = _ALIGNMENT
    while at < end:
        chunk = bytes(buffer[at : min(end, at + step)])
        rest = len(chunk.lstrip(b"\0"))
        if rest:
            return at + len(chunk) - rest
        at += len(chunk)
        step = _ZEROS_AT_ONCE
    return end


def _open_container(buffer: Buffer, at: int, end: int) -> Tuple[int, int]:
    """Where the images of the container at ``at`` begin and end."""
    if at + _CONTAINER.size > end:
        raise FatbinError("a container's header runs past the end of its section", at)
    magic, version, header, size = _CONTAINER.unpack_from(buffer, at)
    if magic != _MAGIC:
        raise FatbinError(f"no container where one must begin: magic {magic:#010x}", at)
    if version != 1 or header != _CONTAINER.size:
        raise FatbinError(f"unknown container version {version} with a header of {header} bytes", at)
    if size == 0:
        raise FatbinError("a container of size zero", at)
    if at + header + size > end:
        raise FatbinError(f"a container of {size:,} bytes runs past the end of its section", at)
    return at + header, at + header + size


def _images(buffer: Buffer, at: int, end: int) -> Iterator[Image]:
    while at < end:
        if at + _IMAGE.size > end:
            raise FatbinError("an image's header runs past the end of its container", at)
        kind, version, header, payload, packed, number, flags, unpacked = _IMAGE.unpack_from(buffer, at)
        if version != _IMAGE_VERSION or header < _IMAGE.size:
            raise FatbinError(f"unknown image version {version:#06x} with a header of {header} bytes", at)
        if payload == 0 or at + header + payload > end:
            raise FatbinError(f"an image of {payload:,} bytes does not fit its container", at)
        compression = _compression(flags, at)
        size = payload if compression is Compression.NONE else packed
        if not 0 < size <= payload:
            raise FatbinError(f"a compressed image of {size:,} bytes in {payload:,}", at)
        yield Image(
            kind=_KINDS.get(kind, Kind.OTHER),
            arch=_arch(number, flags, at),
            compression=compression,
            size=size,
            unpacked_size=payload if compression is Compression.NONE else unpacked,
            offset=at,
        )
        at += header + payload


def _compression(flags: int, at: int) -> Compression:
    if flags & _LZ4 and flags & _ZSTD:
        raise FatbinError(f"an image packed in two ways: flags {flags:#x}", at)
    if flags & _ZSTD:
        return Compression.ZSTD
    return Compression.LZ4 if flags & _LZ4 else Compression.NONE


def _arch(number: int, flags: int, at: int) -> Arch:
    if number not in _ARCHES:
        raise FatbinError(f"an image for architecture {number}", at)
    suffix = "a" if flags & _SUFFIX_A else "f" if flags & _SUFFIX_F else ""
    return Arch(number // 10, number % 10, suffix)
