"""Writer of wheels: members of other wheels are copied compressed, new ones deflated; RECORD comes last."""

from __future__ import annotations

import base64
import csv
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from zipfile import ZipFile, ZipInfo

from builder.adapters.archive.zip_file import EXECUTABLE, PLAIN, ZipWriter, entry_of
from builder.files.digest import Digest, chunks_in

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
    """Yield the bytes of a member as they are in its archive, compressed."""
    file = source.fp
    if file is None:
        raise ValueError("the archive is closed")
    file.seek(member.header_offset + _LOCAL_HEADER - _LENGTHS.size)
    name, extra = _LENGTHS.unpack(file.read(_LENGTHS.size))
    file.seek(name + extra, io.SEEK_CUR)
    yield from chunks_in(file, 1 << 20, member.compress_size)
