"""An archive's tar is decompressed: gzip by the standard library, zstd by a module or program found here.

From Python 3.14 on the standard library reads zstd too. A module or program must decompress a sample before
it is used: the bsdtar of macOS has no libzstd (jdx/mise#3845, stemdeckapp/stemdeck#31).
"""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import os
import shutil
import sys
import zlib
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO, Callable, Iterator, List, Optional, Protocol, Tuple, Type, cast

from builder.client.probe.processes import output_of
from builder.errors import CommandError, DiskError, IntegrityError, ToolMissingError
from builder.files.digest import CHUNK, Digest, RunningDigest, chunks_in, other_bytes
from builder.formats.package_names import Form
from builder.formats.text import amount


def readable(form: Form) -> bool:
    """Return whether this machine can decompress archives of this form."""
    if form is Form.GZ:
        return True
    try:
        require_zstd()
    except ToolMissingError:
        return False
    return True


@contextmanager
def open_tar(file: Path, form: Form, wanted: Optional[Digest] = None) -> Iterator[IO[bytes]]:
    """Yield the tar in ``file`` as a stream.

    ``wanted`` is the digest that the bytes read must have: a file that others write to may change after it
    was verified. Raises ``IntegrityError`` for damaged bytes and, at the end of the block, for other bytes
    than wanted; ``ToolMissingError`` where nothing decompresses zstd.
    """
    with ExitStack() as stack:
        source = stack.enter_context(_opened(file, wanted))
        if form is Form.ZST:
            yield stack.enter_context(_unpacked_zstd(source, file))
        else:
            stream = stack.enter_context(gzip.open(io.BufferedReader(cast("io.RawIOBase", source))))
            damage = (gzip.BadGzipFile, zlib.error, EOFError)
            message = f"{file}: not a whole gzip file"
            yield cast("IO[bytes]", _Checked(cast("IO[bytes]", stream), damage, message))


@contextmanager
def _opened(file: Path, wanted: Optional[Digest]) -> Iterator[IO[bytes]]:
    """Yield the bytes of ``file``, without a buffer: a program reads from where this process stopped.

    With ``wanted`` they come through a pipe, and their digest is compared at the end of the block. Raises
    ``DiskError`` where ``file`` cannot be read to its end.
    """
    if wanted is None:
        with file.open("rb", buffering=0) as source:
            yield source
        return
    reading, writing = os.pipe()
    running = RunningDigest()
    unread: List[OSError] = []

    def pour() -> None:
        with suppress(OSError), os.fdopen(writing, "wb") as pipe:
            for chunk in _readable_chunks(file, unread):
                running.update(chunk)
                pipe.write(chunk)

    with _unread_first(file, unread), os.fdopen(reading, "rb", buffering=0) as pipe:
        pouring = Thread(target=pour, daemon=True)
        pouring.start()
        with os.fdopen(os.dup(reading), "rb", buffering=0) as source:  # zstandard closes what it reads
            yield source
        for _ in chunks_in(pipe):  # the tar may end before the file does
            pass
        pouring.join()
    found = running.digest
    if found != wanted:
        raise other_bytes(f"{file}: changed while it was unpacked", wanted.sha256, found.sha256)


def _readable_chunks(file: Path, unread: List[OSError]) -> Iterator[bytes]:
    """Yield the bytes of ``file`` up to an error of its disk, which is added to ``unread``."""
    try:
        with file.open("rb") as source:
            yield from chunks_in(source)
    except OSError as error:
        unread.append(error)


@contextmanager
def _unread_first(file: Path, unread: List[OSError]) -> Iterator[None]:
    """Raise ``DiskError`` for an error in ``unread``, in place of the damage that it looks like."""
    try:
        yield
    except IntegrityError as error:
        if not unread:
            raise
        raise _unreadable(file, unread[0]) from error
    if unread:
        raise _unreadable(file, unread[0])


