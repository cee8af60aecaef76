"""Reader of one fatbin container and of the headers of its images.

NVIDIA does not document the format. Sources: the readers of n-eiling/cuda-fatbin-decompression,
jiegec/fatbinary and RWTH-ACS/cricket. Calibrated with NVIDIA's own packer on code compiled for every
architecture from sm_50 to sm_121 (NVRTC 12.9.86, nvFatbin 12.9.82; the recipe is
``tests/support/factories/nvidia.py``). The flags of an image are the number 40 bytes into its header:

=========  ==========================================================================================
0x1        64-bit
0x2        debug
0x10       for Linux; 0x20 Mac, 0x40 Windows. Each of 49,124 images of NVIDIA's and ORT's libraries for
           Linux has 0x11. Images of DLLs have 0x41, but for 24,453 of cuFFT 11.4's, which have 0x11: a driver
           takes either. An image with neither is of kind ``OTHER``: no driver was seen to take one
0x2000     an LZ4 block
0x8000     a zstd frame
0x10000    obfuscated: only packed LTO IR has this flag
0x100000   suffix ``a``
0x200000   suffix ``f``
0x1000000  the cubin has ``.nv.capmerc`` sections, as each cubin for sm_100 and newer has
=========  ==========================================================================================

``fatbinary -concat`` of CUDA 13.4 and newer packs several images as one image of kind 0x100. Its header is
followed by a table: the number of images, the table's bytes, and one header per image. In such a header the
field of the header's size has the image's offset in the unpacked payload. Derived from the output of 13.5.37
for cubins and PTX.

Bytes that differ from this format raise ``FatbinError``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from builder.binary.elf_headers import Buffer, FormatError
from builder.binary.payloads import CUBIN, FAR, PTX, CodeFinder, Compression
from builder.facts.gpu.architectures import Arch

LOADED, LINK_INPUT = SECTIONS = ".nv_fatbin", "__nv_relfatbin"
"""The section that the CUDA runtime loads, and the section of relocatable code, input of a device link."""

_MAGIC, _VERSION = 0xBA55ED50, 1

HEADER = struct.Struct("<IHHQ")
"""A container's header: magic, version, bytes of this header, bytes after it."""

BEGIN = struct.pack("<IHH", _MAGIC, _VERSION, HEADER.size)
"""The first bytes of each container."""

IMAGE = struct.Struct("<HHIQI4xHHI8xQ8xQ")
"""An image's header: kind, version, bytes of the header, of the payload and of the packed code, minor and
major of the PTX ISA, architecture, flags, bytes of the unpacked code."""

_IMAGE_VERSION = 0x0101

_LZ4, _ZSTD, _SUFFIX_A, _SUFFIX_F = 0x2000, 0x8000, 0x100000, 0x200000

_HOST, _HOSTS = 0x51, (0x11, 0x41)
"""Mask of the flags for an image's operating system, and their values for 64-bit Linux and Windows."""

ARCHES = range(10, 1000)

MOST_IMAGES = 1 << 18
"""Most images of a file, and of a container; cuFFT has 24,454. Each container has at least one."""


class FatbinError(FormatError):
    """The bytes are not a complete fatbin container, cubin or PTX where one is expected."""


class Kind(Enum):
    """The kinds of images in a container."""

    SASS = "sass"
    PTX = "ptx"
    LTOIR = "ltoir"
    """Input of a link at run time, which a driver cannot run."""
    OTHER = "other"
    """An image of an unknown kind, or for another system than 64-bit Linux or Windows."""


_KINDS = {1: Kind.PTX, 2: Kind.SASS, 8: Kind.LTOIR}

JOINED = 0x100
"""The kind of several images that ``fatbinary -concat`` packed as one (CUDA 13.4 and newer)."""

_BEGINNINGS = {Kind.PTX: PTX, Kind.SASS: CUBIN}


@dataclass(frozen=True)
class Image:
    """One image: code for one architecture. Sizes are in bytes; ``offset`` is its header's in the file."""

    kind: Kind
    arch: Arch
    compression: Compression
    size: int
    """Stored (packed) bytes."""
    unpacked_size: int
    """Unpacked bytes. The size of PTX and LTO IR that are not packed includes padding to eight bytes."""
    offset: int
    isa: tuple[int, int]
    """The PTX ISA version of a PTX image, which the driver must support: ``(8, 8)``."""
    runnable: bool
    """Whether the image has something to run: LTO IR and images of units without kernels have not."""


@dataclass(frozen=True)
class Container:
    """One translation unit's images; ``offset`` is that of the container's header in the file."""

    offset: int
    section: str
    """The name of the container's section; empty outside all sections."""
    images: tuple[Image, ...]
    linked: bool = False
    """Whether a device link made the container from those in the section ``LINK_INPUT``."""
    broken: frozenset[tuple[Kind, Arch]] = frozenset()
    """The images that a deep reading took out because they differ from their headers."""

    @property
    def runnable(self) -> bool:
        """Whether at least one image has something to run."""
        return any(image.runnable for image in self.images)

    def arches(self, kind: Kind) -> frozenset[Arch]:
        """Return the architectures of the container's images of ``kind``."""
        return frozenset(image.arch for image in self.images if image.kind is kind)


@dataclass(frozen=True)
class Region:
    """A range of bytes of the file: a section, or the bytes between two sections, with an empty name."""

    name: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"section {self.name}" if self.name else "the file"


def read_container(buffer: Buffer, at: int, region: Region, code: CodeFinder) -> tuple[Container, int]:
    """Return the container at offset ``at``, and its end's offset; an empty one has no images.

    A driver skips empty containers, images without bytes, and zeros behind the last image. Raises
    ``FatbinError``.
    """
    first, end = _open(buffer, at, region)
    images = tuple(_images(buffer, first, end, code))
    return Container(offset=at, section=region.name, images=images), end


