"""The index: where it and its packages lie, and which of a package's archives this machine takes.

An index is a URL, a file or a folder. A single archive is its own index, made from the manifest inside.
"""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple, Union
from urllib.parse import urljoin, urlsplit

from builder.client.install.decompress import open_tar
from builder.client.install.unpack import read_manifest
from builder.errors import ConfigError, NoCompatiblePackageError, TransferError, ValidationError
from builder.files.digest import sha256_of, size_of
from builder.files.http_client import Response, Web, read_small
from builder.formats.index import Index, IndexPackage, StoredArchive, build_index, dumps, loads
from builder.formats.package_names import ARCHIVE_SUFFIXES, Form, Layout, form_of, stem
from builder.formats.text import mib

INDEX_NAME = "index.json"

_RELEASE = re.compile(r"/releases/download/(.+)/index\.json$")


def default_index() -> Optional[str]:
    """The index of the release this program was published with; ``None`` when run from the source tree."""
    try:
        data = pkgutil.get_data("builder.client", "default_index.txt")
    except OSError:
        return None
    return data.decode().strip() if data else None


def mirrored(base: str, default: Optional[str]) -> str:
    """The index on the mirror ``base``: of the release this program comes from, else the newest."""
    if not is_url(base):
        raise ConfigError(f"--mirror {base}: a URL is wanted, http or https. --index also takes folders.")
    release = _RELEASE.search(default or "")
    return f"{base.rstrip('/')}/{release[1] if release else 'latest'}/{INDEX_NAME}"


def offline(text: str) -> str:
    """``text``, the folder or archive of ``--offline``. ``ConfigError`` where it is not there."""
    if is_url(text) or not expanded(Path(text)).exists():
        raise ConfigError(f"--offline {text}: a folder with index.json, or a package's archive, is wanted.")
    return text


def is_url(text: str) -> bool:
    """Whether ``text`` is an http or https URL. Raises ``ConfigError`` for a broken one."""
    try:
        return urlsplit(text).scheme in {"http", "https"}
    except ValueError as error:
        raise ConfigError(f"{text}: not a URL: {error}.") from error


def expanded(path: Path) -> Path:
    """``path`` with ``~`` and ``~name`` replaced. ``ConfigError`` where that user has no home."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path}: no home is known for that user. Write the path in full.") from error


def without_network(web: Web) -> Web:
    """A network that nothing is fetched from."""

    def refuse(url: str, headers: Dict[str, str]) -> Response:  # noqa: ARG001 the shape of ``Open``
        raise TransferError(f"{url}: --offline fetches nothing. Copy it here, or leave --offline out.")

    return replace(web, open=refuse)


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


def index_of(archive: Path) -> Index:
    """An index with this package in it.

    Its bytes are promised by nobody else: they are taken for what they are, and the manifest inside holds
    each file to its own sha256. What it says is held to an index's rules. Raises ``TransferError``,
    ``IntegrityError``, ``ToolMissingError`` or ``ConfigError``.
    """
    if not archive.is_file():
        raise TransferError(f"{archive}: no such file. A package's archive, or a folder with index.json.")
    with open_tar(archive, form_of(archive.name)) as stream:
        manifest = read_manifest(stream, stem(archive.name))
    stored = StoredArchive(archive.name, size_of(archive), sha256_of(archive))
    return loads(dumps(build_index("", [(manifest, stored)], manifest.models)), archive.name)


AUTO = "auto"

WISHES = (AUTO, *(layout.value for layout in Layout))
"""What ``--layout`` takes."""


@dataclass(frozen=True)
class Pick:
    """What to install, and why this and not its siblings."""

    package: IndexPackage
    why: str


def within(offers: Sequence[IndexPackage], wish: str) -> Tuple[IndexPackage, ...]:
    """The offers of the layout asked for. ``NoCompatiblePackageError`` where there is none."""
    mine = tuple(offer for offer in offers if wish in {AUTO, offer.layout})
    if not mine:
        there = ", ".join(sorted({offer.layout for offer in offers}))
        raise NoCompatiblePackageError(
            f"--layout {wish}: {offers[0].name} is released in layout {there} only."
        )
    return mine


def pick(
    offers: Sequence[IndexPackage],
    wish: str,
    readable: Callable[[Form], bool],
    nothing_missing: Callable[[IndexPackage], bool],
) -> Pick:
    """One of ``offers``, which are ``within`` the wish, best first.

    Thin where that costs no more than its archive (``nothing_missing``), else full. zstd where it is read.
    """
    usable = [offer for offer in offers if readable(form_of(offer.file))] or list(offers)
    full, thin = _first(usable, Layout.FULL), _first(usable, Layout.THIN)
    if full is None or thin is None:
        only = usable[0]
        return Pick(only, f"Layout {only.layout}: {_no_choice(offers, wish)}.{_form_note(only, offers)}")
    if nothing_missing(thin):
        saved = f"{mib(thin.size)} are fetched instead of {mib(full.size)}"
        return Pick(
            thin, f"Layout thin: NVIDIA's libraries are on this machine, {saved}.{_form_note(thin, offers)}"
        )
    note = _form_note(full, offers)
    return Pick(full, f"Layout full: not all of NVIDIA's libraries are on this machine.{note}")


def _first(offers: Sequence[IndexPackage], layout: Layout) -> Optional[IndexPackage]:
    return next((offer for offer in offers if offer.layout == layout.value), None)


def _no_choice(offers: Sequence[IndexPackage], wish: str) -> str:
    if wish != AUTO:
        return "as asked with --layout"
    alone = len({offer.layout for offer in offers}) == 1
    return "the release has no other" if alone else "nothing here can unpack the other"


def _form_note(chosen: IndexPackage, offers: Sequence[IndexPackage]) -> str:
    better = any(offer.layout == chosen.layout and form_of(offer.file) is Form.ZST for offer in offers)
    if form_of(chosen.file) is Form.GZ and better:
        return " As gzip: nothing here can unpack zstd."
    return ""
