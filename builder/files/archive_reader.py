"""Readers of untrusted archives. Tars are read forwards, with strict headers and limits on their contents.

``tarfile`` takes a broken header in the middle of an archive for the archive's end, follows a negative size
backwards, and reads extension headers of any size into memory; in ``_Strict`` these are errors. ``tarfile``'s
own mode for streams copies all bytes twice, a third of the time of unpacking, so it gets the stream as a file
that can seek forwards.

Any exception that the headers of a zip cause in ``zipfile`` becomes an ``IntegrityError``.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tarfile import ReadError
from typing import IO, Iterator, List, Optional, Tuple, Union, cast
from zipfile import BadZipFile, ZipFile, ZipInfo

from builder.errors import IntegrityError
from builder.files.decompression import AGAIN, CheckedStream, damaged
from builder.files.digest import CHUNK, Readable, chunks_in
from builder.formats.text import printable

_DAMAGED = (tarfile.TarError, ValueError, IndexError, OverflowError, RecursionError)
"""The exceptions of ``tarfile`` for malformed headers."""

_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)

_EXTENSION_LIMIT = 1 << 16
"""The most bytes of a long name or of pax records, which ``tarfile`` keeps in memory; most have hundreds."""

_HEADER_LIMIT = 1 << 17
"""The most bytes of all headers of one member, the map of a sparse member included."""

_MOST_PIECES = 2000
"""The most pieces of a sparse member; a library has a few."""

_GLOBAL_LIMIT = 64
"""The most pax records for all later members, which ``tarfile`` copies for each member; git writes one."""

_DIGITS = re.compile(rb"\d{40}")
"""More digits in a row than a record has; ``tarfile`` before Python 3.11.10 parses them in quadratic time."""

_ENDS = ("EOFHeaderError", "EmptyHeaderError")
"""Names of ``tarfile``'s errors for a block of zeros and the file's end; ``tarfile`` does not export them."""

_HEADERS, _HEADERS_FOR_A_BYTE = 1 << 23, 16
"""Limits on headers: bytes that any source may have, and more for each byte of the source. That is 16,384
files, and one more for each 32 bytes."""

_LIBRARIES, _BYTES_FOR_A_LIBRARY = 4096, 512

_BYTES, _BYTES_FOR_A_BYTE = 1 << 28, 100
"""Limits on content: bytes that any source may have, and more for each byte of the source. Device code is
compressed to a third, zeros to a thousandth or less."""


@dataclass
class UnpackLimits:
    """What an archive may still unpack to: members, bytes of their headers, libraries, bytes of content.

    Each method that takes from the limits raises ``IntegrityError`` when too little is left.
    """

    what: str
    members: int
    headers: int
    libraries: int
    content: int
    advice: str = "If that is intended, unpack it and name the folder."

    @classmethod
    def of(cls, what: str, size: int) -> UnpackLimits:
        """Return the limits of a source of ``size`` bytes."""
        headers = _HEADERS + _HEADERS_FOR_A_BYTE * size
        return cls(
            what=what,
            members=headers // tarfile.BLOCKSIZE,
            headers=headers,
            libraries=_LIBRARIES + size // _BYTES_FOR_A_LIBRARY,
            content=_BYTES + _BYTES_FOR_A_BYTE * size,
        )

    def take_member(self, headers: int, content: int) -> None:
        """Take a member with these bytes of headers and of content, before the content is read."""
        self.members -= 1
        self.headers -= headers
        if self.members < 0 or self.headers < 0:
            raise self._used_up("files")
        self.take_content(content)

    def take_libraries(self, count: int) -> None:
        """Take ``count`` libraries to report on."""
        self.libraries -= count
        if self.libraries < 0:
            raise self._used_up("libraries")

    def take_content(self, size: int) -> None:
        """Take ``size`` bytes of content, the size in a member's header, before they are read."""
        self.content -= size
        if self.content < 0:
            raise self._used_up("bytes")

    def _used_up(self, things: str) -> IntegrityError:
        return IntegrityError(
            f"{self.what}: it has more {things} than belong into an archive of its size", advice=self.advice
        )


TarMember = Tuple[tarfile.TarInfo, Optional[CheckedStream]]
"""A member's header and content. A content can be read until the next member is read, and is ``None`` for a
folder, link or device."""


def tar_members(stream: Readable, limits: UnpackLimits, *, seeks: bool = False) -> Iterator[TarMember]:
    """Yield the members of the tar in ``stream``, then read the stream to its end.

    So a compressed stream's checksums are compared. ``seeks`` is whether ``stream`` can be read in any order.
    ``limits.what`` names it in errors. Raises ``IntegrityError``, and ``OSError`` where the disk fails.
    """
    what = limits.what
    with _damage(what):
        source = stream if seeks else Forward(stream)
        tar = _ForwardTarFile.open(fileobj=cast("IO[bytes]", source), mode="r:", tarinfo=_Strict)
    while True:
        with _damage(what):
            info = tar.next()
            content = _content(tar, info) if info else None
        if info is None:
            break
        limits.take_member(info.offset_data - info.offset, info.size)
        yield info, CheckedStream(content, _DAMAGED, what) if content else None
    if any(chunk.strip(b"\0") for chunk in chunks_in(stream)):
        raise damaged(what, "there are bytes behind the end of its tar")


