"""Readers of untrusted packages: archives, whose own checksums cover every byte, and folders of files.

``stream_files`` makes the tar streams that the Docker Engine takes. A stream is made while it is read, so a
library of 750 MB is never whole in memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from builder.adapters.archive.decompression import DAMAGED, decompressed
from builder.adapters.archive.split import blame_part, opened_whole
from builder.errors import IntegrityError, NothingToDoError
from builder.files.digest import CHUNK, Digest, chunks_in, write_new
from builder.files.disk import disk_errors
from builder.files.package_tar import NO_TAR, forward_tar, inside, place_in, plain_file
from builder.formats.package_names import LIB, MANIFEST, file_mode, form_of, stem
from builder.package.archive import Member
from builder.package.contents import vendor_of

_TEXT_LIMIT = 16 << 20

_AGAIN = "Build or download it again."

UNKNOWN = "unknown"
"""``source`` and ``licence`` of a file in a folder, whose origin is not known."""


def manifest_of(package: Path) -> bytes:
    """See ``package.archive.Archive.read_manifest``."""
    with _opened(package) as archive, forward_tar(archive.stream) as tar:
        first = tar.next()
        path = PurePosixPath(first.name) if first else PurePosixPath()
        if (
            first is None
            or path.parts[1:] != (MANIFEST,)
            or not plain_file(first)
            or first.size > _TEXT_LIMIT
        ):
            raise IntegrityError(
                f"{package}: its first member is {str(path)!r}, not {MANIFEST}: no ortpacks package.",
                advice="Name a package, or the .parts.json of one.",
            )
        return b"".join(archive.content(tar, first))


def members_of(package: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield every member's path below the top folder and its bytes, in the archive's order.

    The bytes must be read before the next member is requested. Raises ``IntegrityError`` for a damaged
    archive and for anything but regular files under the package's own top folder.
    """
    seen: set[str] = set()
    with _opened(package) as archive, forward_tar(archive.stream) as tar:
        for info in tar:
            path = _safe_path(info, package)
            if path in seen:
                raise IntegrityError(f"{package} holds {path} twice.", advice=_AGAIN)
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
            what = f"{package}: {path} has more than {_TEXT_LIMIT} bytes: it is no text."
            raise IntegrityError(what, advice=_AGAIN)
    return bytes(content)


def unpack(folder: Path, path: str, chunks: Iterator[bytes]) -> Digest:
    """Write one member below ``folder``, and return size and sha256 of its bytes. Raises ``DiskError``."""
    target = folder / path
    with disk_errors(target):
        return write_new(chunks, place_in(folder, path.split("/")), file_mode(path))


@dataclass(frozen=True)
class _Archive:
    """An archive that is read forward."""

    package: Path
    file: IO[bytes]
    """The archive's bytes."""
    stream: IO[bytes]
    """The tar's bytes, decompressed."""

    def content(self, tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
        """Yield the member's chunks. They are read outside of ``_opened``, so ``_next`` handles damage."""
        file = tar.extractfile(info)
        while file and (chunk := self._next(file)):
            yield chunk

    def require_end(self) -> None:
        """Read to the end, so that all checksums are compared.

        Raises ``IntegrityError`` for bytes other than zero behind the tar's end.
        """
        while chunk := self.stream.read(CHUNK):
            if chunk.strip(b"\0"):
                what = f"{self.package} is damaged: there are bytes behind the end of its tar."
                raise IntegrityError(what, advice=_AGAIN)

    @contextmanager
    def damage(self) -> Iterator[None]:
        try:
            yield
        except (*DAMAGED, *NO_TAR) as error:
            blame_part(self.package, self.file)
            raise IntegrityError(f"{self.package} is damaged", cause=str(error), advice=_AGAIN) from error
        except OSError as error:
            cause = error.strerror or str(error)
            raise IntegrityError(f"{self.package} cannot be read", cause=cause, advice=_AGAIN) from error

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
    """Return the path of a member below the top folder. Raises ``IntegrityError`` for no regular file."""
    path = "/".join(inside(info.name, stem(package.name)))
    if not path or not plain_file(info):
        raise IntegrityError(f"{package}: {info.name!r} is no regular file: not unpacked.", advice=_AGAIN)
    return path


def members_in(folder: Path) -> tuple[Member, ...]:
    """Return every file of an unpacked package but its manifest, or the libraries of a plain folder.

    The members are sorted by path. A link is a member too, even if it leads nowhere. Raises
    ``NothingToDoError`` without any library.
    """
    members = _package(folder) if (folder / LIB).is_dir() else _plain(folder)
    if not any(member.path.startswith(LIB) for member in members):
        raise NothingToDoError(
            f"No library in {folder}",
            advice=f"Name a package, or a folder like the one that a package unpacks to ({MANIFEST}, {LIB}).",
        )
    return members


def _package(folder: Path) -> tuple[Member, ...]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    members = (_member(file, file.relative_to(folder).as_posix()) for file in files)
    return tuple(member for member in members if member.path != MANIFEST)


def _plain(folder: Path) -> tuple[Member, ...]:
    files = sorted(path for path in folder.iterdir() if ".so" in path.name)
    named = (file for file in files if file.is_symlink() or not file.is_dir())
    return tuple(_member(file, f"{LIB}{file.name}") for file in named)


def _member(file: Path, path: str) -> Member:
    return Member(path=path, file=file, source=UNKNOWN, licence=UNKNOWN, vendor=vendor_of(file.name))


def stream_files(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield a tar's bytes with each file at its absolute container path, parents included, mode 0755."""
    for parent in sorted({str(above) for name in files for above in PurePosixPath(name).parents}):
        if parent != "/":
            yield _directory(parent).tobuf(tarfile.PAX_FORMAT)
    for name, path in sorted(files.items()):
        yield from _tar_member(name, path)
    yield b"\0" * (2 * tarfile.BLOCKSIZE)


def _directory(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _tar_member(name: str, path: Path) -> Iterator[bytes]:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.size, info.mode = path.stat().st_size, 0o755
    yield info.tobuf(tarfile.PAX_FORMAT)
    with path.open("rb") as file:
        yield from chunks_in(file)
    yield b"\0" * (-info.size % tarfile.BLOCKSIZE)
