"""Brings a package's archive to this machine, whole and proved, in one file or in parts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from builder.client.digest import CHUNK, require_bytes, size_of
from builder.client.download import Wanted, etag_file, fetch
from builder.client.layout import Prefix
from builder.client.source import Located
from builder.client.web import Web
from builder.core.index import IndexPackage, IndexPart
from builder.errors import IntegrityError, TransferError


def obtain(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """The archive, proved to be the one the index describes. What has arrived before is gone on with.

    Raises ``TransferError`` (not to be had), ``IntegrityError`` (other bytes than promised) or ``DiskError``.
    """
    if package.parts:
        return _joined(package, located, prefix, web)
    return _bring(IndexPart(package.file, package.size, package.sha256), located, prefix, web)


def coming(package: IndexPackage, located: Located, prefix: Prefix) -> int:
    """Bytes that ``obtain`` will still write under the prefix."""
    local = isinstance(located.place, Path)
    largest = 0 if local else max((part.size for part in package.parts), default=0)
    rest = max(package.size - size_of(prefix.download(package)), 0)
    return largest + (rest if package.parts or not local else 0)


def _bring(file: IndexPart, located: Located, prefix: Prefix, web: Web) -> Path:
    """One asset, proved: where it lies, or where it was downloaded to."""
    place = located.asset(file.file)
    if isinstance(place, Path):
        if not place.is_file():
            raise TransferError(f"{place}: not there. Packages lie beside their index.json.")
        require_bytes(place, file.size, file.sha256, str(place))
        return place
    piece = prefix.piece(file)
    fetch(Wanted(place, file.size, file.sha256), piece, web)
    return piece


def _joined(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """The parts, one after the other: on the disk are the archive and one part at a time."""
    whole = prefix.download(package)
    resumed = size_of(whole) > 0
    end = 0
    for part in package.parts:
        start, end = end, end + part.size
        if size_of(whole) < end:
            piece = _bring(part, located, prefix, web)
            _append(piece, whole, start)
            if piece == prefix.piece(part):
                _drop(piece)
    try:
        require_bytes(whole, package.size, package.sha256, package.file)
    except IntegrityError:
        whole.unlink()
        if not resumed:
            raise
        # What an earlier run left may be damaged: start over, once.
        return _joined(package, located, prefix, web)
    return whole


def _append(piece: Path, whole: Path, start: int) -> None:
    """Put ``piece`` at ``start``, over what a killed run had put there of it."""
    with piece.open("rb") as source, whole.open("r+b" if whole.exists() else "w+b") as target:
        target.seek(start)
        shutil.copyfileobj(source, target, CHUNK)
        target.flush()
        os.fsync(target.fileno())


def _drop(piece: Path) -> None:
    piece.unlink(missing_ok=True)
    etag_file(piece).unlink(missing_ok=True)
