"""Decoders of images by the libraries of LZ4 and zstd."""

import mmap
import struct

import lz4.block
from backports import zstd

from builder.binary.fatbin_format import Image
from builder.binary.payloads import Compression


def unpacked(data: bytes | mmap.mmap, image: Image) -> bytes:
    """Return the decompressed content of an image of the file ``data``."""
    (header,) = struct.unpack_from("<I", data, image.offset + 4)
    stored = data[image.offset + header : image.offset + header + image.size]
    if image.compression is Compression.ZSTD:
        return zstd.decompress(stored)
    if image.compression is Compression.LZ4:  # one byte more than the header says would come out too
        return bytes(lz4.block.decompress(stored, uncompressed_size=image.unpacked_size + 1))
    return stored
