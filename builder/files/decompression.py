"""Readers of compressed streams: the standard library, and for zstd a module or program of this machine.

The client, the builder and ``inspect`` read through ``decompressed``: what is cut short, altered, or followed
by something else is an ``IntegrityError``. From Python 3.14 on the standard library reads zstd too. A module
or program must decompress a sample before it is used: the bsdtar of macOS has no libzstd (jdx/mise#3845,
stemdeckapp/stemdeck#31).
"""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import os
import shutil
import subprocess
import sys
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Callable, Iterator, Mapping, Optional, Protocol, Sequence, Tuple, Type, cast

from builder.errors import CommandError, IntegrityError, ToolMissingError
from builder.files.digest import CHUNK, Readable
from builder.formats.package_names import Form
from builder.formats.text import amount

if sys.platform == "linux":
    import fcntl

AGAIN = "It may be damaged or cut short; fetch or make it again."

ZSTD = "zstd"

MAGIC: Mapping[str, bytes] = {
    "gzip": b"\x1f\x8b",
    ZSTD: b"\x28\xb5\x2f\xfd",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
}
"""The first bytes of a file by the compression that it has."""

MODULES = ("compression.zstd", "backports.zstd", "zstandard")

PROGRAMS: Tuple[Tuple[str, ...], ...] = (
    ("zstd", "--decompress", "--stdout", "--quiet", "--no-progress"),
    # libarchive's tar reads zstd by itself and copies the members of the archive on its standard input.
    ("bsdtar", "--create", "--file", "-", "--format", "pax", "@-"),
    ("tar", "--create", "--file", "-", "--format", "pax", "@-"),
)
"""The programs that decompress their standard input to their standard output."""

WINDOW_LOG = 27
"""Binary logarithm of the longest window in bytes that packages have; every reader accepts it by default."""

_SKIPPABLE = 0x184D2A5
"""The magic number of a frame without content, without its last hexadecimal digit."""

_SAMPLE = base64.b64decode(
    "KLUv/QSInQEABAJwcm9iZQAwMDAwNjQ0ADA2NzY1ACAwAHVzdGFyADAwAAYA84D/gDflFyXcA8BwdgJF4Cvygw=="
)
"""A tar with the empty file ``probe``, in a zstd frame with the longest window."""

_PROBE = b"probe\0"

_ADVICE = {
    "linux": "the program zstd (apt install zstd, dnf install zstd), the Python package backports.zstd",
    "darwin": "the program zstd (brew install zstd), the Python package backports.zstd (pip install)",
    "win32": "the Python package backports.zstd (py -m pip install backports.zstd)",
}
"""The programs and modules to install, by ``sys.platform``."""

_SET_PIPE_SIZE = 1031
"""``F_SETPIPE_SZ`` of Linux, which ``fcntl`` defines from Python 3.10 on."""

_PIPE_BYTES = 2**20
"""The requested size of a pipe: the most that Linux grants without privileges. A pipe has 64 KiB by
default."""

_LITTLE = 2**20
"""The most bytes of a stream that a reader may leave: a tar ends with some ten thousand that are not read."""


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


def packing_of(head: bytes) -> str:
    """Return the key of ``MAGIC`` for a file that begins with ``head``; empty where it is not compressed."""
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), "")


def packing_in(form: Form) -> str:
    """Return how packages of this form are compressed."""
    return "gzip" if form is Form.GZ else ZSTD


def readable(form: Form) -> bool:
    """Return whether this machine can decompress archives of this form."""
    if form is Form.GZ:
        return True
    try:
        require_zstd()
    except ToolMissingError:
        return False
    return True


def damaged(what: str, cause: str, advice: str = AGAIN) -> IntegrityError:
    """Return the error for bytes that are not those that were written."""
    return IntegrityError(f"{what} is damaged", cause=cause, advice=advice)


