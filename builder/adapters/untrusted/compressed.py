"""What kind of file this is, by its first bytes; and compressed files as the bytes they were made from."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, cast
from zipfile import BadZipFile

from backports.zstd import DecompressionParameter, ZstdError, ZstdFile

from builder.errors import IntegrityError

_CHUNK = 1 << 20

_WINDOW_LOG = 27
"""128 MiB: what a zstd decoder accepts unasked. A longer window is a wish for the reader's memory."""

_DAMAGED = (
    tarfile.TarError,
    BadZipFile,
    ZstdError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    IndexError,  # from here on what tarfile and zipfile raise on headers that lie
    OverflowError,
    RecursionError,
    NotImplementedError,
)


# Each of these is a BufferedReader in all that is used of it: read, readinto, peek.
def _gzip(file: IO[bytes]) -> io.BufferedReader:
    return cast("io.BufferedReader", gzip.GzipFile(fileobj=file))


def _zstd(file: IO[bytes]) -> io.BufferedReader:
    options: dict[int, int] = {DecompressionParameter.window_log_max: _WINDOW_LOG}
    return cast("io.BufferedReader", ZstdFile(file, options=options))


def _bz2(file: IO[bytes]) -> io.BufferedReader:
    return cast("io.BufferedReader", bz2.BZ2File(file))


def _xz(file: IO[bytes]) -> io.BufferedReader:
    return cast("io.BufferedReader", lzma.LZMAFile(file))


_DECODERS: Mapping[bytes, Callable[[IO[bytes]], io.BufferedReader]] = {
    b"\x1f\x8b": _gzip,
    b"\x28\xb5\x2f\xfd": _zstd,
    b"BZh": _bz2,
    b"\xfd7zXZ\x00": _xz,
}


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
            return decoder(file)
    return None


def read_to_end(stream: IO[bytes]) -> None:
    """Read what is left, so that the checksum at a compressed file's end is compared."""
    while stream.read(_CHUNK):
        pass


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Tell whatever goes wrong while reading ``what``, as ``IntegrityError``."""
    try:
        yield
    except _DAMAGED as error:
        raise IntegrityError(_cut_short(what, str(error) or type(error).__name__)) from error
    except OSError as error:  # gzip and bz2 tell damage so too, without a number
        raise IntegrityError(_cut_short(what, error.strerror or str(error))) from error


def _cut_short(what: str, why: str) -> str:
    return f"{what} cannot be read: {why}. It may be damaged or cut short; fetch or make it again."
