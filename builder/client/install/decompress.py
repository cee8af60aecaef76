"""The tar inside a package's archive: gzip by the standard library, zstd by whatever reads it here.

From Python 3.14 on the standard library reads zstd too. Whatever seems to read it is given a sample first:
the bsdtar of macOS has no libzstd (jdx/mise#3845, stemdeckapp/stemdeck#31).
"""

from __future__ import annotations

import base64
import gzip
import importlib
import shutil
import sys
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Callable, Iterator, Optional, Protocol, Sequence, Tuple, Type, cast

from builder.client.probe.processes import output_of
from builder.errors import CommandError, IntegrityError, ToolMissingError
from builder.formats.package_names import Form


def readable(form: Form) -> bool:
    """Whether this machine can unpack such archives."""
    if form is Form.GZ:
        return True
    try:
        require_zstd()
    except ToolMissingError:
        return False
    return True


@contextmanager
def open_tar(file: Path, form: Form) -> Iterator[IO[bytes]]:
    """The tar's bytes. Raises ``IntegrityError`` for damage, ``ToolMissingError`` without zstd."""
    if form is Form.ZST:
        with open_zstd(file) as stream:
            yield stream
    else:
        with gzip.open(file) as stream:
            damage = (gzip.BadGzipFile, zlib.error, EOFError)
            yield cast(
                "IO[bytes]", _Checked(cast("IO[bytes]", stream), damage, f"{file}: not a whole gzip file")
            )


class _Checked:
    """A stream whose ``damage`` is an ``IntegrityError``: gzip's, an ``OSError``, would be the disk's."""

    def __init__(self, stream: IO[bytes], damage: Tuple[Type[Exception], ...], message: str) -> None:
        self._stream = stream
        self._damage = damage
        self._message = message

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        try:
            return self._stream.read(size)
        except self._damage as error:
            raise IntegrityError(self._message, cause=str(error), advice=AGAIN) from error


AGAIN = "Fetch it again."

MODULES = ("compression.zstd", "backports.zstd", "zstandard")

PROGRAMS: Tuple[Tuple[str, ...], ...] = (
    ("zstd", "--decompress", "--stdout", "--quiet", "--no-progress", "{file}"),
    # libarchive's tar reads zstd by itself and copies one archive's members to another; GNU tar calls zstd.
    ("bsdtar", "--create", "--file", "-", "--format", "pax", "@{file}"),
    ("tar", "--create", "--file", "-", "--format", "pax", "@{file}"),
)

_SAMPLE = base64.b64decode(
    "KLUv/QSInQEABAJwcm9iZQAwMDAwNjQ0ADA2NzY1ACAwAHVzdGFyADAwAAYA84D/gDflFyXcA8BwdgJF4Cvygw=="
)
"""A tar with the empty file ``probe``, in a frame with the longest window that packages have, 128 MiB."""

_PROBE = b"probe\0"

Find = Callable[[str], Optional[str]]

_ADVICE = {
    "linux": "the program zstd (apt install zstd, dnf install zstd), the Python package backports.zstd",
    "darwin": "the program zstd (brew install zstd), the Python package backports.zstd (pip install)",
    "win32": "the Python package backports.zstd (py -m pip install backports.zstd)",
}
"""By ``sys.platform``."""


class _Decompressor(Protocol):
    def stream_reader(self, source: IO[bytes], *, read_across_frames: bool, closefd: bool) -> IO[bytes]:
        """Decompressed bytes."""


class _ZstdModule(Protocol):
    """What is used of ``compression.zstd`` and ``backports.zstd``, and of the package ``zstandard``."""

    ZstdError: Type[Exception]

    ZstdDecompressor: Callable[[], _Decompressor]
    """Of ``zstandard``, whose own ``open`` stops after the first frame."""

    def open(self, file: str, mode: str) -> IO[bytes]:
        """Decompressed bytes, all frames."""


@contextmanager
def open_zstd(file: Path, modules: Sequence[str] = MODULES, find: Find = shutil.which) -> Iterator[IO[bytes]]:
    """The decompressed bytes, as a stream to be read to its end.

    Raises ``ToolMissingError`` when nothing here reads zstd, ``IntegrityError`` when the bytes are no
    zstd or end early.
    """
    with _reader(tuple(modules), find).open(file) as stream:
        yield stream


def require_zstd(modules: Sequence[str] = MODULES, find: Find = shutil.which) -> None:
    """``ToolMissingError`` when nothing here reads zstd: better said before the download than after."""
    _reader(tuple(modules), find)


@dataclass(frozen=True)
class _Reader:
    """A way to read zstd: a module, or a program's command line."""

    module: Optional[_ZstdModule] = None
    argv: Tuple[str, ...] = ()

    @contextmanager
    def open(self, file: Path, *, quiet: bool = False) -> Iterator[IO[bytes]]:
        """The decompressed bytes. Raises ``IntegrityError``; ``quiet``: the program's words are dropped."""
        broken = f"{file}: not a whole zstd file"
        if self.module is not None:
            with _open(self.module, file) as stream:
                yield cast("IO[bytes]", _Checked(stream, (self.module.ZstdError, EOFError), broken))
            return
        try:
            with output_of([word.format(file=file) for word in self.argv], quiet=quiet) as stream:
                yield stream
        except CommandError as error:
            raise IntegrityError(broken, cause=str(error), advice=AGAIN) from error

    def works(self, sample: Path) -> bool:
        """Whether it reads the sample, and does not only seem to."""
        try:
            with self.open(sample, quiet=True) as stream:
                return stream.read(len(_PROBE)) == _PROBE
        except Exception:  # noqa: BLE001 however it fails, it does not read zstd
            return False


@cache
def _reader(modules: Tuple[str, ...], find: Find) -> _Reader:
    """The first that reads the sample. ``ToolMissingError`` where none does."""
    with TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.tar.zst"
        sample.write_bytes(_SAMPLE)
        for reader in _readers(modules, find):
            if reader.works(sample):
                return reader
    raise no_zstd()


def no_zstd(*details: str) -> ToolMissingError:
    """The error where nothing reads zstd; ``details`` are lines about what was tried."""
    advice = _ADVICE.get(sys.platform, _ADVICE["linux"])
    return ToolMissingError(
        f"Nothing here can unpack zstd. Install one of: {advice}, or Python 3.14.",
        advice="Where the release has a .tar.gz of the package, every Python reads it.",
        details=details,
    )


def _readers(modules: Sequence[str], find: Find) -> Iterator[_Reader]:
    for name in modules:
        with suppress(ImportError):
            yield _Reader(module=cast("_ZstdModule", importlib.import_module(name)))
    for program, *arguments in PROGRAMS:
        path = find(program)
        if path is not None:
            yield _Reader(argv=(path.replace("{", "{{").replace("}", "}}"), *arguments))


def _open(module: _ZstdModule, file: Path) -> IO[bytes]:
    if hasattr(module, "ZstdFile"):
        return module.open(str(file), "rb")
    return module.ZstdDecompressor().stream_reader(file.open("rb"), read_across_frames=True, closefd=True)
