"""Tools for untrusted files: recognition by first bytes, decompression, and limited storage.

``Scratch`` gives files numbers as names, so that no name from an archive is a name on this disk.
``UnpackLimits`` says how much an archive of a given size may unpack to, since 1 MB can hold a million files.
"""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, cast
from zipfile import BadZipFile

from builder.adapters.archive import decompression
from builder.binary.elf_headers import LARGEST
from builder.errors import IntegrityError
from builder.files.digest import chunks_in
from builder.files.disk import disk_errors, require_space
from builder.formats.package_names import Form

_DAMAGED = (
    *decompression.DAMAGED,
    tarfile.TarError,
    BadZipFile,
    lzma.LZMAError,
    ValueError,
    IndexError,  # from here on: raised by tarfile and zipfile for false headers
    OverflowError,
    RecursionError,
    NotImplementedError,
)


_DECODERS: Mapping[bytes, Callable[[IO[bytes]], object]] = {
    b"\x1f\x8b": partial(decompression.decompressed, form=Form.GZ),
    b"\x28\xb5\x2f\xfd": partial(decompression.decompressed, form=Form.ZST),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
"""Decoders by a file's first bytes. Each returns a stream that has read, readinto and peek."""


def is_zip(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a zip archive, as a wheel or a NuGet package is."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_compressed(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is gzip, zstd, bzip2 or xz."""
    return head.startswith(tuple(_DECODERS))


def is_tar(head: bytes) -> bool:
    """Return whether the first 512 bytes of a file are a tar member's header with a correct checksum."""
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def decompressed(file: io.BufferedReader) -> io.BufferedReader | None:
    """Return a forward-only stream of the decompressed bytes; ``None`` unless gzip, zstd, bzip2 or xz."""
    head = file.peek(8)
    for magic, decoder in _DECODERS.items():
        if head.startswith(magic):
            return cast("io.BufferedReader", decoder(file))
    return None


def read_to_end(stream: IO[bytes]) -> None:
    """Read the rest of a stream, so that the checksum at a compressed file's end is compared."""
    for _ in chunks_in(stream):
        pass


@contextmanager
def damage_errors(what: str) -> Iterator[None]:
    """Turn errors of reading ``what`` inside the block into ``IntegrityError``."""
    try:
        yield
    except _DAMAGED as error:
        raise _unreadable(what, str(error) or type(error).__name__) from error
    except OSError as error:  # gzip and bz2 raise it for damage too, without an errno
        raise _unreadable(what, error.strerror or str(error)) from error


def _unreadable(what: str, why: str) -> IntegrityError:
    return IntegrityError(f"{what} cannot be read", cause=why, advice=_FETCH_AGAIN)


_FETCH_AGAIN = "It may be damaged or cut short; fetch or make it again."


_CHUNK = 1 << 20


class Scratch:
    """A folder that keeps files from archives, with numbers as names."""

    def __init__(self, folder: Path) -> None:
        """Make ``folder``, which the caller removes."""
        self._folder = folder
        self._count = 0
        with disk_errors(folder):
            folder.mkdir()

    def place(self) -> Path:
        """Return a path in the folder that no file has yet."""
        self._count += 1
        return self._folder / str(self._count)

    def keep(self, stream: IO[bytes], size: int, what: str) -> Path:
        """Write the ``size`` bytes of ``what`` to a new file, and return its path.

        Raises ``DiskError`` before the disk is full, ``IntegrityError`` for a size that no library can have,
        or for a stream with fewer bytes.
        """
        if size > LARGEST:
            raise IntegrityError(f"{what} has {size:,} bytes", cause="no library is larger than 4 GiB")
        return self.keep_archive(stream, size, what)

    def keep_archive(self, stream: IO[bytes], size: int, what: str) -> Path:
        """Write an archive of any size to a new file, as ``keep`` does a library, and return its path."""
        path = self.place()
        self.require(size, what)
        with disk_errors(path, size), path.open("xb") as file:
            for chunk in _chunks(stream, size, what):
                file.write(chunk)
        return path

    def require(self, size: int, what: str) -> None:
        """Raise ``DiskError`` unless ``size`` bytes, the size that ``what`` claims to have, are free."""
        require_space(self._folder / what.rpartition("/")[2], size)


def _chunks(stream: IO[bytes], size: int, what: str) -> Iterator[bytes]:
    """Yield exactly ``size`` bytes of a stream. Raises ``IntegrityError`` if the stream has fewer."""
    left = size
    while left:
        with damage_errors(what):
            chunk = stream.read(min(_CHUNK, left))
        if not chunk:
            raise IntegrityError(
                f"{what} ends {left:,} bytes before the size that its header says ({size:,})",
                advice=_FETCH_AGAIN,
            )
        left -= len(chunk)
        yield chunk


_HEADERS, _HEADERS_FOR_A_BYTE = 1 << 23, 16
"""Bytes of headers in any source, and for each of its bytes: 16,384 files, and one more for each 32 bytes."""

_LIBRARIES, _BYTES_FOR_A_LIBRARY = 4096, 512

_BYTES, _BYTES_FOR_A_BYTE = 1 << 28, 100
"""Bytes of content in any source, and for each of its bytes.

Device code is compressed to a third, zeros to a thousandth or less.
"""

_STACKED = 32
"""The cost of stacking one file of a layer, as the bytes of headers that are read in the same time."""


@dataclass
class UnpackLimits:
    """The headers (bytes), libraries (count) and content (bytes) that a source may still unpack to.

    Each method that takes from the limits raises ``IntegrityError`` when too little is left.
    """

    what: str
    headers: int
    libraries: int
    content: int

    @classmethod
    def of(cls, what: str, size: int) -> UnpackLimits:
        """Return the limits of a source of ``size`` bytes."""
        return cls(
            what=what,
            headers=_HEADERS + _HEADERS_FOR_A_BYTE * size,
            libraries=_LIBRARIES + size // _BYTES_FOR_A_LIBRARY,
            content=_BYTES + _BYTES_FOR_A_BYTE * size,
        )

    def take_headers(self, size: int) -> None:
        """Take ``size`` bytes of headers."""
        self.headers -= size
        if self.headers < 0:
            raise self._used_up("files")

    def take_stacked(self, count: int) -> None:
        """Take the cost of stacking ``count`` files of layers, which counts as headers."""
        self.take_headers(_STACKED * count)

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
            f"{self.what} has more {things} than belong into an archive of its size",
            advice="If that is intended, unpack it and name the folder.",
        )
