"""The ``SHA256SUMS`` of an output folder: hex sha256 by file name.

It is merged under a lock, because variants are built at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.errors import ParseError
from builder.files.atomic_write import write_file
from builder.files.disk import disk_errors
from builder.files.file_lock import exclusive
from builder.formats.package_names import CHECKSUMS


def read_checksums(folder: Path) -> Mapping[str, str]:
    """Return the hex sha256 by file name; empty if there is no such file. Raises ``ParseError``."""
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    try:
        return parse_checksums(path.read_text(encoding="utf-8"))
    except ValueError as error:
        advice = "Delete the file: the next build writes it anew."
        raise ParseError(f"{path}: {error}", advice=advice) from error


def update_checksums(folder: Path, *, put: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
    """Merge changes into the file, under a lock. Raises ``ParseError`` and ``DiskError``."""
    path = folder / CHECKSUMS
    with disk_errors(path):
        folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, lambda: None):  # the folder is the lock, so that no lock file is left behind
        before = read_checksums(folder)
        after = {name: digest for name, digest in {**before, **put}.items() if name not in drop}
        if after != before:
            lines = [f"{digest}  {name}\n" for name, digest in sorted(after.items())]
            write_file(path, "".join(lines).encode())


def parse_checksums(text: str) -> Mapping[str, str]:
    """Return the hex digests by name. Raises ``ValueError`` for a line that is not ``<hex> <name>``."""
    sums = {}
    for number, line in enumerate(text.splitlines(), start=1):
        digest, _, name = line.partition(" ")
        name = name[1:] if name[:1] in (" ", "*") else ""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef") or not name:  # noqa: PLR2004 - sha256
            raise ValueError(f"line {number} is not '<sha256>  <name>': {line!r}")
        sums[name] = digest
    return sums
