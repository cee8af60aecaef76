"""Package archives: deterministic ``tar.zst``, written in one pass and read without trusting it.

The bytes depend on the members, the preset, ``mtime`` and the version of libzstd (``backports.zstd`` brings
its own); not on the machine, the file system's order or the number of workers.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from backports.zstd import CompressionParameter, DecompressionParameter, ZstdCompressor, ZstdError, ZstdFile

from builder.adapters.partfile import disk_errors, part_file, scratch_folder
from builder.core.manifest import FOLDER_MODE, file_mode
from builder.core.naming import ARCHIVE_SUFFIX
from builder.core.package import MANIFEST, Content, Digest, Member, PackageFile
from builder.core.ports import Reporter
from builder.core.variant import Preset
from builder.errors import IntegrityError, ValidationError

EARLIEST_MTIME = 315532800
"""1980-01-01: zip tools and some tars warn about anything older."""
_CHUNK = 1 << 20
_MANIFEST_LIMIT = 4 << 20
_WINDOW_LOG = 27
"""128 MiB: the longest window every zstd decoder accepts without a flag."""
_PRESETS: Mapping[Preset, Mapping[int, int]] = {
    Preset.FAST: {CompressionParameter.compression_level: 3},
    Preset.SMALL: {
        CompressionParameter.compression_level: 9,
        CompressionParameter.window_log: _WINDOW_LOG,
        CompressionParameter.enable_long_distance_matching: 1,
    },
}
_WORST_RATIO = 0.75
"""Archive bytes per byte of CUDA libraries that free space is asked for; measured 0.49 to 0.57."""


@dataclass(frozen=True, kw_only=True)
class TarZst:
    """Implements ``core.package.Archive``."""

    reporter: Reporter
    workers: int = 2
    """Compression threads, 1 or more: libzstd's output without workers differs."""
    mtime: int = EARLIEST_MTIME
    """Seconds since 1970 that every member gets: ``SOURCE_DATE_EPOCH``."""

    def digests(self, members: Iterable[Member]) -> Mapping[str, Digest]:
        """See ``core.package.Archive.digests``."""
        wanted = {member.path: member.file for member in members}
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            return dict(zip(wanted, pool.map(file_digest, wanted.values()), strict=True))

    def digest(self, package: Path) -> Digest:
        """See ``core.package.Archive.digest``."""
        return file_digest(package)

    def write(
        self, dest: Path, content: Content, preset: Preset, accept: Callable[[PackageFile], None]
    ) -> PackageFile:
        """See ``core.package.Archive.write``."""
        with part_file(dest, needed=int(content.size * _WORST_RATIO)) as part:
            sink = _Sink(part, preset, max(1, self.workers))
            with self.reporter.progress(dest.name, content.size) as done:
                for block in self._blocks(dest.name.removesuffix(ARCHIVE_SUFFIX), content, done):
                    sink.write(block)
            sink.close()
            package = PackageFile(dest, sink.size, sink.sha256, content.size)
            accept(package)
        return package

    def read_manifest(self, package: Path) -> bytes:
        """See ``core.package.Archive.read_manifest``."""
        with _opened(package) as (tar, _):
            first = tar.next()
            path = PurePosixPath(first.name) if first else PurePosixPath()
            if (
                first is None
                or path.parts[1:] != (MANIFEST,)
                or not first.isreg()
                or first.size > _MANIFEST_LIMIT
            ):
                raise IntegrityError(
                    f"{package}: its first member is {str(path)!r}, not {MANIFEST}: no ortpacks package."
                )
            return b"".join(_read(tar, first, package))

    def members(self, package: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Every member's path below the top folder and its bytes, in the archive's order.

        The bytes must be read before the next member is asked for. Raises ``IntegrityError`` on a damaged
        archive and on anything but regular files under the package's own top folder.
        """
        seen: set[str] = set()
        with _opened(package) as (tar, stream):
            for info in tar:
                path = _safe_path(info, package)
                if path in seen:
                    raise IntegrityError(f"{package}: {path} is there twice.")
                seen.add(path)
                yield path, _read(tar, info, package)
            _require_end(stream, package)

    def extract(self, package: Path, folder: Path) -> Mapping[str, Digest]:
        """See ``core.package.Archive.extract``."""
        with disk_errors(folder):
            folder.mkdir(parents=True)
            folder.chmod(FOLDER_MODE)
        return {path: _unpack(folder, path, chunks) for path, chunks in self.members(package)}

    def scratch(self, path: Path, needed: int) -> AbstractContextManager[Path]:
        """See ``core.package.Archive.scratch``."""
        return scratch_folder(path, needed=needed)

    def tar_stream(self, package: Path) -> Iterator[bytes]:
        """The decompressed tar, chunk by chunk: what a container's ``put_archive`` takes."""
        with _decompressed(package) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    def _blocks(self, top: str, content: Content, done: Callable[[int], None]) -> Iterator[bytes]:
        yield self._header(f"{top}/{MANIFEST}", len(content.manifest), file_mode(MANIFEST))
        yield _padded(content.manifest)
        for member in sorted(content.members, key=lambda member: member.path):
            wanted = content.digests[member.path]
            yield self._header(f"{top}/{member.path}", wanted.size, file_mode(member.path))
            for chunk in _proved(member, wanted):
                yield chunk
                done(len(chunk))
            yield bytes(-wanted.size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _header(self, name: str, size: int, mode: int) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, self.mtime, mode
        return info.tobuf(tarfile.PAX_FORMAT)


def file_digest(path: Path) -> Digest:
    """Size and sha256 of a file's bytes, one pass."""
    hasher, size = hashlib.sha256(), 0
    for chunk in _chunks(path):
        hasher.update(chunk)
        size += len(chunk)
    return Digest(size, hasher.hexdigest())


class _Sink:
    """Compresses into a file and hashes what it writes."""

    def __init__(self, file: IO[bytes], preset: Preset, workers: int) -> None:
        options = {
            **_PRESETS[preset],
            CompressionParameter.checksum_flag: 1,
            CompressionParameter.nb_workers: workers,
        }
        self._compressor = ZstdCompressor(options=options)
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, block: bytes) -> None:
        self._put(self._compressor.compress(block))

    def close(self) -> None:
        self._put(self._compressor.flush())

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += self._file.write(data)


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read: {error.strerror}.") from error


def _proved(member: Member, wanted: Digest) -> Iterator[bytes]:
    """The member's chunks; raises as soon as they are not the bytes that were checked."""
    hasher, size = hashlib.sha256(), 0
    for chunk in _chunks(member.file):
        size += len(chunk)
        if size > wanted.size:
            break
        hasher.update(chunk)
        yield chunk
    if (size, hasher.hexdigest()) != (wanted.size, wanted.sha256):
        raise IntegrityError(
            f"{member.file} changed while {member.path} was packed: it had {wanted.size} bytes, sha256 "
            f"{wanted.sha256}, when it was checked. Build again, and let nothing else write there."
        )


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


@contextmanager
def _decompressed(package: Path) -> Iterator[ZstdFile]:
    if not package.is_file():
        raise ValidationError(f"{package}: no such package. `./run build` leaves its packages in dist/.")
    options: dict[int, int] = {DecompressionParameter.window_log_max: _WINDOW_LOG}
    with _damage(package), ZstdFile(package, options=options) as stream:
        yield stream


@contextmanager
def _damage(package: Path) -> Iterator[None]:
    try:
        yield
    except (ZstdError, EOFError, tarfile.TarError) as error:
        raise IntegrityError(f"{package} is damaged: {error}. Build or download it again.") from error
    except OSError as error:
        raise IntegrityError(f"{package} cannot be read: {error.strerror}.") from error


@contextmanager
def _opened(package: Path) -> Iterator[tuple[tarfile.TarFile, ZstdFile]]:
    with _decompressed(package) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
        yield tar, stream


def _safe_path(info: tarfile.TarInfo, package: Path) -> str:
    """The member's path below the top folder."""
    top = package.name.removesuffix(ARCHIVE_SUFFIX)
    first, _, path = info.name.partition("/")
    parts = path.split("/")
    plain = info.isreg() and not info.issparse() and "\\" not in path and "\0" not in path
    if not plain or first != top or any(part in {"", ".", ".."} for part in parts):
        raise IntegrityError(f"{package}: {info.name!r} is no regular file under {top}/: not unpacked.")
    return path


def _read(tar: tarfile.TarFile, info: tarfile.TarInfo, package: Path) -> Iterator[bytes]:
    """The member's chunks. It runs in its reader's frame, so it tells damage itself."""
    file = tar.extractfile(info)
    while file and (chunk := _next(file, package)):
        yield chunk


def _next(file: IO[bytes], package: Path) -> bytes:
    with _damage(package):
        return file.read(_CHUNK)


def _unpack(folder: Path, path: str, chunks: Iterator[bytes]) -> Digest:
    target = folder / path
    hasher, size = hashlib.sha256(), 0
    with disk_errors(target):
        _make_folders(folder, path)
        with target.open("xb") as file:
            os.fchmod(file.fileno(), file_mode(path))
            for chunk in chunks:
                hasher.update(chunk)
                size += file.write(chunk)
    return Digest(size, hasher.hexdigest())


def _make_folders(folder: Path, path: str) -> None:
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        made = folder / parent
        if not made.is_dir():
            made.mkdir()
            made.chmod(FOLDER_MODE)


def _require_end(stream: ZstdFile, package: Path) -> None:
    """Read the frame to its end, so that its checksum is proved and nothing hides behind the tar's end."""
    while chunk := stream.read(_CHUNK):
        if chunk.strip(b"\0"):
            raise IntegrityError(f"{package} is damaged: there are bytes behind the end of its tar.")
