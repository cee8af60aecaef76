"""Reads package archives without trusting them: every byte is proved by the archive's own checksums."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from builder.adapters.archive.compression import DAMAGED, decompressed
from builder.adapters.archive.parts import blame_part, opened_whole
from builder.adapters.files.digests import CHUNK
from builder.adapters.files.part_file import disk_errors
from builder.errors import IntegrityError
from builder.formats.manifest import FOLDER_MODE, file_mode
from builder.formats.package_names import form_of, stem
from builder.package.archive import MANIFEST, Digest

_MANIFEST_LIMIT = 4 << 20

_TEXT_LIMIT = 16 << 20


def manifest_of(package: Path) -> bytes:
    """See ``package.archive.Archive.read_manifest``."""
    with _opened(package) as archive, archive.tar() as tar:
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
        return b"".join(archive.content(tar, first))


def members_of(package: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Every member's path below the top folder and its bytes, in the archive's order.

    The bytes must be read before the next member is asked for. Raises ``IntegrityError`` on a damaged
    archive and on anything but regular files under the package's own top folder.
    """
    seen: set[str] = set()
    with _opened(package) as archive, archive.tar() as tar:
        for info in tar:
            path = _safe_path(info, package)
            if path in seen:
                raise IntegrityError(f"{package}: {path} is there twice.")
            seen.add(path)
            yield path, archive.content(tar, info)
        archive.require_end()


def texts_of(package: Path, paths: Collection[str]) -> Mapping[str, bytes]:
    """See ``package.archive.Archive.read``."""
    found = {}
    for path, chunks in members_of(package):
        if path in paths:
            found[path] = _text(package, path, chunks)
    return found


def _text(package: Path, path: str, chunks: Iterator[bytes]) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > _TEXT_LIMIT:
            raise IntegrityError(f"{package}: {path} has more than {_TEXT_LIMIT} bytes: it is no text.")
    return bytes(content)


def unpack(folder: Path, path: str, chunks: Iterator[bytes]) -> Digest:
    """Write one member below ``folder``; size and sha256 of what was written. Raises ``DiskError``."""
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


@dataclass(frozen=True)
class _Archive:
    """An archive that is read forward."""

    package: Path
    file: IO[bytes]
    """Its own bytes."""
    stream: IO[bytes]
    """The tar's."""

    @contextmanager
    def tar(self) -> Iterator[tarfile.TarFile]:
        with tarfile.open(fileobj=self.stream, mode="r|", bufsize=CHUNK) as tar:
            yield tar

    def content(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
        """The member's chunks. It runs in its reader's frame, so it tells damage itself."""
        file = tar.extractfile(info)
        while file and (chunk := self._next(file)):
            yield chunk

    def require_end(self) -> None:
        """Read to the end, so that all checksums are compared and nothing hides behind the tar's end."""
        while chunk := self.stream.read(CHUNK):
            if chunk.strip(b"\0"):
                raise IntegrityError(f"{self.package} is damaged: there are bytes behind the end of its tar.")

    @contextmanager
    def damage(self) -> Iterator[None]:
        try:
            yield
        except (*DAMAGED, tarfile.TarError) as error:
            blame_part(self.package, self.file)
            raise IntegrityError(
                f"{self.package} is damaged: {error}. Build or download it again."
            ) from error
        except OSError as error:
            raise IntegrityError(f"{self.package} cannot be read: {error.strerror}.") from error

    def _next(self, file: IO[bytes]) -> bytes:
        with self.damage():
            return file.read(CHUNK)


@contextmanager
def _opened(package: Path) -> Iterator[_Archive]:
    with opened_whole(package) as file, decompressed(file, form_of(package.name)) as stream:
        archive = _Archive(package, file, stream)
        with archive.damage():
            yield archive


def _safe_path(info: tarfile.TarInfo, package: Path) -> str:
    """The member's path below the top folder."""
    top = stem(package.name)
    first, _, path = info.name.partition("/")
    parts = path.split("/")
    plain = info.isreg() and not info.issparse() and "\\" not in path and "\0" not in path
    if not plain or first != top or any(part in {"", ".", ".."} for part in parts):
        raise IntegrityError(f"{package}: {info.name!r} is no regular file under {top}/: not unpacked.")
    return path


def _make_folders(folder: Path, path: str) -> None:
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        made = folder / parent
        if not made.is_dir():
            made.mkdir()
            made.chmod(FOLDER_MODE)
