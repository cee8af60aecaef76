"""Decoders of images, independent of the reader: LZ4 by hand from its block format, zstd by the library."""

import mmap
import struct

from backports import zstd

from builder.binary.fatbin_format import Image
from builder.binary.payloads import Compression


def unpacked(data: bytes | mmap.mmap, image: Image) -> bytes:
    """Return the decompressed content of an image of the file ``data``."""
    (header,) = struct.unpack_from("<I", data, image.offset + 4)
    stored = data[image.offset + header : image.offset + header + image.size]
    if image.compression is Compression.ZSTD:
        return zstd.decompress(stored)
    return _unpacked_lz4(stored) if image.compression is Compression.LZ4 else stored


def _unpacked_lz4(block: bytes) -> bytes:
    """Return the content of an LZ4 block: each sequence has literals, then a copy of earlier output."""
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        literals, at = _length(block, at + 1, token >> 4)
        out += block[at : at + literals]
        at += literals
        if at < len(block):
            back = int.from_bytes(block[at : at + 2], "little")
            again, at = _length(block, at + 2, token & 15)
            for _ in range(again + 4):
                out.append(out[-back])
    return bytes(out)


def _length(block: bytes, at: int, length: int) -> tuple[int, int]:
    """Return a length, which further bytes extend while each is 255, and the offset behind them."""
    more = length == 15
    while more:
        length, more, at = length + block[at], block[at] == 255, at + 1
    return length, at
