"""``<archive>.parts.json``: how an archive that was too large for one file is joined from its parts.

Fields: docs/schemas/parts.schema.json. The parts, one behind the other, are the archive.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Iterator, Tuple, Union

from builder.errors import ValidationError
from builder.formats.json_values import from_json, parse_json, require_format, to_json

FORMAT = 1

LIMIT = 1 << 20
"""Bytes that a reader takes: some thousand parts."""

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")

SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class StoredFile:
    """A file beside an index or a ``.parts.json``: its name, its size in bytes and its bytes' sha256."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Parts:
    """All of the file; fields stand in its order. ``size`` and ``sha256`` are the whole archive's."""

    format: int
    file: str
    """Name of the archive."""
    size: int
    sha256: str
    parts: Tuple[StoredFile, ...]


def part_names(archive: str, count: int) -> Tuple[str, ...]:
    """``X.part1``, ``X.part2`` ...; numbers as wide as the last, so that sorted by name is in order."""
    width = len(str(count))
    return tuple(f"{archive}.part{number:0{width}}" for number in range(1, count + 1))


def dumps(parts: Parts) -> str:
    """The file's text: the same parts give the same bytes."""
    return json.dumps(to_json(parts), indent=2, ensure_ascii=False) + "\n"


def loads(text: Union[str, bytes], where: str) -> Parts:
    """Read the file; ``where`` names it in errors.

    Raises ``ParseError`` (no JSON), ``SchemaError`` (every wrong key) or ``ValidationError`` (a format we do
    not know, or values that cannot be: a part that is missing or out of order, sizes that do not add up).
    """
    value = parse_json(text, where, "Download it again.")
    require_format(value, [FORMAT], where)
    parts = from_json(Parts, value, where)
    problems = [f"{where}: {problem}" for problem in _impossible(parts)]
    if problems:
        raise ValidationError(problems)
    return parts


def impossible_file(file: StoredFile) -> Iterator[str]:
    """What of a stored file cannot be, as ``key: problem``.

    A reader joins its name to a folder of its own, so it must be a plain one.
    """
    if _FILE.fullmatch(file.file) is None:
        yield f"file: {file.file!r} is not a plain file name"
    if SHA256.fullmatch(file.sha256) is None:
        yield f"sha256: {file.sha256!r} is not 64 hex digits"
    if file.size <= 0:
        yield f"size: {file.size} bytes"


def _impossible(parts: Parts) -> Iterator[str]:
    yield from impossible_file(StoredFile(parts.file, parts.size, parts.sha256))
    for number, part in enumerate(parts.parts):
        yield from (f"parts[{number}].{problem}" for problem in impossible_file(part))
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