def _unreadable(file: Path, error: OSError) -> DiskError:
    return DiskError(
        f"{file} cannot be read",
        cause=error.strerror or str(error),
        advice="Copy it to another disk and run again.",
    )


class _Checked:
    """A stream that raises ``IntegrityError`` for the exceptions in ``damage``.

    gzip's own is an ``OSError``, which would be reported as an error of the disk.
    """

    def __init__(self, stream: IO[bytes], damage: Tuple[Type[Exception], ...], message: str) -> None:
        self._stream = stream
        self._damage = damage
        self._message = message

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; empty at the end."""
        try:
            return self._stream.read(size)
        except self._damage as error:
            raise IntegrityError(self._message, cause=str(error), advice=AGAIN) from error


AGAIN = "Fetch it again."

MODULES = ("compression.zstd", "backports.zstd", "zstandard")

PROGRAMS: Tuple[Tuple[str, ...], ...] = (
    ("zstd", "--decompress", "--stdout", "--quiet", "--no-progress"),
    # libarchive's tar reads zstd by itself and copies the members of the archive on its standard input.
    ("bsdtar", "--create", "--file", "-", "--format", "pax", "@-"),
    ("tar", "--create", "--file", "-", "--format", "pax", "@-"),
)
"""The programs that decompress their standard input to their standard output."""

LONGEST_WINDOW = 2**27
"""The longest window in bytes that packages have, and that every reader of zstd accepts by default."""

_MAGIC = 0xFD2FB528

_SAMPLE = base64.b64decode(
    "KLUv/QSInQEABAJwcm9iZQAwMDAwNjQ0ADA2NzY1ACAwAHVzdGFyADAwAAYA84D/gDflFyXcA8BwdgJF4Cvygw=="
)
"""A tar with the empty file ``probe``, in a zstd frame with a window of ``LONGEST_WINDOW``."""

_PROBE = b"probe\0"

_ADVICE = {
    "linux": "the program zstd (apt install zstd, dnf install zstd), the Python package backports.zstd",
    "darwin": "the program zstd (brew install zstd), the Python package backports.zstd (pip install)",
    "win32": "the Python package backports.zstd (py -m pip install backports.zstd)",
}
"""The programs and modules to install, by ``sys.platform``."""


class _Decompressor(Protocol):
    def stream_reader(self, source: IO[bytes], *, read_across_frames: bool, closefd: bool) -> IO[bytes]:
        """Return a stream of the decompressed bytes."""


class _ZstdModule(Protocol):
    """The used part of the modules ``compression.zstd``, ``backports.zstd`` and ``zstandard``."""

    ZstdError: Type[Exception]

    ZstdDecompressor: Callable[[], _Decompressor]
    """The class of ``zstandard`` that is used because that module's ``open`` stops after the first frame."""

    def open(self, file: IO[bytes], mode: str) -> IO[bytes]:
        """Return a stream of the decompressed bytes of all frames."""


@contextmanager
def _unpacked_zstd(source: IO[bytes], file: Path) -> Iterator[IO[bytes]]:
    """Yield the decompressed bytes of ``source``, which is ``file``'s, as a stream.

    Raises ``ToolMissingError`` where no module or program decompresses zstd, ``IntegrityError`` where the
    bytes are not zstd, end early, or need a window longer than ``LONGEST_WINDOW``.
    """
    reader = _reader()
    _require_window(file)
    with reader.open(source, f"{file}: not a whole zstd file") as stream:
        yield stream


def _require_window(file: Path) -> None:
    """Raise ``IntegrityError`` for a window that is longer than ``LONGEST_WINDOW``."""
    with file.open("rb") as source:
        size = window_of(source.read(18))
    if size > LONGEST_WINDOW:
        raise IntegrityError(
            f"{file}: its zstd frame needs a window of {amount(size)}, and packages have at most "
            f"{amount(LONGEST_WINDOW)}.",
            advice="The file is not damaged: whoever made it has to pack it with zstd --long=27 at most.",
        )


