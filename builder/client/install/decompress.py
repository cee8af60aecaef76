"""The tar inside a package's archive: gzip by the standard library, zstd by whatever reads it here.

From Python 3.14 on the standard library reads zstd too.
"""

from __future__ import annotations

import gzip
import importlib
import shutil
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Iterator, List, Optional, Protocol, Sequence, Tuple, Type, cast

from builder.client.probe.processes import output_of
from builder.errors import CommandError, IntegrityError, ToolMissingError
from builder.formats.package_names import Form

_FIRST_BYTES = {b"\x28\xb5\x2f\xfd": Form.ZST, b"\x1f\x8b": Form.GZ}
"""RFC 8878, section 3.1.1, and RFC 1952, section 2.3.1."""


def form_in(file: Path) -> Optional[Form]:
    """The kind of archive that a file is, by its first bytes; ``None`` for anything else."""
    try:
        with file.open("rb") as stream:
            head = stream.read(4)
    except OSError:
        return None
    return next((form for magic, form in _FIRST_BYTES.items() if head.startswith(magic)), None)


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
)

Find = Callable[[str], Optional[str]]


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
    module, broken = _module(modules), f"{file}: not a whole zstd file"
    if module is not None:
        with _open(module, file) as stream:
            yield cast("IO[bytes]", _Checked(stream, (module.ZstdError, EOFError), broken))
        return
    try:
        with output_of(_program(file, find)) as stream:
            yield stream
    except CommandError as error:
        raise IntegrityError(broken, cause=str(error), advice=AGAIN) from error


def require_zstd(modules: Sequence[str] = MODULES, find: Find = shutil.which) -> None:
    """``ToolMissingError`` when nothing here reads zstd: better said before the download than after."""
    if _module(modules) is None:
        _program(Path(), find)


def _module(names: Sequence[str]) -> Optional[_ZstdModule]:
    for name in names:
        try:
            return cast("_ZstdModule", importlib.import_module(name))
        except ImportError:  # noqa: PERF203 three names
            continue
    return None


def _program(file: Path, find: Find) -> List[str]:
    for program, *arguments in PROGRAMS:
        path = find(program)
        if path is not None:
            return [path, *(argument.format(file=file) for argument in arguments)]
    raise ToolMissingError(
        "Nothing here can unpack zstd. Install one of: the program zstd (apt install zstd, dnf install zstd, "
        "brew install zstd), the Python package backports.zstd, or Python 3.14."
    )


def _open(module: _ZstdModule, file: Path) -> IO[bytes]:
    if hasattr(module, "ZstdFile"):
        return module.open(str(file), "rb")
    return module.ZstdDecompressor().stream_reader(file.open("rb"), read_across_frames=True, closefd=True)
