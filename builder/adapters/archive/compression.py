"""Compressors for zstd and gzip with the same output on every machine, and estimates of compressed sizes.

A compressor's output depends on the input, the preset and the version of the compressor's library:
``backports.zstd`` has its own libzstd, ``zlib-ng`` its own zlib-ng. The output does not depend on the number
of threads.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from backports.zstd import CompressionParameter, ZstdCompressor
from zlib_ng import zlib_ng

from builder.adapters.archive.decompression import WINDOW_LOG
from builder.errors import IntegrityError
from builder.formats.package_names import Form
from builder.project.variants import Preset

_ZSTD: Mapping[Preset, Mapping[int, int]] = {
    Preset.FAST: {CompressionParameter.compression_level: 3},
    Preset.SMALL: {
        CompressionParameter.compression_level: 9,
        CompressionParameter.window_log: WINDOW_LOG,
        CompressionParameter.enable_long_distance_matching: 1,
    },
}

_GZIP: Mapping[Preset, int] = {Preset.FAST: 2, Preset.SMALL: 7}
"""Levels of zlib-ng (docs/performance.md): below 2 the output is much larger, above 7 only slower."""

_BLOCK = 1 << 20

_HISTORY = 1 << 15
"""The bytes of earlier input that deflate can refer to."""

_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"
"""A gzip header without file name, time and hint of the level, for an unknown operating system."""

_LAST_BLOCK = b"\x03\x00"


class Compressor(Protocol):
    """A streaming compressor, which ``flush`` ends."""

    def compress(self, data: bytes, /) -> bytes:
        """Compress ``data``, and return the output that is ready, maybe none."""

    def flush(self) -> bytes:
        """Return the rest of the output. May be called once."""


@contextmanager
def compressor(form: Form, preset: Preset, workers: int) -> Iterator[Compressor]:
    """Yield a compressor with ``workers`` threads, at least one."""
    workers = max(1, workers)
    if form is Form.ZST:
        # libzstd's output is the same for any number of workers, but differs without workers.
        yield ZstdCompressor(
            options={
                **_ZSTD[preset],
                CompressionParameter.checksum_flag: 1,
                CompressionParameter.nb_workers: workers,
            }
        )
        return
    with ThreadPoolExecutor(workers) as pool:
        yield _Gzip(pool, _GZIP[preset], ahead=2 * workers)


class _Gzip:
    """A gzip compressor whose threads compress blocks, each with the end of the block before as history.

    Every block has a new compressor: in zlib-ng before 2.3.3, the state of a used compressor changes its
    output, which would then depend on the thread that compresses the block.
    """

    def __init__(self, pool: ThreadPoolExecutor, level: int, ahead: int) -> None:
        self._pool, self._level, self._ahead = pool, level, ahead
        self._ready = [_HEADER]
        self._waiting = bytearray()
        self._history = b""
        self._jobs: deque[Future[bytes]] = deque()
        self._crc = self._size = 0

    def compress(self, data: bytes) -> bytes:
        self._crc = zlib_ng.crc32(data, self._crc)
        self._size += len(data)
        self._waiting += data
        while len(self._waiting) >= _BLOCK:
            self._start(bytes(self._waiting[:_BLOCK]))
            del self._waiting[:_BLOCK]
        return self._finished(self._ahead)

    def flush(self) -> bytes:
        if self._waiting:
            self._start(bytes(self._waiting))
        end = struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)
        return self._finished(0) + _LAST_BLOCK + end

    def _start(self, block: bytes) -> None:
        self._jobs.append(self._pool.submit(_deflated, block, self._history, self._level))
        self._history = block[-_HISTORY:]

    def _finished(self, ahead: int) -> bytes:
        """Return the output that is ready, after waiting until at most ``ahead`` blocks are left."""
        while len(self._jobs) > ahead:
            self._ready.append(self._jobs.popleft().result())
        ready, self._ready = b"".join(self._ready), []
        return ready


def _deflated(block: bytes, history: bytes, level: int) -> bytes:
    """Return the block as deflate blocks that end on a whole byte."""
    stream = zlib_ng.compressobj(level=level, wbits=-zlib_ng.MAX_WBITS, zdict=history)
    return stream.compress(block) + stream.flush(zlib_ng.Z_SYNC_FLUSH)


def estimated(files: Iterable[Path], form: Form, preset: Preset, workers: int) -> int:
    """Return about how many bytes ``files`` compress to. Raises ``IntegrityError`` for an unreadable file.

    Each file is estimated by itself, because the ratios of files differ.
    """
    return sum(_estimated(file, form, preset, workers) for file in files)


def _estimated(path: Path, form: Form, preset: Preset, workers: int) -> int:
    try:
        size = path.stat().st_size
        with compressor(form, preset, workers) as compress:
            out = sum(len(compress.compress(sample)) for sample in _samples(path, size))
            out += len(compress.flush())
    except OSError as error:
        advice = "Check it and its mode, or delete it and build again."
        raise IntegrityError(f"{path} cannot be read", cause=error.strerror or "", advice=advice) from error
    return extrapolated(size, out, form, preset)


def _samples(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        for span in sampled(size):
            file.seek(span.start)
            yield file.read(len(span))


SAMPLE = 1 << 18

STRETCH = 1 << 22
"""Bytes of a file of which one sample is compressed: 256 KiB of every 4 MiB."""

_FARTHER = {(Form.ZST, Preset.FAST): 1.05, (Form.ZST, Preset.SMALL): 1.15}
"""Compressed size by samples over that of the whole file, in which zstd refers to bytes outside of a sample.

Measured on four sets of CUDA libraries of 0.29 GB: 1.02 to 1.07 and 1.12 to 1.18. gzip, which refers to 32
KiB at most, needs no such factor.
"""


def sampled(size: int) -> Iterator[range]:
    """Yield the offsets of the samples in a file of ``size`` bytes: the middle of each stretch."""
    for start in range(0, size, STRETCH):
        stretch = min(STRETCH, size - start)
        length = min(SAMPLE, stretch)
        first = start + (stretch - length) // 2
        yield range(first, first + length)


def extrapolated(size: int, compressed: int, form: Form, preset: Preset) -> int:
    """Return the bytes that a file of ``size`` compresses to, if its samples compress to ``compressed``.

    For a full package (2.94 GB) the estimate was 2 and 3 % above the archives of the two presets.
    """
    looked_at = sum(map(len, sampled(size)))
    if looked_at == size:
        return compressed
    return round(size * compressed / looked_at / _FARTHER.get((form, preset), 1))
