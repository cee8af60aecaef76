"""Rules for files from wheels: each has the size and sha256 that its wheel's RECORD states (B001).

Source: "Recording installed projects" and "Binary distribution format", packaging.python.org.
"""

from __future__ import annotations

import base64
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.binary.library_names import NVIDIA
from builder.contents.package_manifest import BUILT, Member
from builder.errors import IntegrityError
from builder.files.digest import Digest
from builder.finding import Code, Finding
from builder.formats.manifest import FileEntry

_HASHED = 2
"""Least number of fields of a row with a hash: path and hash; the size may be missing."""

_SHA256 = re.compile(r"sha256=([A-Za-z0-9+/_-]{43})=?")
"""A sha256 in base64: 43 characters, and padding that the standard leaves out."""


@dataclass(frozen=True)
class RecordRow:
    """Hash and size in a row of ``RECORD``."""

    sha256: str
    size: int | None
    """The file's bytes; ``None`` where the row has no size."""

    def __str__(self) -> str:
        return f"sha256 {self.sha256}" if self.size is None else str(Digest(self.size, self.sha256))


def read_rows(text: str, where: str) -> dict[str, RecordRow]:
    """Return the rows of a ``RECORD`` by path, without those that have no hash (RECORD's own).

    Raises ``IntegrityError`` for text that is no CSV and for another hash than a sha256. ``where`` names the
    wheel in its message.
    """
    try:
        lines = [line for line in csv.reader(text.splitlines()) if len(line) >= _HASHED and line[1]]
    except csv.Error as error:
        raise IntegrityError(f"{where}: RECORD is no CSV: {error}") from error
    return {line[0]: RecordRow(_hex(line[1], line[0], where), _row_size(line)) for line in lines}


def recorded(
    members: Sequence[Member], record: Callable[[str], str]
) -> tuple[dict[str, Digest], list[Finding]]:
    """Return the digest of every unmodified file from a wheel by its path, as the wheel's RECORD has it.

    The findings are B001 on files that RECORD does not name with hash and size, and on files of NVIDIA's that
    are marked as modified. ``record`` returns the text of a wheel's ``RECORD`` by the wheel's ``Input.key``.
    The files are not read; the writer of the archive hashes them and compares.
    """
    theirs = [member for member in members if member.source != BUILT and not member.modified]
    rows = {source: read_rows(record(source), source) for source in sorted({one.source for one in theirs})}
    digests, findings = {}, []
    for member in theirs:
        row = rows[member.source].get(member.member) if member.member else None
        if row is not None and row.size is not None:
            digests[member.path] = Digest(row.size, row.sha256)
        else:
            lacks = "size" if row else "line"
            message = f"RECORD of {member.source} has no {lacks} for {member.member}"
            findings.append(Finding(Code.B001, member.path, message))
    findings += [
        Finding(Code.B001, member.path, "NVIDIA's terms allow it only unmodified")
        for member in members
        if member.modified and member.vendor == NVIDIA
    ]
    return digests, findings


def check_recorded(files: Iterable[FileEntry], records: Mapping[str, str]) -> Iterator[Finding]:
    """Yield B001 for each file whose size and sha256 differ from those of the wheel that it names.

    ``records``: the texts of ``RECORD`` by ``Input.key``, of the wheels that are available. A modified file
    of ORT's only has to be named in RECORD; NVIDIA's files are always compared.
    """
    known = {source: read_rows(text, source) for source, text in records.items()}
    for entry in files:
        if entry.source in known:
            row = known[entry.source].get(entry.member) if entry.member else None
            if row is None or entry.vendor == NVIDIA or not entry.modified:
                yield from _differing(entry, row)


def _differing(entry: FileEntry, row: RecordRow | None) -> Iterator[Finding]:
    digest = Digest(entry.size, entry.sha256)
    if row and row.sha256 == digest.sha256 and row.size in (None, digest.size):
        return
    yield Finding(
        code=Code.B001,
        path=entry.path,
        message=f"it is not the file of {entry.source}",
        wanted=str(row or "a line in RECORD"),
        got=str(digest),
    )


def _row_size(line: Sequence[str]) -> int | None:
    size = line[_HASHED] if len(line) > _HASHED else ""
    return int(size) if size.isascii() and size.isdigit() else None


def _hex(text: str, path: str, where: str) -> str:
    """Return ``sha256=<urlsafe base64 without padding>`` as hex. Raises ``IntegrityError`` for other text."""
    match = _SHA256.fullmatch(text)
    if match is None:
        raise IntegrityError(f"{where}: RECORD has no sha256 for {path}: {text}")
    return base64.urlsafe_b64decode(match[1] + "=").hex()