class CheckedStream:
    """A stream that raises ``IntegrityError`` for exceptions in ``damage``; ``what`` names it in errors."""

    def __init__(self, stream: Readable, damage: Tuple[Type[Exception], ...], what: str) -> None:
        self._stream = stream
        self._damage = damage
        self._what = what
        self._ahead = b""

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; empty at the end."""
        if self._ahead:
            most = len(self._ahead) if size < 0 else size
            given, self._ahead = self._ahead[:most], self._ahead[most:]
            return given + self.read() if size < 0 else given
        try:
            return self._stream.read(size)
        except self._damage as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk failed, not the bytes: gzip's and bz2's own errors have no number
            raise damaged(self._what, str(error) or type(error).__name__) from error

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end, and leave them to be read."""
        ahead = self._ahead
        self._ahead = b""
        while len(ahead) < size and (more := self.read(size - len(ahead))):
            ahead += more
        self._ahead = ahead
        return ahead[:size]


@contextmanager
def decompressed(
    source: IO[bytes], packing: str, what: str, file: Optional[Path] = None
) -> Iterator[CheckedStream]:
    """Yield the decompressed bytes of ``source`` as a forward-only stream; ``what`` names it in errors.

    ``packing`` is a key of ``MAGIC``. ``file`` is the file that ``source`` reads, and ``None`` where there is
    no single one. Raises ``ToolMissingError`` where no module or program decompresses zstd, and
    ``IntegrityError`` for bytes that are not as ``packing`` says, end early, or need too long a window.
    """
    if packing == ZSTD:
        reader = _reader()
        if file is not None:
            _require_frames(file, what, whole=reader.module is None)
        with reader.open(source, what) as stream:
            yield stream
        return
    buffered = io.BufferedReader(cast("io.RawIOBase", source), CHUNK)
    try:
        unpacked, damage = _standard(buffered, packing)
        yield CheckedStream(unpacked, damage, what)
    finally:
        buffered.detach()  # the caller closes what it has opened


def _standard(source: IO[bytes], packing: str) -> Tuple[IO[bytes], Tuple[Type[Exception], ...]]:
    """Return a stream of the bytes that the standard library decompresses, and the errors of damaged ones."""
    if packing == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=source)), (OSError, zlib.error, EOFError)
    if packing == "bzip2":
        import bz2  # noqa: PLC0415 some Pythons lack it, and no package needs it

        return cast("IO[bytes]", bz2.BZ2File(source)), (OSError, EOFError)
    import lzma  # noqa: PLC0415 some Pythons lack it, and no package needs it

    return cast("IO[bytes]", lzma.LZMAFile(source)), (lzma.LZMAError, EOFError)


def _require_frames(file: Path, what: str, *, whole: bool) -> None:
    """Raise ``IntegrityError`` unless ``file`` begins with a zstd frame whose window every reader has.

    With ``whole`` the file must be nothing but such frames: a program reads gzip, xz and lz4 behind them too.
    """
    with file.open("rb", buffering=0) as source:
        size, at = os.fstat(source.fileno()).st_size, 0
        while at < size or at == 0:
            source.seek(at)
            head = source.read(18)
            if int.from_bytes(head[:4], "little") >> 4 == _SKIPPABLE:
                at += 8 + int.from_bytes(head[4:8], "little")
                continue
            _require_window(head, what)
            if not whole:
                return
            at = _end_of_frame(source, at, head)
    if at > size:
        raise damaged(what, "a zstd frame ends early")


def _end_of_frame(source: IO[bytes], at: int, head: bytes) -> int:
    """Return the offset behind the zstd frame at ``at``, past the file's end if the frame ends early.

    Source: RFC 8878, sections 3.1.1.1 and 3.1.1.2. ``head`` is the frame's first bytes.
    """
    flags = head[4]
    single = flags >> 5 & 1
    at += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
    while True:
        source.seek(at)
        told = source.read(3)
        block = int.from_bytes(told, "little")
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # a block of type 1 is one byte, repeated
        if block & 1 or len(told) < 3:  # noqa: PLR2004 a block's header
            return at + (4 if flags & 4 else 0)


