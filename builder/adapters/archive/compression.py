"""zstd and gzip as streams: compressors whose bytes depend on no machine, and estimates of size.

A compressor's output depends on what goes in, the preset and the version of its library: ``backports.zstd``
brings its own libzstd, ``zlib-ng`` its own zlib-ng. It does not depend on the number of threads.
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
"""Levels of zlib-ng, docs/performance.md: below 2 it is much larger, above 7 slower and no smaller."""

_BLOCK = 1 << 20

_HISTORY = 1 << 15
"""How far back deflate looks."""

_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"
"""No file name, no time, no hint of the level, unknown operating system."""

_LAST_BLOCK = b"\x03\x00"


class Compressor(Protocol):
    """Takes bytes and gives compressed ones when it has them; ``flush`` gives the rest, once."""

    def compress(self, data: bytes, /) -> bytes:
        """What of the output is ready."""

    def flush(self) -> bytes:
        """The end of the output."""


@contextmanager
def compressor(form: Form, preset: Preset, workers: int) -> Iterator[Compressor]:
    """A compressor with ``workers`` threads, at least one."""
    workers = max(1, workers)
    if form is Form.ZST:
        # Without workers libzstd gives other bytes than with any number of them.
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
    """One gzip member of blocks that threads compress apart, each with the end of the one before as history.

    Every block has a compressor of its own: zlib-ng before 2.3.3 let what a used one held show in its output,
    and then bytes would depend on which thread took which block.
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
        """What is done of the output, waiting until at most ``ahead`` blocks are under way."""
        while len(self._jobs) > ahead:
            self._ready.append(self._jobs.popleft().result())
        ready, self._ready = b"".join(self._ready), []
        return ready


def _deflated(block: bytes, history: bytes, level: int) -> bytes:
    """The block as deflate blocks that end on a whole byte."""
    stream = zlib_ng.compressobj(level=level, wbits=-zlib_ng.MAX_WBITS, zdict=history)
    return stream.compress(block) + stream.flush(zlib_ng.Z_SYNC_FLUSH)


def estimated(files: Iterable[Path], form: Form, preset: Preset, workers: int) -> int:
    """About how many bytes ``files`` compress to. Raises ``IntegrityError`` for one that cannot be read.

    Files one by one, because each has a ratio of its own.
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
"""Of every 4 MiB of a file 256 KiB are looked at."""

_FARTHER = {(Form.ZST, Preset.FAST): 1.05, (Form.ZST, Preset.SMALL): 1.15}
"""How much more samples take than the whole, which repeats what lies farther back than a sample begins.

Measured on four sets of CUDA libraries of 0.29 GB: 1.02 to 1.07 and 1.12 to 1.18. gzip looks back 32 KiB.
"""


def sampled(size: int) -> Iterator[range]:
    """The offsets in a file of ``size`` bytes that stand for all of it: the middle of each stretch."""
    for start in range(0, size, STRETCH):
        stretch = min(STRETCH, size - start)
        length = min(SAMPLE, stretch)
        first = start + (stretch - length) // 2
        yield range(first, first + length)


def extrapolated(size: int, compressed: int, form: Form, preset: Preset) -> int:
    """Bytes that a file of ``size`` compresses to, when its samples gave ``compressed``.

    On a full package (2.94 GB) it was 2 and 3 % above the archives of the two presets.
    """
    looked_at = sum(map(len, sampled(size)))
    if looked_at == size:
        return compressed
    return round(size * compressed / looked_at / _FARTHER.get((form, preset), 1))
