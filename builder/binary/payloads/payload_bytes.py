"""Images are packed as LZ4 blocks or zstd frames: this unpacks the beginning of one, or all of it.

Source of the LZ4 block: lz4's ``doc/lz4_Block_format.md``. The packages ``lz4`` and ``backports.zstd`` do the
work where Python has them; without the first it is done here, without the second a frame stays packed.
"""

from __future__ import annotations

from enum import Enum
from importlib.util import find_spec


class Compression(Enum):
    """The ways in which an image's payload is packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"
    """Needs driver 550.54.14 (rapids-cmake's documentation of nvcc's ``-compress-mode``)."""


LARGEST_IMAGE = 1 << 28
"""Bytes of an image that is unpacked whole; the largest of a package's libraries has 42 million."""

_GROWTH = 255
"""Bytes that a byte of an LZ4 block stands for at most."""


def has_lz4() -> bool:
    """Whether this Python has the package that unpacks LZ4."""
    return find_spec("lz4") is not None


class PayloadError(ValueError):
    """A payload is not what its image's header says."""


class NoDecoderError(Exception):
    """This Python does not read what a payload is packed with."""


def beginning(stored: bytes, packed: Compression, most: int) -> bytes:
    """The image, not much more than ``most`` bytes of it; nothing where it cannot be unpacked."""
    try:
        if packed is Compression.ZSTD:
            return _zstd(stored, most)
        return lz4_block(stored, most) if packed is Compression.LZ4 else stored
    except (IndexError, PayloadError, NoDecoderError):
        return b""


def whole(stored: bytes, packed: Compression, size: int) -> bytes:
    """The image of ``size`` bytes. Raises ``PayloadError`` where it does not unpack to just as many.

    Raises ``NoDecoderError`` where this Python cannot unpack it.
    """
    if packed is Compression.NONE:
        return stored
    if size > LARGEST_IMAGE or (packed is Compression.LZ4 and size > _GROWTH * len(stored)):
        raise PayloadError(f"{len(stored):,} packed bytes claim to be {size:,}")
    found = _zstd(stored, size + 1) if packed is Compression.ZSTD else _lz4(stored, size)
    if len(found) != size:
        raise PayloadError(f"it unpacks to {len(found):,} bytes, not to the {size:,} of its header")
    return found


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
        from lz4.block import LZ4BlockError, decompress  # noqa: PLC0415 -- only whole images need it
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
    """An LZ4 block: literals, then a copy of what stands some bytes back. Raises ``IndexError``.

    Ends behind ``most`` bytes.
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
    """A length that goes on while its bytes are full, and where it ends."""
    length, more = _FULL_HALF, True
    while more:
        length, more, at = length + block[at], block[at] == _FULL, at + 1
    return length, at
