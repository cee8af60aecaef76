"""``<archive>.parts.json`` lists the parts of an archive that was too large for one file.

The concatenated parts are the archive. Schema: docs/schemas/parts.schema.json.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Tuple, Union

from builder.formats.json_values import read_document, require_valid

FORMAT = 1

LIMIT = 1 << 20
"""The largest file that is read, in bytes: it has room for some thousand parts."""

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")

SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class StoredFile:
    """A file beside an index or a ``.parts.json``, with its name, its size in bytes and its sha256."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Parts:
    """All of the file, with fields in its order. ``size`` and ``sha256`` are those of the whole archive."""

    format: int
    file: str
    """File name of the archive."""
    size: int
    sha256: str
    parts: Tuple[StoredFile, ...]


def part_names(archive: str, count: int) -> Tuple[str, ...]:
    """Return ``X.part1``, ``X.part2`` …; numbers are padded, so that sorting by name keeps the order."""
    width = len(str(count))
    return tuple(f"{archive}.part{number:0{width}}" for number in range(1, count + 1))


def loads(text: Union[str, bytes], where: str) -> Parts:
    """Return the parts in ``text``; errors name the file by ``where``.

    Raises ``ParseError`` (no JSON), ``SchemaError`` (naming every wrong key) or ``ValidationError`` (an
    unknown format or an invalid value: a part that is missing or out of order, sizes that do not add up).
    """
    parts = read_document(Parts, text, where, [FORMAT], advice="Download it again.")
    require_valid(_problems_of(parts), where)
    return parts


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


def _problems_of(parts: Parts) -> Iterator[str]:
    yield from problems_of_file(StoredFile(parts.file, parts.size, parts.sha256))
    for number, part in enumerate(parts.parts):
        yield from (f"parts[{number}].{problem}" for problem in problems_of_file(part))
    names = tuple(part.file for part in parts.parts)
    wanted = part_names(parts.file, len(names))
    if not names:
        yield "parts: the list is empty"
    elif names != wanted:
        first = next(index for index, pair in enumerate(zip(names, wanted)) if pair[0] != pair[1])
        yield f"parts[{first}].file: {names[first]!r} stands where {wanted[first]!r} is wanted"
    total = sum(part.size for part in parts.parts)
    if total != parts.size:
        yield f"size: {parts.size} bytes, and the parts have {total} together"