def _require_window(head: bytes, what: str) -> None:
    """Raise ``IntegrityError`` without a window, or for one that is longer than packages have."""
    size = window_of(head)
    if not size:  # the program zstd reads gzip, xz and lz4 too
        raise damaged(what, "it has something else than zstd frames")
    if size > 1 << WINDOW_LOG:
        raise IntegrityError(
            f"{what}: its zstd frame needs a window of {amount(size)}, and packages have at most "
            f"{amount(1 << WINDOW_LOG)}.",
            advice="The file is not damaged: whoever made it has to pack it with zstd --long=27 at most.",
        )


def window_of(head: bytes) -> int:
    """Return the window in bytes of the zstd frame that begins with ``head``; 0 where it is no frame.

    Source: RFC 8878, section 3.1.1.1. A frame without a window needs as much memory as it has content.
    """
    if not head.startswith(MAGIC[ZSTD]) or len(head) < 6:  # noqa: PLR2004 magic, flags, window
        return 0
    flags, window = head[4], head[5]
    if not flags & 0x20:
        base = 1 << 10 + (window >> 3)
        return base + base // 8 * (window & 7)
    begin = 5 + (0, 1, 2, 4)[flags & 3]
    length, least = ((1, 0), (2, 256), (4, 0), (8, 0))[flags >> 6]
    return max(1, least + int.from_bytes(head[begin : begin + length], "little"))  # an empty frame has 0


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
    def open(self, source: IO[bytes], what: str, *, quiet: bool = False) -> Iterator[CheckedStream]:
        """Yield the decompressed bytes of ``source``, which errors call ``what``, as a stream.

        ``quiet`` discards the program's stderr. Raises ``IntegrityError``.
        """
        if self.module is not None:
            with _open(self.module, source) as stream:
                yield CheckedStream(stream, (self.module.ZstdError, EOFError), what)
            return
        try:
            with output_of(self.argv, source, quiet=quiet) as stream:
                yield CheckedStream(stream, (), what)
        except CommandError as error:
            raise damaged(what, str(error)) from error

    def works(self) -> bool:
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


def no_zstd() -> ToolMissingError:
    """Return the error for a machine without zstd."""
    advice = _ADVICE.get(sys.platform, _ADVICE["linux"])
    return ToolMissingError(
        f"Nothing here can unpack zstd. Install one of: {advice}, or Python 3.14.",
        advice="Where the release has a .tar.gz of the package, every Python reads it.",
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
    return module.ZstdDecompressor().stream_reader(source, read_across_frames=True, closefd=False)


@contextmanager
def output_of(argv: Sequence[str], source: IO[bytes], *, quiet: bool = False) -> Iterator[IO[bytes]]:
    """Yield a program's stdout as a stream; its standard input is ``source``.

    Raises ``CommandError`` for an exit code other than 0. ``quiet`` discards its stderr. Where the reader
    leaves more than ``_LITTLE`` bytes, the program is killed and its exit code is ignored.
    """
    stderr = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(argv, stdin=source, stdout=subprocess.PIPE, stderr=stderr) as process:
        stream = cast("IO[bytes]", process.stdout)
        _widen(stream)
        try:
            yield stream
            wanted = len(stream.read(_LITTLE)) < _LITTLE
        except Exception as error:
            if stream.read(1) or process.wait() == 0:
                process.kill()
                raise
            # The reader failed because the program did: the program's error is the cause.
            raise _failed(process) from error
        except BaseException:
            process.kill()
            raise
        if not wanted:
            process.kill()
            return
    if process.returncode != 0:
        raise _failed(process)


def _failed(process: subprocess.Popen[bytes]) -> CommandError:
    argv = cast("Sequence[str]", process.args)
    return CommandError(f"{argv[0]} exited with {process.returncode}", argv=argv, code=process.returncode)


def _widen(pipe: IO[bytes]) -> None:
    """Enlarge the pipe where the system allows it, so that the two processes wake each other less often."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(pipe.fileno(), _SET_PIPE_SIZE, _PIPE_BYTES)
