"""Writers of zips by deflate, and of wheels.

Of a wheel, members of other wheels are copied compressed, and RECORD comes last. The bytes depend on the
members and on the version of zlib-ng, not on the machine or the time.
"""

from __future__ import annotations

import base64
import csv
import io
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Self
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from zlib_ng import zlib_ng

from builder.files.digest import Digest, RunningDigest, chunks_in

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


_LOCAL_HEADER = 30
"""Bytes of a member's local header before the member's name."""

_LENGTHS = struct.Struct("<HH")
"""The lengths of the name and of the extra field, the last four of those bytes."""


class WheelWriter(ZipWriter):
    """One wheel, written from front to end into ``file``; ``info`` is the name of its ``.dist-info``."""

    def __init__(self, file: IO[bytes], info: str) -> None:
        super().__init__(file)
        self._info = info
        self._rows: list[tuple[str, str, str]] = []

    def copy(self, source: ZipFile, member: ZipInfo, digest: Digest) -> None:
        """Copy a member of another wheel without recompression; ``digest`` is that of its content."""
        mode = EXECUTABLE if member.external_attr >> 16 & 0o111 else PLAIN
        fresh = entry_of(member.filename, mode, member.compress_type)
        fresh.CRC, fresh.file_size, fresh.compress_size = member.CRC, member.file_size, member.compress_size
        self.append(fresh, _compressed(source, member))
        self._record(member.filename, digest)

    def add(self, path: str, content: bytes | Path, mode: int = PLAIN) -> Digest:
        """Compress bytes, or the bytes of a file, into the member ``path``, and return their digest."""
        if isinstance(content, bytes):
            digest = self.compress(path, [content], mode)
        else:
            with content.open("rb") as source:
                digest = self.compress(path, chunks_in(source), mode)
        self._record(path, digest)
        return digest

    def close(self) -> None:
        """See ``ZipWriter.close``. RECORD is written first."""
        path, table = f"{self._info}/RECORD", io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([*self._rows, (path, "", "")])
        self.compress(path, [table.getvalue().encode()], PLAIN)
        super().close()

    def _record(self, path: str, digest: Digest) -> None:
        hashed = base64.urlsafe_b64encode(bytes.fromhex(digest.sha256)).rstrip(b"=").decode()
        self._rows.append((path, f"sha256={hashed}", str(digest.size)))


def _compressed(source: ZipFile, member: ZipInfo) -> Iterator[bytes]:
    file = source.fp
    if file is None:
        raise ValueError("the archive is closed")
    file.seek(member.header_offset + _LOCAL_HEADER - _LENGTHS.size)
    name, extra = _LENGTHS.unpack(file.read(_LENGTHS.size))
    file.seek(name + extra, io.SEEK_CUR)
    yield from chunks_in(file, 1 << 20, member.compress_size)
