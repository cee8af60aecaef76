"""Writer and reader of package archives: deterministic compressed tars, written in one pass.

The bytes depend on the members, the preset, ``mtime`` and the version of the compressor's library; not on the
machine, the file system's order or the number of workers.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from builder.adapters.archive.compression import Compressor, compressor, estimated
from builder.adapters.archive.split import split_archive, whole_digest
from builder.adapters.archive.unpacking import manifest_of, members_of, texts_of, unpack
from builder.files.atomic_write import part_file
from builder.files.digest import Digest, LocalFile, RunningDigest, chunks_of, file_digest
from builder.files.disk import disk_errors
from builder.formats.package_names import FOLDER_MODE, MANIFEST, Form, file_mode, form_of, stem
from builder.package.archive import ChangedFileError, Content, Member
from builder.ports import Reporter
from builder.project.variants import Preset

EARLIEST_MTIME = 315532800
"""1980-01-01 as Unix time: zip tools and some tars warn about anything older."""

_STEP = 1 << 20
"""Bytes that are read, hashed and compressed at a time; large chunks are handed to threads less often."""

_WORST_RATIO = 0.75
"""The free space to require, in archive bytes per byte of content; CUDA libraries measured 0.49 to 0.66."""


@dataclass(frozen=True, kw_only=True)
class PackageArchive:
    """A writer and reader of package archives; implements ``package.archive.Archive``."""

    reporter: Reporter
    workers: int = 2
    """Compression threads, 1 or more."""
    mtime: int = EARLIEST_MTIME
    """The Unix time of every member: ``SOURCE_DATE_EPOCH``."""

    def digests(self, members: Iterable[Member]) -> Mapping[str, Digest]:
        """See ``package.archive.Archive.digests``."""
        wanted = {member.path: member.file for member in members}
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            return dict(zip(wanted, pool.map(file_digest, wanted.values()), strict=True))

    def whole(self, package: Path) -> Digest:
        """See ``package.archive.Archive.whole``."""
        return whole_digest(package)

    def write(
        self, dest: Path, content: Content, preset: Preset, accept: Callable[[LocalFile], None]
    ) -> LocalFile:
        """See ``package.archive.Archive.write``."""
        with (
            part_file(dest, needed=int(content.size * _WORST_RATIO)) as part,
            compressor(form_of(dest.name), preset, self.workers) as compress,
            ThreadPoolExecutor(1) as inner,
            ThreadPoolExecutor(1) as outer,
        ):
            sink = _Sink(part, compress, RunningDigest(outer))
            with self.reporter.progress(dest.name, content.size) as done:
                for block in self._blocks(stem(dest.name), content, inner, done):
                    sink.write(block)
            digest = sink.close()
            package = LocalFile(dest, digest.size, digest.sha256)
            accept(package)
        return package

    def split(self, package: Path, most: int) -> tuple[Path, ...]:
        """See ``package.archive.Archive.split``."""
        return split_archive(package, most)

    def estimate(self, members: Iterable[Member], form: Form, preset: Preset) -> int:
        """See ``package.archive.Archive.estimate``."""
        return estimated((member.file for member in members), form, preset, self.workers)

    def read_manifest(self, package: Path) -> bytes:
        """See ``package.archive.Archive.read_manifest``."""
        return manifest_of(package)

    def read(self, package: Path, paths: Collection[str]) -> Mapping[str, bytes]:
        """See ``package.archive.Archive.read``."""
        return texts_of(package, paths)

    def extract(self, package: Path, folder: Path) -> Mapping[str, Digest]:
        """See ``package.archive.Archive.extract``."""
        with disk_errors(folder):
            folder.mkdir(parents=True)
            folder.chmod(FOLDER_MODE)
        return {path: unpack(folder, path, chunks) for path, chunks in members_of(package)}

    def _blocks(
        self, top: str, content: Content, pool: Executor, done: Callable[[int], None]
    ) -> Iterator[bytes]:
        yield self._header(f"{top}/{MANIFEST}", len(content.manifest), file_mode(MANIFEST))
        yield content.manifest
        yield bytes(-len(content.manifest) % tarfile.BLOCKSIZE)
        for member in content.packed:
            wanted = content.digests[member.path]
            yield self._header(f"{top}/{member.path}", wanted.size, file_mode(member.path))
            for chunk in _proved(member, wanted, pool):
                yield chunk
                done(len(chunk))
            yield bytes(-wanted.size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _header(self, name: str, size: int, mode: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, self.mtime, mode
        return info.tobuf(tarfile.PAX_FORMAT)


def _proved(member: Member, wanted: Digest, pool: Executor) -> Iterator[bytes]:
    """Yield the member's bytes. Raises ``ChangedFileError`` when they have another size or sha256."""
    hashing, size = RunningDigest(pool), 0
    for chunk in chunks_of(member.file, _STEP):
        size += len(chunk)
        if size > wanted.size:
            raise ChangedFileError(member, wanted, None)
        hashing.update(chunk)
        yield chunk
    got = hashing.digest
    if got != wanted:
        raise ChangedFileError(member, wanted, got)


class _Sink:
    """A sink that compresses blocks into a file and hashes the compressed bytes."""

    def __init__(self, file: IO[bytes], compress: Compressor, hashing: RunningDigest) -> None:
        self._file, self._compressor, self._hashing = file, compress, hashing

    def write(self, block: bytes) -> None:
        self._put(self._compressor.compress(block))

    def close(self) -> Digest:
        self._put(self._compressor.flush())
        return self._hashing.digest

    def _put(self, data: bytes) -> None:
        self._hashing.update(data)
        self._file.write(data)