def is_tar(head: bytes) -> bool:
    """Return whether the first 512 bytes of a file are a tar member's header with a correct checksum."""
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def plain_file(member: tarfile.TarInfo) -> bool:
    """Return whether a member is a regular file: no link, device, folder or sparse file."""
    return member.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and not member.issparse()


@contextmanager
def _damage(what: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        cause = str(error) if isinstance(error, tarfile.TarError) else "a header in it is broken"
        raise damaged(what, cause) from error


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Optional[IO[bytes]]:
    """Return the member's bytes, or ``None``. As POSIX and GNU tar have it, an unknown type is a file."""
    if not info.isreg() and info.type in tarfile.SUPPORTED_TYPES:
        return None
    return tar.extractfile(info)


class _Strict(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: Union[bytes, bytearray], encoding: str, errors: str) -> _Strict:
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if type(error).__name__ in _ENDS:
                raise
            raise ReadError(f"a header in it is broken ({error})") from error
        if info.type in _EXTENSIONS and info.size > _EXTENSION_LIMIT:
            raise ReadError(f"a header in it has {info.size:,} bytes")
        return info

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Strict:
        start = tarfile.offset
        with _metered(tarfile):
            info = super().fromtarfile(tarfile)
        if info.size < 0 or tarfile.offset <= start:
            raise ReadError(f"{printable(info.name)} has a size below zero")
        if len(info.sparse or ()) > _MOST_PIECES:
            raise ReadError(f"{printable(info.name)} is sparse, in more than {_MOST_PIECES:,} pieces")
        if len(tarfile.pax_headers) > _GLOBAL_LIMIT:
            raise ReadError(f"it has more than {_GLOBAL_LIMIT} records for all of its members")
        return info


class _Headers:
    """The stream that ``tarfile`` reads a member's headers from; too many bytes raise ``ValueError``."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = _HEADER_LIMIT

    def read(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise ReadError(f"the headers of one member have more than {_HEADER_LIMIT:,} bytes")
        data = self._stream.read(size)
        if size > tarfile.BLOCKSIZE and _DIGITS.search(data):
            raise ReadError("a record in it has a number of 40 digits")
        return data

    def tell(self) -> int:
        return self._stream.tell()


@contextmanager
def _metered(tar: tarfile.TarFile) -> Iterator[None]:
    """Limit the bytes of headers that are read from ``tar`` inside the block; nested blocks share a limit."""
    whole = cast("IO[bytes]", tar.fileobj)
    if isinstance(whole, _Headers):
        yield
        return
    tar.fileobj = cast("IO[bytes]", _Headers(whole))
    try:
        yield
    finally:
        tar.fileobj = whole


class _ForwardTarFile(tarfile.TarFile):
    members: List[tarfile.TarInfo]

    def next(self) -> Optional[tarfile.TarInfo]:
        info = super().next()
        self.members.clear()  # TarFile would keep the headers of all
        return info


class Forward:
    """A stream that can seek forwards, and back by one byte, which ``tarfile`` reads twice."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._at = 0
        self._last = b""
        """The byte before ``_at``, or at ``_at`` when ``_again`` is set."""
        self._again = False

    def tell(self) -> int:
        """Return the offset in bytes from the stream's beginning."""
        return self._at

    def seek(self, position: int) -> int:
        """Go to ``position`` and return it. Raises ``StreamError`` for an earlier position."""
        if position == self._at - 1 and self._last:
            self._again, self._at = True, position
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass
        if position < self._at:
            raise tarfile.StreamError("seeking backwards is not allowed")
        return self._at

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes; fewer only at the end."""
        if self._again and size:
            self._again, self._at = False, self._at + 1
            return self._last + self.read(size - 1)
        data = self._stream.read(size) if size else b""
        while data and len(data) < size and (more := self._stream.read(size - len(data))):
            data += more
        self._at += len(data)
        self._last = data[-1:] or self._last
        return data


_DAMAGED_ZIP = (
    BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,  # an encrypted member; also NotImplementedError and RecursionError
    ValueError,  # from here on: raised by zipfile for false headers
    IndexError,
    OverflowError,
)


@contextmanager
def opened_zip(path: Path, what: str, advice: str = AGAIN) -> Iterator[ZipFile]:
    """Yield the zip at ``path``; ``what`` names it in errors.

    Raises ``IntegrityError`` for damage that is found in the block.
    """
    try:
        with ZipFile(path) as archive:
            yield archive
    except _DAMAGED_ZIP as error:
        raise damaged(what, str(error) or type(error).__name__, advice) from error


@contextmanager
def zip_member(archive: ZipFile, member: Union[str, ZipInfo], what: str) -> Iterator[CheckedStream]:
    """Yield the content of a member; ``what`` names it in errors. Raises ``KeyError`` where there is none."""
    with archive.open(member) as content:
        yield CheckedStream(content, _DAMAGED_ZIP, what)
