"""A package's archive is fetched and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Iterable

from builder.client.install.prefix import LIBRARY, Prefix, empty
from builder.client.install.source import Located
from builder.errors import TransferError
from builder.files.digest import Digest, require_bytes, size_of
from builder.files.disk import remove
from builder.files.download import WantedFile, fetch, validator_file
from builder.files.http_client import Web
from builder.formats.index import IndexPackage


def obtain(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """Return the path of the archive, whose bytes are verified against the index.

    A local archive is not copied. A download that broke off is resumed. Raises ``TransferError`` (not
    available), ``IntegrityError`` (other bytes than promised) or ``DiskError``.
    """
    place = located.asset(package.file)
    if isinstance(place, Path):
        if not place.is_file():
            raise TransferError(
                f"{place}: not there.", advice="Copy it there: packages lie beside their index.json."
            )
        require_bytes(place, Digest(package.size, package.sha256), str(place))
        return place
    piece = prefix.piece(package)
    fetch(WantedFile(place, package.size, package.sha256), piece, web)
    return piece


def bytes_to_write(package: IndexPackage, located: Located, prefix: Prefix) -> int:
    """Return the number of bytes that ``obtain`` will still write under the prefix."""
    if isinstance(located.place, Path):
        return 0
    return max(package.size - size_of(prefix.piece(package)), 0)


def remove_leftovers(prefix: Prefix, packages: Iterable[IndexPackage]) -> None:
    """Remove the files of interrupted installs, unless an install of ``packages`` can resume them.

    The lock must be held.
    """
    empty(prefix.parts)
    pieces = map(prefix.piece, packages)
    kept = {path for piece in pieces for path in (piece, validator_file(piece))}
    for path in prefix.downloads.iterdir():
        if path not in kept and path.suffix != LIBRARY:
            remove(path)
