"""Wheels written: members of other wheels as they are compressed there, new ones by deflate, RECORD last.

The bytes depend on what goes in and on the version of zlib-ng; not on the machine or the time.
"""

from __future__ import annotations

import base64
import csv
import io
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from zlib_ng import zlib_ng

from builder.files.digest import Digest, RunningDigest, chunks_in

LEVEL = 9

_EARLIEST = (1980, 1, 1, 0, 0, 0)

_LOCAL_HEADER = 30
"""Bytes of a member's header before its name."""

_LENGTHS = struct.Struct("<HH")
"""Of the name and the extra field, at the end of that header."""

EXECUTABLE = 0o755

PLAIN = 0o644


class WheelWriter:
    """One wheel, written from front to end into ``file``; ``info`` is the name of its ``.dist-info``."""

    def __init__(self, file: IO[bytes], info: str) -> None:
        self._zip = ZipFile(file, "w")
        self._file = file
        self._info = info
        self._rows: list[tuple[str, str, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write RECORD and the zip's directory; after an error, nothing more."""
        if kind is None:
            self._close()
        else:
            self._zip.fp = None

    def copy(self, source: ZipFile, member: ZipInfo, digest: Digest) -> None:
        """Take a member of another wheel as it is compressed there; ``digest`` is of its content."""
        mode = EXECUTABLE if member.external_attr >> 16 & 0o111 else PLAIN
        fresh = _entry(member.filename, mode, member.compress_type)
        fresh.CRC, fresh.file_size, fresh.compress_size = member.CRC, member.file_size, member.compress_size
        self._append(fresh, _compressed(source, member))
        self._record(member.filename, digest)

    def add(self, path: str, content: bytes | Path, mode: int = PLAIN) -> Digest:
        """Compress bytes, or a file's, into ``path``: what they are."""
        if isinstance(content, bytes):
            digest = self._compress(path, io.BytesIO(content), mode)
        else:
            with content.open("rb") as source:
                digest = self._compress(path, source, mode)
        self._record(path, digest)
        return digest

    def _close(self) -> None:
        path, table = f"{self._info}/RECORD", io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([*self._rows, (path, "", "")])
        self._compress(path, io.BytesIO(table.getvalue().encode()), PLAIN)
        self._zip.close()

    def _compress(self, path: str, source: IO[bytes], mode: int) -> Digest:
        fresh, digest, crc = _entry(path, mode, ZIP_DEFLATED), RunningDigest(), 0
        compress = zlib_ng.compressobj(level=LEVEL, wbits=-zlib_ng.MAX_WBITS)
        with tempfile.TemporaryFile() as squeezed:
            for chunk in chunks_in(source):
                digest.update(chunk)
                crc = zlib_ng.crc32(chunk, crc)
                squeezed.write(compress.compress(chunk))
            squeezed.write(compress.flush())
            fresh.CRC, fresh.file_size, fresh.compress_size = crc, digest.digest.size, squeezed.tell()
            squeezed.seek(0)
            self._append(fresh, chunks_in(squeezed))
        return digest.digest

    def _append(self, fresh: ZipInfo, compressed: Iterator[bytes]) -> None:
        fresh.header_offset = self._file.tell()
        self._file.write(fresh.FileHeader())
        for chunk in compressed:
            self._file.write(chunk)
        self._zip.filelist.append(fresh)
        self._zip.NameToInfo[fresh.filename] = fresh
        self._zip.start_dir = self._file.tell()

    def _record(self, path: str, digest: Digest) -> None:
        hashed = base64.urlsafe_b64encode(bytes.fromhex(digest.sha256)).rstrip(b"=").decode()
        self._rows.append((path, f"sha256={hashed}", str(digest.size)))


def _entry(path: str, mode: int, how: int) -> ZipInfo:
    fresh = ZipInfo(path, _EARLIEST)
    fresh.create_system = 3  # Unix, so that the mode counts
    fresh.external_attr = (stat.S_IFREG | mode) << 16
    fresh.compress_type = how
    return fresh


def _compressed(source: ZipFile, member: ZipInfo) -> Iterator[bytes]:
    """The bytes of a member as they lie in its archive."""
    file = source.fp
    if file is None:
        raise ValueError("the archive is closed")
    file.seek(member.header_offset + _LOCAL_HEADER - _LENGTHS.size)
    name, extra = _LENGTHS.unpack(file.read(_LENGTHS.size))
    file.seek(name + extra, io.SEEK_CUR)
    left = member.compress_size
    while left > 0 and (chunk := file.read(min(left, 1 << 20))):
        left -= len(chunk)
        yield chunk