def is_image(buffer: Buffer, at: int) -> bool:
    """Return whether the bytes at ``at`` begin like an image of a known kind."""
    kind, version = struct.unpack_from("<HH", buffer, at) if at + IMAGE.size <= len(buffer) else (0, 0)
    return bool((kind in _KINDS or kind == JOINED) and version == _IMAGE_VERSION)


def _open(buffer: Buffer, at: int, region: Region) -> tuple[int, int]:
    """Return the offsets where the images of the container at ``at`` begin and end."""
    if at + HEADER.size > region.end:
        raise FatbinError(f"a container's header runs past the end of {region}", at)
    magic, version, header, size = HEADER.unpack_from(buffer, at)
    if magic != _MAGIC:
        raise FatbinError(f"no container where one must begin: magic {magic:#010x}", at)
    if version != _VERSION or header != HEADER.size:
        raise FatbinError(f"unknown container version {version} with a header of {header} bytes", at)
    if at + header + size > region.end:
        raise FatbinError(f"a container of {size:,} bytes runs past the end of {region}", at)
    return at + header, at + header + size


def _images(buffer: Buffer, at: int, end: int, code: CodeFinder) -> Iterator[Image]:
    count = 0
    while at < end:
        count += 1
        if count > MOST_IMAGES:
            raise FatbinError(f"more than {MOST_IMAGES:,} images in a container", at)
        if not any(buffer[at : min(at + IMAGE.size, end)]) and not any(buffer[at:end]):
            return
        if at + IMAGE.size > end:
            raise FatbinError("an image's header runs past the end of its container", at)
        kind, version, header, payload, packed, minor, major, number, flags, unpacked = IMAGE.unpack_from(
            buffer, at
        )
        if version != _IMAGE_VERSION or header < IMAGE.size:
            raise FatbinError(f"unknown image version {version:#06x} with a header of {header} bytes", at)
        if at + header + payload > end:
            raise FatbinError(f"an image of {payload:,} bytes does not fit its container", at)
        if payload == 0:
            at += header
            continue
        compression = _compression(flags, at)
        size = payload if compression is Compression.NONE else packed
        if not 0 < size <= payload:
            raise FatbinError(f"a compressed image of {size:,} bytes in {payload:,}", at)
        start = at + header
        if kind == JOINED:
            stored = bytes(buffer[start : start + min(size, FAR)])
            joined = tuple(_joined(buffer, at, header, stored, compression, code))
            count += len(joined)
            yield from joined
        else:
            whole, known = payload if compression is Compression.NONE else unpacked, _kind(kind, flags)
            runnable = _runnable(code, known, compression, buffer, start, size, whole)
            arch = _arch(number, flags, at)
            yield Image(known, arch, compression, size, whole, at, (major, minor), runnable)
        at += header + payload


def _joined(
    buffer: Buffer, at: int, header: int, stored: bytes, compression: Compression, code: CodeFinder
) -> Iterator[Image]:
    """Yield the images that are packed as one, whose header at ``at`` is followed by their table.

    ``stored``: the first ``FAR`` bytes of what they are packed to.
    """
    table = at + IMAGE.size
    count, size = struct.unpack_from("<II", buffer, table) if header >= IMAGE.size + 8 else (0, 0)
    each = (size - 8) // count if count else 0
    if count > MOST_IMAGES or each < IMAGE.size or size != count * each + 8 or header != IMAGE.size + size:
        raise FatbinError(f"joined images with a header of {header} bytes for {count}", at)
    whole = code.beginning(stored, compression)
    for place in range(table + 8, table + size, each):
        kind, version, offset, length, _packed, minor, major, number, flags, _ = IMAGE.unpack_from(
            buffer, place
        )
        if version != _IMAGE_VERSION:
            raise FatbinError(f"unknown image version {version:#06x} in a table", place)
        part, known = whole[offset : offset + length], _kind(kind, flags)
        runnable = _runnable(code, known, Compression.NONE, part, 0, length, length)
        arch = _arch(number, flags, place)
        yield Image(known, arch, compression, length, length, place, (major, minor), runnable)


def _runnable(
    code: CodeFinder, kind: Kind, packed: Compression, buffer: Buffer, start: int, size: int, unpacked: int
) -> bool:
    """Return whether an image has something to run; ``size`` bytes of it are stored at ``start``."""
    if kind in _BEGINNINGS:
        return code.holds_code(_BEGINNINGS[kind], packed, buffer, start, size, unpacked)
    return kind is not Kind.LTOIR


def _kind(number: int, flags: int) -> Kind:
    return _KINDS.get(number, Kind.OTHER) if flags & _HOST in _HOSTS else Kind.OTHER


def _compression(flags: int, at: int) -> Compression:
    if flags & _LZ4 and flags & _ZSTD:
        raise FatbinError(f"an image packed in two ways: flags {flags:#x}", at)
    if flags & _ZSTD:
        return Compression.ZSTD
    return Compression.LZ4 if flags & _LZ4 else Compression.NONE


_FIRST_SUFFIXED = 90
"""The first architecture with suffixes. Images for older ones may have the flag for another purpose."""


def _arch(number: int, flags: int, at: int) -> Arch:
    if number not in ARCHES:
        raise FatbinError(f"an image for architecture {number}", at)
    if number < _FIRST_SUFFIXED:
        return Arch(number // 10, number % 10)
    suffix = "a" if flags & _SUFFIX_A else "f" if flags & _SUFFIX_F else ""
    return Arch(number // 10, number % 10, suffix)
