"""What is packed in an image, by LZ4's and zstd's own rules and none of the reader's."""

from __future__ import annotations

import mmap
import struct

from backports import zstd

from builder.binary.fatbin_format import Image
from builder.binary.payloads.payload_bytes import Compression


def unpacked(data: bytes | mmap.mmap, image: Image) -> bytes:
    """The content of an image of a file, as the compiler made it."""
    (header,) = struct.unpack_from("<I", data, image.offset + 4)
    stored = data[image.offset + header : image.offset + header + image.size]
    if image.compression is Compression.ZSTD:
        return zstd.decompress(stored)
    return _unpacked_lz4(stored) if image.compression is Compression.LZ4 else stored


def _unpacked_lz4(block: bytes) -> bytes:
    """An LZ4 block, by the format's description: literals, then a copy of what stands some bytes back."""
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
    """A length that goes on while bytes are full, and where it ends."""
    more = length == 15
    while more:
        length, more, at = length + block[at], block[at] == 255, at + 1
    return length, at
