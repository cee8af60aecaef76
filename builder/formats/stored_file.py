"""A file beside an index, as the index names it: its name, its size in bytes and its sha256."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")

SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class StoredFile:
    """A file beside an index, with its name, its size in bytes and its sha256."""

    file: str
    size: int
    sha256: str


def problems_of_file(file: StoredFile) -> Iterator[str]:
    """Yield each invalid value of a stored file as ``key: problem``.

    The name must be a plain file name, because a reader joins it to a folder of its own.
    """
    if _FILE.fullmatch(file.file) is None:
        yield f"file: {file.file!r} is not a plain file name"
    if SHA256.fullmatch(file.sha256) is None:
        yield f"sha256: {file.sha256!r} is not 64 hex digits"
    if file.size <= 0:
        yield f"size: {file.size} bytes"
