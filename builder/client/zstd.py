"""Opens a ``.zst`` file with whatever can read one here: from Python 3.14 on the standard library can."""

from __future__ import annotations

import importlib
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Iterator, List, Optional, Protocol, Sequence, Tuple, Type, cast

from builder.client.commands import output_of
from builder.errors import CommandError, IntegrityError, ToolMissingError

MODULES = ("compression.zstd", "backports.zstd", "zstandard")
PROGRAMS: Tuple[Tuple[str, ...], ...] = (
    ("zstd", "--decompress", "--stdout", "--quiet", "--no-progress", "{file}"),
    # libarchive's tar reads zstd by itself and copies one archive's members to another; GNU tar calls zstd.
    ("bsdtar", "--create", "--file", "-", "--format", "pax", "@{file}"),
)

Find = Callable[[str], Optional[str]]


class _ZstdModule(Protocol):
    """What ``compression.zstd`` and ``backports.zstd`` have in common."""

    ZstdError: Type[Exception]

    def open(self, file: str, mode: str) -> IO[bytes]:
        """Decompressed bytes, all frames."""


class _Decompressor(Protocol):
    def stream_reader(self, source: IO[bytes], *, read_across_frames: bool, closefd: bool) -> IO[bytes]:
        """Decompressed bytes."""


class _Zstandard(Protocol):
    """The package ``zstandard``: its own ``open`` stops after the first frame."""

    ZstdError: Type[Exception]

    def ZstdDecompressor(self) -> _Decompressor:  # noqa: N802 its name there
        """A decompressor with the usual limits."""


@contextmanager
def open_zstd(file: Path, modules: Sequence[str] = MODULES, find: Find = shutil.which) -> Iterator[IO[bytes]]:
    """The decompressed bytes, as a stream to be read to its end.

    Raises ``ToolMissingError`` when nothing here reads zstd, ``IntegrityError`` when the bytes are no
    zstd or end early.
    """
    module = _module(modules)
    if module is not None:
        with _through_module(module, file) as stream:
            yield stream
        return
    with _through_program(_program(file, find), file) as stream:
        yield stream


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
    decompressor = cast("_Zstandard", module).ZstdDecompressor()
    return decompressor.stream_reader(file.open("rb"), read_across_frames=True, closefd=True)


@contextmanager
def _through_module(module: _ZstdModule, file: Path) -> Iterator[IO[bytes]]:
    with _open(module, file) as stream:
        try:
            yield stream
        except (module.ZstdError, EOFError) as error:
            raise IntegrityError(f"{file}: not a whole zstd file: {error}") from error


@contextmanager
def _through_program(argv: Sequence[str], file: Path) -> Iterator[IO[bytes]]:
    try:
        with output_of(argv) as stream:
            yield stream
    except CommandError as error:
        raise IntegrityError(f"{file}: not a whole zstd file: {error}") from error
