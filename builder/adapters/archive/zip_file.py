"""Writer of zips by deflate, and of packages as zips for users of Windows who do not have the client.

The bytes depend on the members and on the version of zlib-ng, not on the machine or the time.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Self
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from zlib_ng import zlib_ng

from builder.adapters.archive.unpacking import members_of
from builder.errors import IntegrityError
from builder.files.atomic_write import part_file
from builder.files.digest import Digest, RunningDigest, chunks_in, stream_digest
from builder.formats.manifest import Manifest
from builder.formats.package_names import MANIFEST, file_mode

LEVEL = 9

EXECUTABLE, PLAIN = 0o755, 0o644
"""Permission bits of a member, whatever the umask is."""

_EARLIEST = (1980, 1, 1, 0, 0, 0)


class ZipWriter:
    """One zip, written into ``file``; local headers have the sizes, so that a member needs no seek."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = ZipFile(file, "w")
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the zip; after an error, write nothing more."""
        if kind is None:
            self.close()
        else:
            self._zip.fp = None

    def close(self) -> None:
        """Write the zip's directory."""
        self._zip.close()

    def compress(self, path: str, content: Iterable[bytes], mode: int) -> Digest:
        """Compress chunks into the member ``path``, and return the digest of all chunks together."""
        fresh, digest, crc = entry_of(path, mode, ZIP_DEFLATED), RunningDigest(), 0
        compress = zlib_ng.compressobj(level=LEVEL, wbits=-zlib_ng.MAX_WBITS)
        with tempfile.TemporaryFile() as squeezed:
            for chunk in content:
                digest.update(chunk)
                crc = zlib_ng.crc32(chunk, crc)
                squeezed.write(compress.compress(chunk))
            squeezed.write(compress.flush())
            fresh.CRC, fresh.file_size, fresh.compress_size = crc, digest.digest.size, squeezed.tell()
            squeezed.seek(0)
            self.append(fresh, chunks_in(squeezed))
        return digest.digest

    def append(self, fresh: ZipInfo, compressed: Iterable[bytes]) -> None:
        """Write a member from compressed bytes; ``fresh`` has the sizes and the checksum."""
        fresh.header_offset = self._file.tell()
        self._file.write(fresh.FileHeader())
        for chunk in compressed:
            self._file.write(chunk)
        self._zip.filelist.append(fresh)
        self._zip.NameToInfo[fresh.filename] = fresh
        self._zip.start_dir = self._file.tell()


def entry_of(path: str, mode: int, how: int) -> ZipInfo:
    """Return a member's entry with the compression method ``how`` and the time 1980-01-01."""
    fresh = ZipInfo(path, _EARLIEST)
    fresh.create_system = 3  # Unix, so that the mode counts
    fresh.external_attr = (stat.S_IFREG | mode) << 16
    fresh.compress_type = how
    return fresh


def write_package_zip(package: Path, manifest: Manifest, dest: Path) -> None:
    """Write the members of ``package`` into a zip, read the zip again, and only then name it ``dest``.

    Raises ``IntegrityError`` when a file differs from the manifest, and ``DiskError``.
    """
    top = f"{manifest.name}/"
    with part_file(dest, needed=2 * package.stat().st_size) as file:
        with ZipWriter(file) as writer:
            for path, chunks in members_of(package):
                writer.compress(f"{top}{path}", chunks, file_mode(path))
        file.flush()
        found = _digests(Path(file.name))
        wanted = {f"{top}{one.path}": Digest(one.size, one.sha256) for one in manifest.files if one.packed}
        found.pop(f"{top}{MANIFEST}", None)
        wrong = sorted(path for path in {*found, *wanted} if found.get(path) != wanted.get(path))
        if wrong:
            raise IntegrityError(
                f"{package}: {', '.join(wrong)}: not what the manifest names.", advice="Build it again."
            )


def _digests(file: Path) -> dict[str, Digest]:
    found = {}
    with ZipFile(file) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                found[name] = stream_digest(member)
    return found


def is_zip_of(file: Path, manifest: Mapping[str, bytes]) -> bool:
    """Return whether the zip, whose bytes are whole, holds the members of ``manifest`` with their bytes.

    A package's ``manifest.json`` is enough for a comparison, because it names all other files.
    """
    try:
        with ZipFile(file) as archive:
            return all(archive.read(name) == content for name, content in manifest.items())
    except (KeyError, BadZipFile):
        return False
