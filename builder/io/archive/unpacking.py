"""Readers of untrusted packages: archives, whose own checksums cover every byte, and folders of files.

``stream_files`` makes the tar streams that the Docker Engine takes. A stream is made while it is read, so a
library of 750 MB is never whole in memory.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from builder.contents.package_manifest import Member
from builder.errors import IntegrityError, ValidationError
from builder.files.archive_reader import TarMember, UnpackLimits, plain_file, tar_members
from builder.files.decompression import AGAIN, CheckedStream, decompressed, packing_in
from builder.files.digest import CHUNK, Digest, chunks_in, file_digest, write_new
from builder.files.disk import disk_errors
from builder.files.safe_paths import inside, place_in
from builder.formats.manifest import Manifest, loads
from builder.formats.package_names import FOLDER_MODE, MANIFEST, file_mode, form_of, stem

_TEXT_LIMIT = 16 << 20


def manifest_of(package: Path) -> Manifest:
    """Return the manifest of a package. Raises ``IntegrityError``, and ``ConfigError`` for a wrong value."""
    return loads(manifest_bytes(package), package.name)


def manifest_bytes(package: Path) -> bytes:
    """Return the manifest's bytes, read from the head of the archive. Raises ``IntegrityError``."""
    with _opened(package) as members:
        first, content = next(members, (tarfile.TarInfo(), None))
        path = PurePosixPath(first.name)
        if (
            content is None
            or path.parts[1:] != (MANIFEST,)
            or not plain_file(first)
            or first.size > _TEXT_LIMIT
        ):
            raise IntegrityError(
                f"{package}: its first member is {str(path)!r}, not {MANIFEST}: no ortpacks package.",
                advice="Name a package.",
            )
        return content.read()


def members_of(package: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield every member's path below the top folder and its bytes, in the archive's order.

    The bytes must be read before the next member is requested. Raises ``IntegrityError`` for a damaged
    archive and for anything but regular files under the package's own top folder.
    """
    seen: set[str] = set()
    with _opened(package) as members:
        for info, content in members:
            path = "/".join(inside(info.name, stem(package.name))) if plain_file(info) else ""
            if content is None or not path:
                what = f"{package}: {info.name!r} is no regular file: not unpacked."
                raise IntegrityError(what, advice=AGAIN)
            if path in seen:
                raise IntegrityError(f"{package} holds {path} twice.", advice=AGAIN)
            seen.add(path)
            yield path, _chunks(package, content)


def texts_of(package: Path, paths: Collection[str]) -> Mapping[str, bytes]:
    """Return the bytes of a few small members by path; a member that does not exist is left out.

    Raises ``IntegrityError`` for damage and for a member of more than 16 MiB.
    """
    texts = {}
    for path, chunks in members_of(package):
        if path in paths:
            texts[path] = _text(package, path, chunks)
    return texts


def _text(package: Path, path: str, chunks: Iterator[bytes]) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > _TEXT_LIMIT:
            what = f"{package}: {path} has more than {_TEXT_LIMIT} bytes: it is no text."
            raise IntegrityError(what, advice=AGAIN)
    return bytes(content)


def extract(package: Path, folder: Path) -> Mapping[str, Digest]:
    """Unpack into a new ``folder`` and return the digests of the files, by member path, in archive order.

    Only regular files below the package's own top folder are allowed; anything else raises
    ``IntegrityError``, and nothing is written outside ``folder``. Raises ``DiskError``.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True)
        folder.chmod(FOLDER_MODE)
    return {path: unpack(folder, path, chunks) for path, chunks in members_of(package)}


def digests_of(members: Iterable[Member]) -> Mapping[str, Digest]:
    """Return size and sha256 of every member's bytes, by member path. Raises ``IntegrityError``."""
    wanted = {member.path: member.file for member in members}
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        return dict(zip(wanted, pool.map(file_digest, wanted.values()), strict=True))


def unpack(folder: Path, path: str, chunks: Iterator[bytes]) -> Digest:
    """Write one member below ``folder``, and return size and sha256 of its bytes. Raises ``DiskError``."""
    target = folder / path
    with disk_errors(target):
        return write_new(chunks, place_in(folder, path.split("/")), file_mode(path))


@contextmanager
def _opened(package: Path) -> Iterator[Iterator[TarMember]]:
    if not package.is_file():
        raise ValidationError(
            f"{package}: no such package", advice="`./run build` leaves its packages in dist/."
        )
    with (
        package.open("rb") as file,
        decompressed(file, packing_in(form_of(package.name)), str(package), package) as stream,
        _damage(package),
    ):
        yield tar_members(stream, UnpackLimits.of(str(package), package.stat().st_size))


def _chunks(package: Path, content: CheckedStream) -> Iterator[bytes]:
    """Yield a member's chunks. They are read outside of ``_opened``, which sees no damage in them."""
    while True:
        with _damage(package):
            chunk = content.read(CHUNK)
        if not chunk:
            return
        yield chunk


@contextmanager
def _damage(package: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        raise IntegrityError(f"{package} cannot be read", cause=cause, advice=AGAIN) from error


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
