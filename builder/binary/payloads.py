"""This module unpacks images, wholly or only their beginnings, and decides whether one holds code at all.

A cubin keeps function ``f`` in a section ``.text.f``, and the names of its sections follow its header; PTX
declares a kernel by ``.entry`` and a function by ``.func``. In a small image the mark is first searched for
in the stored bytes, because LZ4 stores the first occurrence of bytes as they are; if it is not there, the
image is unpacked. Larger images are taken to hold code.

Source of the LZ4 block: lz4's ``doc/lz4_Block_format.md``. Whole LZ4 blocks are unpacked by the package
``lz4`` where it is installed, else by ``lz4_block``. Zstd frames need the package ``backports.zstd``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from importlib.util import find_spec

from builder.binary.elf_headers import LARGEST, Buffer


class Compression(Enum):
    """Ways in which an image's payload is packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    """A zstd frame, which needs driver 550.54.14 (rapids-cmake's documentation of ``-compress-mode``)."""


LARGEST_IMAGE = 1 << 28
"""Most bytes to which a whole image unpacks; the largest image in a package's libraries has 42 million."""

_GROWTH = 255
"""Most bytes to which one byte of an LZ4 block can unpack."""


def has_lz4() -> bool:
    """Return whether this Python has the package ``lz4``."""
    return find_spec("lz4") is not None


def has_zstd() -> bool:
    """Return whether this Python has the package ``backports.zstd``, or its own zstd under that name."""
    try:
        import backports.zstd  # noqa: F401, PLC0415 -- its specification alone cannot be had without the parent's
    except ImportError:
        return False
    return True


class PayloadError(ValueError):
    """A payload differs from its image's header."""


class NoDecoderError(Exception):
    """This Python lacks the package that could unpack a payload."""


def unpack_beginning(stored: bytes, packed: Compression, most: int) -> bytes:
    """Return the beginning of an image, about ``most`` bytes; empty where it cannot be unpacked.

    Bytes that are not packed are returned whole.
    """
    try:
        if packed is Compression.ZSTD:
            return _zstd(stored, most)
        return lz4_block(stored, most) if packed is Compression.LZ4 else stored
    except (IndexError, PayloadError, NoDecoderError):
        return b""


def unpack(stored: bytes, packed: Compression, size: int) -> bytes:
    """Return the unpacked image of ``size`` bytes.

    Raises ``PayloadError`` where packed bytes do not unpack to exactly ``size`` bytes, and
    ``NoDecoderError`` where this Python cannot unpack them.
    """
    if packed is Compression.NONE:
        return stored
    if size > LARGEST_IMAGE or (packed is Compression.LZ4 and size > _GROWTH * len(stored)):
        raise PayloadError(f"{len(stored):,} packed bytes claim to be {size:,}")
    unpacked = _zstd(stored, size + 1) if packed is Compression.ZSTD else _lz4(stored, size)
    if len(unpacked) != size:
        raise PayloadError(f"it unpacks to {len(unpacked):,} bytes, not to the {size:,} of its header")
    return unpacked


def _zstd(frame: bytes, most: int) -> bytes:
    try:
        from backports.zstd import ZstdDecompressor, ZstdError  # noqa: PLC0415 -- most files need none
    except ImportError as error:
        raise NoDecoderError("this Python reads no zstd") from error
    try:
        return ZstdDecompressor().decompress(frame, max_length=most)
    except ZstdError as error:
        raise PayloadError(f"no zstd frame: {error}") from error


def _lz4(block: bytes, size: int) -> bytes:
    try:
        from lz4.block import LZ4BlockError, decompress  # noqa: PLC0415 -- only unpack images need it
    except ImportError:
        try:
            return lz4_block(block, size + 1)
        except IndexError as error:
            raise PayloadError("no LZ4 block: it is cut short, or copies what is not there") from error
    try:
        return bytes(decompress(block, uncompressed_size=size))
    except LZ4BlockError as error:
        raise PayloadError(f"no LZ4 block of {size:,} bytes: {error}") from error


