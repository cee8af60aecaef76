"""Proof that a wheel's files are passed on as they came: each one's sha256 stands in its wheel's RECORD.

Source: "Recording installed projects" and "Binary distribution format", packaging.python.org.
"""

from __future__ import annotations

import base64
import csv
import hashlib
from typing import Callable, Dict, Iterator, List, Mapping, Sequence

from builder.core.checks import Code, Finding
from builder.core.content import NVIDIA
from builder.core.package import BUILT, Digest, Member
from builder.errors import IntegrityError


def read_record(text: str, where: str) -> Dict[str, str]:
    """Hex sha256 of a wheel's files by path, from its ``RECORD``; a row without a hash (its own) is left out.

    ``where`` names the wheel in the ``IntegrityError`` for a row with anything but a sha256.
    """
    try:
        rows = [row for row in csv.reader(text.splitlines()) if len(row) > 1 and row[1]]
    except csv.Error as error:
        raise IntegrityError(f"{where}: RECORD is no CSV: {error}") from error
    return {row[0]: _hex(row[1], row[0], where) for row in rows}


def check_untouched(
    members: Sequence[Member], digests: Mapping[str, Digest], record: Callable[[str], str]
) -> List[Finding]:
    """B001 for each file from a wheel whose bytes are not its wheel's, and each of NVIDIA's said to differ.

    ``record`` gives the text of ``RECORD`` of a wheel by its ``Input.key``. A file of ORT's that we modified
    is another file on purpose.
    """
    theirs = [member for member in members if member.source != BUILT]
    known = {
        source: frozenset(read_record(record(source), source).values())
        for source in sorted({member.source for member in theirs})
    }
    return [
        finding
        for member in theirs
        for finding in _findings(member, digests[member.path].sha256, known[member.source])
    ]


def _findings(member: Member, sha256: str, known: frozenset[str]) -> Iterator[Finding]:
    nvidia = member.vendor == NVIDIA
    if sha256 in known and not (nvidia and member.modified):
        return
    if nvidia or not member.modified:
        terms = "NVIDIA allows it only unmodified: " if nvidia else ""
        yield Finding(
            code=Code.B001,
            path=member.path,
            message=f"{terms}{member.file} is not in RECORD of {member.source}",
            wanted="a sha256 of the wheel's RECORD",
            got=sha256,
        )


def _hex(text: str, path: str, where: str) -> str:
    """``sha256=<urlsafe base64 without padding>`` as hex."""
    algorithm, _, value = text.partition("=")
    try:
        digest = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        digest = b""
    if algorithm != "sha256" or len(digest) != hashlib.sha256().digest_size:
        raise IntegrityError(f"{where}: RECORD has no sha256 for {path}: {text}")
    return digest.hex()