def window_of(head: bytes) -> int:
    """Return the window in bytes of the zstd frame that begins with ``head``; 0 where it is no frame.

    Source: RFC 8878, section 3.1.1.1. A frame without a window needs as much memory as it has content.
    """
    if int.from_bytes(head[:4], "little") != _MAGIC or len(head) < 6:  # noqa: PLR2004 magic, flags, window
        return 0
    flags, window = head[4], head[5]
    if not flags & 0x20:
        base = 1 << 10 + (window >> 3)
        return base + base // 8 * (window & 7)
    begin = 5 + (0, 1, 2, 4)[flags & 3]
    length, least = ((1, 0), (2, 256), (4, 0), (8, 0))[flags >> 6]
    return least + int.from_bytes(head[begin : begin + length], "little")


def require_zstd() -> None:
    """Raise ``ToolMissingError`` where nothing here decompresses zstd.

    The caller checks this before a download.
    """
    _reader()


@dataclass(frozen=True)
class _Reader:
    """A way to decompress zstd: either a module or a program's command line."""

    module: Optional[_ZstdModule] = None
    argv: Tuple[str, ...] = ()

    @contextmanager
    def open(self, source: IO[bytes], broken: str, *, quiet: bool = False) -> Iterator[IO[bytes]]:
        """Yield the decompressed bytes of ``source`` as a stream. Raises ``IntegrityError(broken)``.

        ``quiet`` discards the program's stderr.
        """
        if self.module is not None:
            with _open(self.module, source) as stream:
                yield cast("IO[bytes]", _Checked(stream, (self.module.ZstdError, EOFError), broken))
            return
        try:
            with output_of(self.argv, source, quiet=quiet) as stream:
                yield stream
        except CommandError as error:
            raise IntegrityError(broken, cause=str(error), advice=AGAIN) from error

    def works(self) -> bool:
        """Return whether this module or program decompresses the sample."""
        try:
            with _sample() as source, self.open(source, "", quiet=True) as stream:
                return stream.read(len(_PROBE)) == _PROBE
        except Exception:  # noqa: BLE001 any failure means that it does not decompress zstd
            return False


@cache
def _reader() -> _Reader:
    """Return the first reader that decompresses the sample. Raises ``ToolMissingError`` where none does."""
    for reader in _readers():
        if reader.works():
            return reader
    raise no_zstd()


def _sample() -> IO[bytes]:
    """Return the sample as a pipe, which a program can read and which needs no folder to write to."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(_SAMPLE)
    return os.fdopen(reading, "rb")


def no_zstd(*details: str) -> ToolMissingError:
    """Return the error for a machine without zstd; ``details`` are lines about failed attempts."""
    advice = _ADVICE.get(sys.platform, _ADVICE["linux"])
    return ToolMissingError(
        f"Nothing here can unpack zstd. Install one of: {advice}, or Python 3.14.",
        advice="Where the release has a .tar.gz of the package, every Python reads it.",
        details=details,
    )


def _readers() -> Iterator[_Reader]:
    for name in MODULES:
        with suppress(ImportError):
            yield _Reader(module=cast("_ZstdModule", importlib.import_module(name)))
    for program, *arguments in PROGRAMS:
        path = shutil.which(program)
        if path is not None:
            yield _Reader(argv=(path, *arguments))


class _Blocks:
    """A stream that returns ``CHUNK`` bytes, because a ``ZstdFile`` asks for 8 KiB, which takes more time."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, _size: int) -> bytes:
        """Return up to ``CHUNK`` bytes; empty at the end."""
        return self._stream.read(CHUNK)


def _open(module: _ZstdModule, source: IO[bytes]) -> IO[bytes]:
    if hasattr(module, "ZstdFile"):
        return module.open(cast("IO[bytes]", _Blocks(source)), "rb")
    return module.ZstdDecompressor().stream_reader(source, read_across_frames=True, closefd=True)
