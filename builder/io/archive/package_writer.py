"""Writer of package archives: deterministic compressed tars, written in one pass.

The bytes depend on the members, the preset, ``mtime`` and the version of the compressor's library; not on the
machine, the file system's order or the number of workers. ``backports.zstd`` has its own libzstd, ``zlib-ng``
its own zlib-ng.
"""

from __future__ import annotations

import struct
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backports.zstd import CompressionParameter, ZstdCompressor
from zlib_ng import zlib_ng

from builder.config.variants import Preset
from builder.console import Reporter
from builder.contents.package_manifest import ChangedFileError, Content, Member
from builder.files.atomic_write import part_file
from builder.files.decompression import WINDOW_LOG
from builder.files.digest import LocalFile, RunningDigest, chunks_of
from builder.formats.package_names import MANIFEST, Form, file_mode, form_of, stem

EARLIEST_MTIME = 315532800
"""1980-01-01 as Unix time: zip tools and some tars warn about anything older."""

_WORST_RATIO = 0.75
"""The free space to require, in archive bytes per byte of content; CUDA libraries measured 0.49 to 0.66."""


@dataclass(frozen=True, kw_only=True)
class PackageWriter:
    """A writer of package archives: one folder named like the package, ``manifest.json`` first.

    The kind of an archive follows from its file name (``formats.package_names.form_of``).
    """

    reporter: Reporter
    workers: int = 2
    """Compression threads, 1 or more."""
    mtime: int = EARLIEST_MTIME
    """The Unix time of every member: ``SOURCE_DATE_EPOCH``."""

    def write(
        self, dest: Path, content: Content, preset: Preset, accept: Callable[[LocalFile], None]
    ) -> LocalFile:
        """Write the package whole or not at all, and return it.

        ``accept`` gets the package before it is renamed to ``dest``, and may raise. Only ``content.packed``
        is written. Each file is read once, and hashed while it is packed. Raises ``ChangedFileError`` if a
        file's bytes differ from its digest, ``IntegrityError`` if a file cannot be read or is written to
        meanwhile, and ``DiskError``.
        """
        with (
            part_file(dest, needed=int(content.size * _WORST_RATIO)) as part,
            _compressor(form_of(dest.name), preset, self.workers) as compress,
            ThreadPoolExecutor(1) as inner,
            ThreadPoolExecutor(1) as outer,
        ):
            hashing = RunningDigest(outer)
            with self.reporter.progress(dest.name, content.size) as done:
                blocks = self._blocks(stem(dest.name), content, inner, done)
                for data in _compressed(blocks, compress):
                    hashing.update(data)
                    part.write(data)
            package = LocalFile(dest, hashing.digest.size, hashing.digest.sha256)
            accept(package)
        return package

    def _blocks(
        self, top: str, content: Content, pool: Executor, done: Callable[[int], None]
    ) -> Iterator[bytes]:
        yield self._header(f"{top}/{MANIFEST}", len(content.manifest), file_mode(MANIFEST))
        yield content.manifest
        yield bytes(-len(content.manifest) % tarfile.BLOCKSIZE)
        for member in content.packed:
            yield self._header(f"{top}/{member.path}", member.size, file_mode(member.path))
            for chunk in _proved(member, pool):
                yield chunk
                done(len(chunk))
            yield bytes(-member.size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _header(self, name: str, size: int, mode: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, self.mtime, mode
        return info.tobuf(tarfile.PAX_FORMAT)


def _proved(member: Member, pool: Executor) -> Iterator[bytes]:
    """Yield the member's bytes. Raises ``ChangedFileError`` when they have another size or sha256."""
    hashing, size = RunningDigest(pool), 0
    for chunk in chunks_of(member.file, _BLOCK):
        size += len(chunk)
        if size > member.size:
            raise ChangedFileError(member, None)
        hashing.update(chunk)
        yield chunk
    got = hashing.digest
    if got != member.digest:
        raise ChangedFileError(member, got)


def _compressed(blocks: Iterable[bytes], compress: ZstdCompressor | _Gzip) -> Iterator[bytes]:
    for block in blocks:
        yield compress.compress(block)
    yield compress.flush()


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
"""Bytes that are read, hashed and compressed at a time; large chunks are handed to threads less often."""

_HISTORY = 1 << 15
"""The bytes of earlier input that deflate can refer to."""

_HEADER = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x00\xff"
"""A gzip header without file name, time and hint of the level, for an unknown operating system."""

_LAST_BLOCK = b"\x03\x00"


@contextmanager
def _compressor(form: Form, preset: Preset, workers: int) -> Iterator[ZstdCompressor | _Gzip]:
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
    stream = zlib_ng.compressobj(level=level, wbits=-zlib_ng.MAX_WBITS, zdict=history)
    return stream.compress(block) + stream.flush(zlib_ng.Z_SYNC_FLUSH)
