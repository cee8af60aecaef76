"""Where an index and its packages lie: a URL, a file, a folder; or one archive, which is its own index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union
from urllib.parse import urljoin

from builder.client.alone import index_of
from builder.client.places import INDEX_NAME, expanded, is_url
from builder.client.web import Web, read_small
from builder.core.index import Index, loads
from builder.core.naming import ARCHIVE_SUFFIXES
from builder.errors import ConfigError, TransferError, ValidationError

INDEX_LIMIT = 16 * 2**20
"""Bytes; a real index has a few thousand."""

Place = Union[str, Path]
"""A URL or a local path."""


@dataclass(frozen=True)
class Located:
    """An index and where it came from; packages lie beside it."""

    index: Index
    place: Place

    def asset(self, name: str) -> Place:
        """URL or path of an archive or one of its parts."""
        if isinstance(self.place, Path):
            return self.place.parent / name
        return urljoin(self.place, name)


def locate(text: Optional[str], web: Web) -> Located:
    """Read the index at ``text``: an ``http(s)`` URL, ``index.json`` itself or the folder that holds it.

    A package's archive stands for an index of itself alone, which its manifest tells.
    """
    if not text:
        raise ConfigError("No index: pass --index URL|FILE|DIR or set ORTPACKS_INDEX.")
    place = _place(text)
    if isinstance(place, Path) and place.name.endswith(ARCHIVE_SUFFIXES):
        return Located(index_of(place), place)
    content = _read_file(place) if isinstance(place, Path) else read_small(place, INDEX_LIMIT, web)
    return Located(loads(_decode(content, text), text), place)


def _place(text: str) -> Place:
    if is_url(text):
        return urljoin(text, INDEX_NAME) if text.endswith("/") else text
    path = expanded(Path(text))
    return path / INDEX_NAME if path.is_dir() else path


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(INDEX_LIMIT)
    except OSError as error:
        raise TransferError(
            f"{path}: {error.strerror}. --index takes a URL, an index.json or the folder it is in."
        ) from error


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValidationError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
