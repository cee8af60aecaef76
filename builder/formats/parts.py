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

_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    require_format(value, FORMAT, where)
    parts = from_json(Parts, value, where)
    problems = [f"{where}: {problem}" for problem in _impossible(parts)]
    if problems:
        raise ValidationError(problems)
    return parts


def _impossible(parts: Parts) -> Iterator[str]:
    # A reader joins the names to a folder of its own, so they must be plain.
    if _FILE.fullmatch(parts.file) is None:
        yield f"file: {parts.file!r} is not a plain file name"
    names = tuple(part.file for part in parts.parts)
    wanted = part_names(parts.file, len(names))
    if not names:
        yield "parts: the list is empty"
    elif names != wanted:
        first = next(index for index, pair in enumerate(zip(names, wanted)) if pair[0] != pair[1])
        yield f"parts[{first}].file: {names[first]!r} stands where {wanted[first]!r} is wanted"
    yield from _impossible_sizes(parts)
    for where, sha256 in (("sha256", parts.sha256), *_hashes(parts)):
        if _SHA256.fullmatch(sha256) is None:
            yield f"{where}: {sha256!r} is not 64 hex digits"


def _impossible_sizes(parts: Parts) -> Iterator[str]:
    for number, part in enumerate(parts.parts):
        if part.size <= 0:
            yield f"parts[{number}].size: {part.size} bytes"
    total = sum(part.size for part in parts.parts)
    if total != parts.size:
        yield f"size: {parts.size} bytes, and the parts have {total} together"


def _hashes(parts: Parts) -> Iterator[Tuple[str, str]]:
    for number, part in enumerate(parts.parts):
        yield f"parts[{number}].sha256", part.sha256
