"""This module reads libraries and manifests on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.binary.elf import read_elf
from builder.binary.elf_headers import Buffer, FormatError, MappedFile
from builder.binary.library import Reading, read_library, unreadable
from builder.binary.pe import is_pe, read_pe
from builder.binary.pe_macho import ForeignLibrary, read_foreign
from builder.errors import IntegrityError
from builder.formats.manifest import MANIFEST_LIMIT


def read_file(path: str, file: Path, *, symbols: bool = True, deep: bool = False) -> Reading:
    """Return the reading of ``file``, whose name in output is ``path``.

    A file that cannot be read gives a finding.

    With ``deep`` its images are unpacked.
    """
    try:
        with _mapped(file) as buffer:
            return read_library(path, buffer, symbols=symbols, deep=deep)
    except OSError as error:
        return unreadable(path, str(error))


def needed_libraries(library: Path) -> tuple[str, ...]:
    """Return the file names of the libraries that a library for Linux or Windows asks the loader for.

    Raises ``IntegrityError`` if it cannot be read.
    """
    try:
        with _mapped(library) as buffer:
            return read_pe(buffer).needed if is_pe(buffer) else read_elf(buffer, symbols=False).needed
    except (FormatError, OSError) as error:
        raise IntegrityError(
            f"{library} cannot be read", cause=str(error), advice="Remove it and fetch it again."
        ) from error


def read_foreign_file(path: str, source: str, file: Path) -> ForeignLibrary:
    """Return the reading of a library for another platform.

    Raises ``IntegrityError`` if it cannot be read.
    """
    try:
        with _mapped(file) as buffer:
            return read_foreign(path, source, buffer)
    except OSError as error:
        raise IntegrityError(
            f"{file} cannot be read", cause=str(error.strerror), advice="Build again."
        ) from error


@contextmanager
def _mapped(file: Path) -> Iterator[Buffer]:
    with file.open("rb") as opened:
        if file.stat().st_size == 0:
            yield b""
            return
        with MappedFile(opened) as buffer:
            yield buffer


def manifest_bytes(manifest: Path) -> bytes:
    """Return the bytes of an untrusted manifest; of a file that is too large, only its first bytes."""
    with manifest.open("rb") as file:
        return file.read(MANIFEST_LIMIT + 1)