_FULL_HALF, _FULL = 15, 255


def lz4_block(block: bytes, most: int) -> bytes:
    """Return the beginning of an unpacked LZ4 block; it stops after the sequence that reaches ``most`` bytes.

    The block is a series of sequences: literals, then a copy of earlier output. Raises ``IndexError`` for a
    truncated block, or a copy of bytes before the output's beginning.
    """
    out = bytearray()
    at, end = 0, len(block)
    while at < end and len(out) < most:
        token = block[at]
        at += 1
        count = token >> 4
        if count == _FULL_HALF:
            count, at = _length(block, at)
        out += block[at : at + count]
        at += count
        if at == end:
            break
        back = block[at] | block[at + 1] << 8
        at += 2
        count = token & _FULL_HALF
        if count == _FULL_HALF:
            count, at = _length(block, at)
        start = len(out) - back
        if not 0 <= start < len(out):
            raise IndexError(back)
        count = min(count + 4, most)
        if count <= back:
            out += out[start : start + count]
        else:
            again = out[start:]
            out += (again * (count // back + 1))[:count]
    return bytes(out)


def _length(block: bytes, at: int) -> tuple[int, int]:
    """Return a length that continues while its bytes are 255, and the offset after it."""
    length, more = _FULL_HALF, True
    while more:
        length, more, at = length + block[at], block[at] == _FULL, at + 1
    return length, at


CUBIN, PTX = b"\x7fELF", b".version"
"""The first bytes of a cubin, and a directive that every PTX has in its first bytes."""

_MARKS: Mapping[bytes, tuple[bytes, ...]] = {CUBIN: (b".text.",), PTX: (b".entry", b".func")}

FAR = 1 << 16
"""Number of first bytes in which a mark is searched for at all."""

_LARGEST = 1 << 14
"""Most bytes of an image that is unpacked. Images without code or tables have some 2,000."""

_NAMES = 1 << 11
"""Number of a cubin's first bytes that name its first section with code, if it has one."""

MOST_JOINED = 1 << 14
"""Most joined images (``fatbin_format.JOINED``) whose beginning is unpacked; others count as code."""

MOST_UNPACKED = 2048
"""Most different images of a file that are unpacked; further ones are taken to hold code."""


class CodeFinder:
    """The test of one file's images for code. Images with the same stored bytes are unpacked only once."""

    def __init__(self) -> None:
        self._known: dict[bytes, bool] = {}
        self._room = MOST_JOINED
        self._search = LARGEST

    def searchable(self, size: int) -> int:
        """Return how many of a bare cubin's ``size`` bytes may be searched for a suffix.

        A file's cubins share a limit of ``LARGEST`` bytes. Real cubins lie side by side; thousands that claim
        the same bytes would take hours.
        """
        most = min(size, self._search)
        self._search -= most
        return most

    def beginning(self, stored: bytes, packed: Compression) -> bytes:
        """Return about ``FAR`` unpacked bytes; empty after ``MOST_JOINED`` calls or if unpacking fails."""
        self._room -= 1
        return unpack_beginning(stored, packed, FAR) if self._room >= 0 else b""

    def holds_code(
        self, kind: bytes, packed: Compression, buffer: Buffer, start: int, size: int, unpacked: int
    ) -> bool:
        """Return whether an image of ``unpacked`` bytes holds code; ``True`` if it cannot be decided.

        ``kind`` is ``CUBIN`` or ``PTX``; ``size`` bytes of the image are stored at ``start``.
        """
        if unpacked > _LARGEST:
            return True
        marks = _MARKS[kind]
        stored = bytes(buffer[start : start + min(size, FAR)])
        if any(mark in stored for mark in marks) or len(stored) > _LARGEST:
            return True
        if stored not in self._known and len(self._known) < MOST_UNPACKED:
            whole = unpack_beginning(stored, packed, _NAMES if kind == CUBIN else _LARGEST)
            self._known[stored] = kind not in whole[:FAR] or any(mark in whole for mark in marks)
        return self._known.get(stored, True)
