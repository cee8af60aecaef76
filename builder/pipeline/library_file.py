"""A library on disk, read through a mapping: its bytes are looked at where they lie, not copied."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.binary.elf_headers import Buffer
from builder.binary.library import Reading, read_library, unreadable
from builder.binary.pe_macho import ForeignLibrary, read_foreign
from builder.errors import IntegrityError


def read_file(path: str, file: Path) -> Reading:
    """Read ``file``, called ``path`` in what is shown. What keeps it from being read is a finding in it."""
    try:
        with _mapped(file) as buffer:
            return read_library(path, buffer)
    except OSError as error:
        return unreadable(path, str(error))


def read_foreign_file(path: str, source: str, file: Path) -> ForeignLibrary:
    """Read the library ``file`` of another platform. Raises ``IntegrityError`` where it cannot be read."""
    try:
        with _mapped(file) as buffer:
            return read_foreign(path, source, buffer)
    except OSError as error:
        raise IntegrityError(f"{file} cannot be read: {error.strerror}. Build again.") from error


@contextmanager
def _mapped(file: Path) -> Iterator[Buffer]:
    with file.open("rb") as opened:
        if file.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            yield buffer
