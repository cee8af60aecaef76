"""Opens the tar inside a package's archive: gzip by the standard library, zstd by whatever reads it here."""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator, cast

from builder.client.zstd import open_zstd, require_zstd
from builder.core.variant import Form
from builder.errors import IntegrityError, ToolMissingError


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
    """The tar's bytes. Raises ``IntegrityError`` for damage and ``ToolMissingError`` where zstd is needed."""
    if form is Form.ZST:
        with open_zstd(file) as stream:
            yield stream
        return
    with gzip.open(file) as stream:
        yield cast("IO[bytes]", _Checked(stream, file))


class _Checked:
    """``gzip`` tells damage by an ``OSError``, which would pass for a full disk further up."""

    def __init__(self, stream: gzip.GzipFile, file: Path) -> None:
        self._stream = stream
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        try:
            return self._stream.read(size)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise IntegrityError(f"{self._file}: not a whole gzip file: {error}") from error
