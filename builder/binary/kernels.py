"""Whether an image holds any code: a kernel or a function, by a mark that each image with one has.

A cubin keeps function ``f`` in a section ``.text.f``, and the names of its sections are the first thing
behind its header; PTX declares a kernel by ``.entry`` and a function by ``.func``. Of a small image the mark
is looked for in what is stored, for LZ4 leaves bytes that were not there before as they are; where it is not
found, the image is unpacked. Source of the LZ4 block: lz4's ``doc/lz4_Block_format.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum


class Compression(Enum):
    """The ways in which an image's payload is packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    """Needs driver 550.54.14 (rapids-cmake's documentation of nvcc's ``-compress-mode``)."""


CUBIN, PTX = b"\x7fELF", b".version"
"""How a cubin begins, and what every PTX has at its beginning."""

_MARKS: Mapping[bytes, tuple[bytes, ...]] = {CUBIN: (b".text.",), PTX: (b".entry", b".func")}

NEAR = 512
"""Bytes in which most marks are found."""

FAR = 1 << 16
"""Bytes in which a mark is looked for at all."""

_LARGEST = 1 << 14
"""Bytes of an image that is unpacked; those without code have some 2,000, unless they hold tables."""

_NAMES = 1 << 11
"""Bytes of a cubin in which the first section with code is named, if there is one."""

MOST_JOINED = 1 << 14
"""Images packed as one whose beginning is unpacked; the rest is taken to hold code."""

MOST_UNPACKED = 2048
"""Different images that are unpacked of a file; the rest is taken to hold code."""

_FULL_HALF, _FULL = 15, 255


class CodeFinder:
    """Tells of one file's images which hold code; alike ones are unpacked once."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}
        self._room = MOST_JOINED

    def beginning(self, stored: bytes, packed: Compression) -> bytes:
        """The first ``FAR`` bytes of what is packed; nothing once that was asked for too often."""
        self._room -= 1
        return _unpacked(stored, packed, FAR) if self._room >= 0 else b""

    def holds_code(self, kind: bytes, packed: Compression, read: Callable[[int], bytes], size: int) -> bool:
        """Whether an image of ``size`` bytes holds code; also where that cannot be told.

        ``kind`` is ``CUBIN`` or ``PTX``; ``read`` gives its first bytes as they are stored.
        """
        if size > _LARGEST:
            return True
        marks = _MARKS[kind]
        stored = read(NEAR)
        for mark in marks:
            if mark in stored:
                return True
        stored = read(FAR)
        if any(mark in stored for mark in marks) or len(stored) > _LARGEST:
            return True
        if stored not in self._known and len(self._known) < MOST_UNPACKED:
            whole = _unpacked(stored, packed, _NAMES if kind == CUBIN else _LARGEST)
            self._known[stored] = kind not in whole[:FAR] or any(mark in whole for mark in marks)
        return self._known.get(stored, True)


def _unpacked(stored: bytes, packed: Compression, most: int) -> bytes:
    """The image, not much more than ``most`` bytes of it; nothing where it cannot be unpacked."""
    if packed is Compression.ZSTD:
        return _unpacked_zstd(stored, most)
    try:
        return _unpacked_lz4(stored, most) if packed is Compression.LZ4 else stored
    except IndexError:
        return b""


def _unpacked_zstd(frame: bytes, most: int) -> bytes:
    """Nothing also where this Python reads no zstd: ``ortpacks-inspect.pyz`` says so."""
    try:
        from backports.zstd import ZstdDecompressor, ZstdError  # noqa: PLC0415 -- most files need none
    except ImportError:
        return b""
    try:
        return ZstdDecompressor().decompress(frame, max_length=most)
    except ZstdError:
        return b""


def _unpacked_lz4(block: bytes, most: int) -> bytes:
    """An LZ4 block: literals, then a copy of what stands some bytes back. Raises ``IndexError``."""
    out = bytearray()
    at = 0
    while at < len(block) and len(out) < most:
        token = block[at]
        count, at = _length(block, at + 1, token >> 4)
        out += block[at : at + count]
        at += count
        if at == len(block):
            break
        back = block[at] | block[at + 1] << 8
        count, at = _length(block, at + 2, token & 15)
        if not 0 < back <= len(out):
            raise IndexError(back)
        count = min(count + 4, most)
        again = out[-back:]
        out += (again * (count // back + 1))[:count]
    return bytes(out)


def _length(block: bytes, at: int, length: int) -> tuple[int, int]:
    """A length that goes on while its bytes are full, and where it ends."""
    more = length == _FULL_HALF
    while more:
        length, more, at = length + block[at], block[at] == _FULL, at + 1
    return length, at
