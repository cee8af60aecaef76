"""Where an index and its packages lie: a URL, a file or a folder."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union
from urllib.parse import urljoin, urlsplit

from builder.client.web import Web, read_small
from builder.core.device import parse_driver
from builder.core.index import Index, loads
from builder.errors import ConfigError, TransferError, ValidationError

INDEX_NAME = "index.json"
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


def default_index() -> Optional[str]:
    """The index of the release this program was published with; ``None`` when run from the source tree."""
    try:
        data = pkgutil.get_data("builder.client", "default_index.txt")
    except OSError:
        return None
    return data.decode().strip() if data else None


def locate(text: Optional[str], web: Web) -> Located:
    """Read the index at ``text``: an ``http(s)`` URL, ``index.json`` itself or the folder that holds it."""
    if not text:
        raise ConfigError("No index: pass --index URL|FILE|DIR or set ORTPACKS_INDEX.")
    place = _place(text)
    content = _read_file(place) if isinstance(place, Path) else read_small(place, INDEX_LIMIT, web)
    index = loads(_decode(content, text), text)
    _require_drivers(index, text)
    return Located(index, place)


def _place(text: str) -> Place:
    if urlsplit(text).scheme in ("http", "https"):
        return urljoin(text, INDEX_NAME) if text.endswith("/") else text
    path = Path(text).expanduser()
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


def _require_drivers(index: Index, where: str) -> None:
    """Selection compares driver versions, so each must be one."""
    versions = {item for package in index.packages for item in (package.driver.floor, package.driver.ceiling)}
    try:
        for version in versions - {None}:
            parse_driver(str(version))
    except ValueError as error:
        raise ValidationError(f"{where}: packages: driver: {error}") from error
