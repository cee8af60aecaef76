"""Files that nobody vouches for: their kind by their first bytes, decompression, and where they are kept.

``Scratch`` keeps libraries as files under numbers: no name from an archive is ever a name on this disk.
``Allowance`` says how much an archive may make of its size: a million files can be packed in 1 MB.
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
    IndexError,  # from here on what tarfile and zipfile raise on headers that lie
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
"""By a file's first bytes. Each gives what is used like a BufferedReader: read, readinto, peek."""


def is_zip(head: bytes) -> bool:
    """Whether a file that begins so is a zip archive: a wheel, a NuGet package."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_compressed(head: bytes) -> bool:
    """Whether a file that begins so is gzip, zstd, bzip2 or xz."""
    return head.startswith(tuple(_DECODERS))


def is_tar(head: bytes) -> bool:
    """Whether the first 512 bytes of a file are a tar member's header, checksum and all."""
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def decompressed(file: io.BufferedReader) -> io.BufferedReader | None:
    """The bytes behind gzip, zstd, bzip2 or xz, read forward only; ``None`` when the file is none of them."""
    head = file.peek(8)
    for magic, decoder in _DECODERS.items():
        if head.startswith(magic):
            return cast("io.BufferedReader", decoder(file))
    return None


def read_to_end(stream: IO[bytes]) -> None:
    """Read what is left, so that the checksum at a compressed file's end is compared."""
    for _ in chunks_in(stream):
        pass


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Report whatever goes wrong inside the block, which reads ``what``, as ``IntegrityError``."""
    try:
        yield
    except _DAMAGED as error:
        raise IntegrityError(_cut_short(what, str(error) or type(error).__name__)) from error
    except OSError as error:  # gzip and bz2 tell damage so too, without a number
        raise IntegrityError(_cut_short(what, error.strerror or str(error))) from error


def _cut_short(what: str, why: str) -> str:
    return f"{what} cannot be read: {why}. It may be damaged or cut short; fetch or make it again."


_CHUNK = 1 << 20


class Scratch:
    """A folder that keeps the libraries of archives, under numbers."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is made here and removed by whoever handed it over."""
        self._folder = folder
        self._count = 0
        with disk_errors(folder):
            folder.mkdir()

    def place(self) -> Path:
        """A path in the folder that no file has yet."""
        self._count += 1
        return self._folder / str(self._count)

    def keep(self, stream: IO[bytes], size: int, what: str) -> Path:
        """The ``size`` bytes of ``what`` as a file. Raises ``DiskError`` before the disk is full.

        Raises ``IntegrityError`` for more than a library can have.
        """
        if size > LARGEST:
            raise IntegrityError(f"{what} has {size:,} bytes: no library is larger than 4 GiB.")
        return self.keep_archive(stream, size, what)

    def keep_archive(self, stream: IO[bytes], size: int, what: str) -> Path:
        """The same of an archive, however large."""
        path = self.place()
        self.require(size, what)
        with disk_errors(path, size), path.open("xb") as file:
            for chunk in _chunks(stream, size, what):
                file.write(chunk)
        return path

    def require(self, size: int, what: str) -> None:
        """``DiskError`` unless ``size`` bytes, which ``what`` says it has, are free."""
        require_space(self._folder / what.rpartition("/")[2], size)


def _chunks(stream: IO[bytes], size: int, what: str) -> Iterator[bytes]:
    """Exactly ``size`` bytes, however many the stream would go on to give."""
    left = size
    while left:
        with damage(what):
            chunk = stream.read(min(_CHUNK, left))
        if not chunk:
            raise IntegrityError(
                f"{what} ends {left:,} bytes before the size that its header says ({size:,}). "
                "It may be damaged or cut short; fetch or make it again."
            )
        left -= len(chunk)
        yield chunk


_HEADERS, _HEADERS_FOR_A_BYTE = 1 << 23, 16
"""Bytes: 16,384 files, and one more for each 32 bytes, name and all."""

_LIBRARIES, _BYTES_FOR_A_LIBRARY = 4096, 512

_BYTES, _BYTES_FOR_A_BYTE = 1 << 28, 100
"""Device code packs to a third, zeros to a thousandth or less."""

_STACKED = 32
"""What laying one file over the others costs, in bytes of headers that could be read in that time."""


@dataclass
class Allowance:
    """How much a source with all its layers may still unpack to. All methods raise ``IntegrityError``."""

    what: str
    headers: int
    libraries: int
    content: int

    @classmethod
    def of(cls, what: str, size: int) -> Allowance:
        """The allowance of a source of ``size`` bytes."""
        return cls(
            what=what,
            headers=_HEADERS + _HEADERS_FOR_A_BYTE * size,
            libraries=_LIBRARIES + size // _BYTES_FOR_A_LIBRARY,
            content=_BYTES + _BYTES_FOR_A_BYTE * size,
        )

    def take_headers(self, size: int) -> None:
        """Take ``size`` bytes of headers from it."""
        self.headers -= size
        if self.headers < 0:
            raise self._used_up("files")

    def take_stacked(self, count: int) -> None:
        """Take ``count`` files of layers that are laid over each other."""
        self.take_headers(_STACKED * count)

    def take_libraries(self, count: int) -> None:
        """Take ``count`` libraries to report on."""
        self.libraries -= count
        if self.libraries < 0:
            raise self._used_up("libraries")

    def take_content(self, size: int) -> None:
        """Take the bytes that the header of a member says it has, before they are read."""
        self.content -= size
        if self.content < 0:
            raise self._used_up("bytes")

    def _used_up(self, things: str) -> IntegrityError:
        return IntegrityError(
            f"{self.what} has more {things} than belong into an archive of its size. If that is how it is "
            "meant, unpack it and name the folder."
        )
