"""Whether files from wheels are unmodified: each must be the file that its wheel's RECORD names.

Source: "Recording installed projects" and "Binary distribution format", packaging.python.org.
"""

from __future__ import annotations

import base64
import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.errors import IntegrityError
from builder.files.digest import Digest
from builder.findings.finding import Code, Finding
from builder.formats.manifest import Manifest
from builder.package.archive import BUILT, Member
from builder.package.contents import NVIDIA

_HASHED = 2
"""Fields of a row that names a hash: path, hash, and the size that may be missing."""

_SHA256 = re.compile(r"sha256=([A-Za-z0-9+/_-]{43})=?")
"""256 bits in base64: 43 characters, and the padding that the standard leaves out."""


@dataclass(frozen=True)
class RecordRow:
    """A line of ``RECORD``."""

    sha256: str
    size: int | None
    """In bytes; ``None`` where the line has none."""


@dataclass(frozen=True)
class Recorded:
    """Size and sha256 of files as their wheels' RECORD states them, before the files are read."""

    digests: Mapping[str, Digest]
    """By member path, of those that their wheel names with hash and size."""
    findings: tuple[Finding, ...]
    """B001 for each of the others."""


def read_rows(text: str, where: str) -> dict[str, RecordRow]:
    """The lines of a ``RECORD`` by path; one without a hash (its own) is left out.

    ``where`` names the wheel in the ``IntegrityError`` for a line with anything but a sha256.
    """
    try:
        lines = [line for line in csv.reader(text.splitlines()) if len(line) >= _HASHED and line[1]]
    except csv.Error as error:
        raise IntegrityError(f"{where}: RECORD is no CSV: {error}") from error
    return {line[0]: RecordRow(_hex(line[1], line[0], where), _size(line)) for line in lines}


def read_record(text: str, where: str) -> dict[str, str]:
    """Hex sha256 of a wheel's files by path, from its ``RECORD``. Raises as ``read_rows``."""
    return {path: row.sha256 for path, row in read_rows(text, where).items()}


def recorded(members: Sequence[Member], record: Callable[[str], str]) -> Recorded:
    """Size and sha256 of every unmodified file from a wheel, as the wheel's RECORD tells them at its path.

    ``record`` gives the text of ``RECORD`` of a wheel by its ``Input.key``. Nothing is read from the files:
    who hashes them later, while writing, has something to hold them to.
    """
    theirs = [member for member in members if member.source != BUILT and not member.modified]
    rows = _rows_of(theirs, record)
    found = {member.path: _row(rows[member.source], member.member) for member in theirs}
    digests = {
        path: Digest(row.size, row.sha256)
        for path, row in found.items()
        if row is not None and row.size is not None
    }
    unknown = (_unknown(member, found[member.path]) for member in theirs if member.path not in digests)
    return Recorded(digests, (*unknown, *_modified(members)))


def check_unmodified(
    members: Sequence[Member], digests: Mapping[str, Digest], record: Callable[[str], str]
) -> list[Finding]:
    """B001 for each file from a wheel whose bytes are not its wheel's, and each of NVIDIA's said to differ.

    ``digests`` are of the files as they are, ``record`` as for ``recorded``. A file of ORT's that we modified
    is another file on purpose.
    """
    theirs = [member for member in members if member.source != BUILT and not member.modified]
    rows = _rows_of(theirs, record)
    compared = (
        finding
        for member in theirs
        for finding in _differing(
            member.path, member.source, digests[member.path], _row(rows[member.source], member.member)
        )
    )
    return [*compared, *_modified(members)]


def check_recorded(manifest: Manifest, records: Mapping[str, str]) -> Iterator[Finding]:
    """B001 for each file that a manifest tells otherwise than the wheel it names.

    ``records`` are the texts of ``RECORD`` by ``Input.key``, of those wheels that are at hand. Of a file of
    ORT's that we modified the wheel need only know the original; NVIDIA's are never excused.
    """
    known = {source: read_rows(text, source) for source, text in records.items()}
    for entry in manifest.files:
        if entry.source in known:
            row = _row(known[entry.source], entry.member)
            if row is None or entry.vendor == NVIDIA or not entry.modified:
                yield from _differing(entry.path, entry.source, Digest(entry.size, entry.sha256), row)


def _rows_of(members: Sequence[Member], record: Callable[[str], str]) -> dict[str, dict[str, RecordRow]]:
    sources = sorted({member.source for member in members})
    return {source: read_rows(record(source), source) for source in sources}


def _row(rows: Mapping[str, RecordRow], path: str | None) -> RecordRow | None:
    return rows.get(path) if path is not None else None


def _modified(files: Sequence[Member]) -> Iterator[Finding]:
    for file in files:
        if file.modified and file.vendor == NVIDIA:
            yield Finding(Code.B001, file.path, "NVIDIA's terms allow it only unmodified")


def _unknown(member: Member, row: RecordRow | None) -> Finding:
    lacks = "size" if row else "line"
    return Finding(
        code=Code.B001,
        path=member.path,
        message=f"RECORD of {member.source} has no {lacks} for {member.member}",
    )


def _differing(path: str, source: str, digest: Digest, row: RecordRow | None) -> Iterator[Finding]:
    if row and row.sha256 == digest.sha256 and row.size in (None, digest.size):
        return
    yield Finding(
        code=Code.B001,
        path=path,
        message=f"it is not the file of {source}",
        wanted=_spelled(row.size, row.sha256) if row else "a line in RECORD",
        got=_spelled(digest.size, digest.sha256),
    )


def _spelled(size: int | None, sha256: str) -> str:
    return f"sha256 {sha256}" if size is None else f"{size} bytes, sha256 {sha256}"


def _size(line: Sequence[str]) -> int | None:
    size = line[_HASHED] if len(line) > _HASHED else ""
    return int(size) if size.isascii() and size.isdigit() else None


def _hex(text: str, path: str, where: str) -> str:
    """``sha256=<urlsafe base64 without padding>`` as hex."""
    match = _SHA256.fullmatch(text)
    if match is None:
        raise IntegrityError(f"{where}: RECORD has no sha256 for {path}: {text}")
    return base64.urlsafe_b64decode(match[1] + "=").hex()
