"""A package's archive is fetched whole or in parts, and verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Iterable, Iterator, Union

from builder.client.install.prefix import LIBRARY, Prefix, empty
from builder.client.install.source import Located
from builder.errors import IntegrityError, TransferError
from builder.files.digest import Digest, RunningDigest, chunks_in, require_bytes, size_of
from builder.files.disk import remove
from builder.files.download import WantedFile, fetch, forget, validator_file
from builder.files.http_client import Web
from builder.formats.index import IndexPackage
from builder.formats.parts import StoredFile


def obtain(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """Return the path of the archive, whose bytes are verified against the index.

    A download that broke off is resumed. Raises ``TransferError`` (not available), ``IntegrityError`` (other
    bytes than promised) or ``DiskError``.
    """
    if package.parts:
        return _joined(package, located, prefix, web)
    return _bring(package, located, prefix, web)


def bytes_to_write(package: IndexPackage, located: Located, prefix: Prefix) -> int:
    """Return the number of bytes that ``obtain`` will still write under the prefix."""
    local = isinstance(located.place, Path)
    part = 0 if local else max((part.size for part in package.parts), default=0)
    rest = max(package.size - size_of(prefix.piece(package)), 0)
    return part + (rest if package.parts or not local else 0)


def _bring(file: Union[StoredFile, IndexPackage], located: Located, prefix: Prefix, web: Web) -> Path:
    """Return the path of one verified asset: its own path, or the path of its download."""
    place = located.asset(file.file)
    if isinstance(place, Path):
        if not place.is_file():
            raise TransferError(
                f"{place}: not there.", advice="Copy it there: packages lie beside their index.json."
            )
        require_bytes(place, Digest(file.size, file.sha256), str(place))
        return place
    piece = prefix.piece(file)
    fetch(WantedFile(place, file.size, file.sha256), piece, web)
    return piece


def _joined(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """Fetch the parts one after the other, append each to the archive, and return the archive's path."""
    whole, running, start = prefix.piece(package), RunningDigest(), 0
    have = size_of(whole)
    for part in package.parts:
        if start + part.size > have:
            piece = _bring(part, located, prefix, _part_of(package, start, web))
            _append(piece, whole, start, running)
            if piece == prefix.piece(part):
                forget(piece)
        start += part.size
    try:
        require_bytes(whole, Digest(package.size, package.sha256), package.file, running)
    except IntegrityError:
        whole.unlink()
        if not have:
            raise
        # The bytes of an earlier run may be damaged: start over, once.
        return _joined(package, located, prefix, web)
    return whole


def _part_of(package: IndexPackage, start: int, web: Web) -> Web:
    """Return ``web``, whose progress is that of the whole archive for the part that begins at ``start``."""
    return replace(web, progress=lambda done, _total: web.progress(start + done, package.size))


def _append(piece: Path, whole: Path, start: int, running: RunningDigest) -> None:
    """Write ``piece`` into ``whole`` at ``start``, over bytes that an interrupted run wrote there."""
    with piece.open("rb") as source, whole.open("r+b" if whole.exists() else "w+b") as target:
        target.seek(start)
        for chunk in chunks_in(source):
            running.put(target.tell(), chunk)
            target.write(chunk)


def remove_leftovers(prefix: Prefix, packages: Iterable[IndexPackage]) -> None:
    """Remove the files of interrupted installs, unless an install of ``packages`` can resume them.

    The lock must be held.
    """
    empty(prefix.parts)
    kept = {path for package in packages for path in _arriving(prefix, package)}
    for path in prefix.downloads.iterdir():
        if path not in kept and path.suffix != LIBRARY:
            remove(path)


def _arriving(prefix: Prefix, package: IndexPackage) -> Iterator[Path]:
    for path in (prefix.piece(package), *map(prefix.piece, package.parts)):
        yield path
        yield validator_file(path)
