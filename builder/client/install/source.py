"""The index: where it and its packages lie, and which of a package's archives this machine takes.

An index is a URL, a file or a folder. A single archive is its own index, made from the manifest inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Optional, Sequence, Tuple, Union
from urllib.parse import urljoin, urlsplit

from builder.client.install.decompress import form_in, open_tar, readable
from builder.client.install.unpack import read_manifest
from builder.errors import ConfigError, NoCompatiblePackageError, ParseError, TransferError, ValidationError
from builder.files.digest import sha256_of, size_of
from builder.files.http_client import Response, Web, read_small
from builder.formats.index import Index, IndexPackage, StoredArchive, build_index, dumps, loads
from builder.formats.package_names import ARCHIVE_SUFFIXES, INDEX, Form, Layout, form_of
from builder.formats.text import amount, without_userinfo


def network(web: Web, *, offline: bool) -> Web:
    """``web``, or with ``--offline`` one that nothing is fetched from."""

    def refuse(url: str, headers: Dict[str, str]) -> Response:  # noqa: ARG001 the shape of ``Open``
        raise TransferError(f"{url}: --offline fetches nothing. Copy it here, or leave --offline out.")

    return replace(web, open=refuse) if offline else web


INDEX_LIMIT = 16 * 2**20
"""Bytes; a real index has a few thousand."""

Place = Union[str, Path]
"""A URL or a local path."""


@dataclass(frozen=True)
class Located:
    """An index and where it came from; packages lie beside it."""

    index: Index
    place: Place
    alone: bool = False
    """Whether ``place`` is the one package's archive, whatever its name is."""

    def asset(self, name: str) -> Place:
        """URL or path of an archive or one of its parts."""
        if isinstance(self.place, Path):
            return self.place if self.alone else self.place.parent / name
        return urljoin(self.place, name)


def locate(place: Optional[Place], web: Web) -> Located:
    """Read the index at ``place``: a URL, ``index.json`` itself or the folder that holds it.

    A package's archive stands for an index of itself alone, which its manifest tells.
    """
    if place is None:
        raise ConfigError("No index: pass --index URL|FILE|DIR or set ORTPACKS_INDEX.")
    if isinstance(place, Path) and place.is_dir():
        place /= INDEX
    if isinstance(place, Path) and (place.name.endswith(ARCHIVE_SUFFIXES) or form_in(place)):
        return Located(index_of(place), place, alone=True)
    content = _read_file(place) if isinstance(place, Path) else read_small(place, INDEX_LIMIT, web)
    where = without_userinfo(str(place))
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        why = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise ValidationError(
            f"{where}: {why}.", advice="Name an index.json, or the folder it is in."
        ) from error
    try:
        return Located(loads(text, where), place)
    except ParseError as error:
        if isinstance(place, Path) or urlsplit(place).path.endswith(".json"):
            raise
        advice = f"The URL of a folder ends with a slash: {where}/"
        raise ParseError(f"{where} is not an index.", advice=advice) from error


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(INDEX_LIMIT)
    except OSError as error:
        raise TransferError(
            f"{path}: {error.strerror}. --index takes a URL, an index.json or the folder it is in."
        ) from error


def index_of(archive: Path) -> Index:
    """An index with this package in it.

    Its bytes are promised by nobody else: they are taken for what they are, and the manifest inside holds
    each file to its own sha256. Its name may be another one than the package's: browsers change it. What it
    says is held to an index's rules. Raises ``TransferError``, ``IntegrityError``, ``ToolMissingError`` or
    ``ConfigError``.
    """
    if not archive.is_file():
        raise TransferError(f"{archive}: no such file. A package's archive, or a folder with index.json.")
    form = form_in(archive) or form_of(archive.name)
    with open_tar(archive, form) as stream:
        manifest = read_manifest(stream, archive.name)
    stored = StoredArchive(f"{manifest.name}{form.value}", size_of(archive), sha256_of(archive))
    return loads(dumps(build_index("", [(manifest, stored)], manifest.models)), archive.name)


def within(offers: Sequence[IndexPackage], wish: Optional[str]) -> Tuple[IndexPackage, ...]:
    """The offers of the layout asked for. ``NoCompatiblePackageError`` where there is none."""
    mine = tuple(offer for offer in offers if wish in {None, offer.layout})
    if not mine:
        there = ", ".join(sorted({offer.layout for offer in offers}))
        raise NoCompatiblePackageError(
            f"--layout {wish}: {offers[0].name} is released in layout {there} only.",
            advice="Leave --layout out, or name that one.",
        )
    return mine


def pick(
    offers: Sequence[IndexPackage],
    wish: Optional[str],
    nothing_missing: Callable[[IndexPackage], bool],
) -> Tuple[IndexPackage, str]:
    """One of ``offers``, which are ``within`` the wish, best first; and why this one.

    Thin where that costs no more than its archive (``nothing_missing``), else full. zstd where it is read.
    """
    usable = [offer for offer in offers if readable(form_of(offer.file))] or list(offers)
    full, thin = _first(usable, Layout.FULL), _first(usable, Layout.THIN)
    if full is None or thin is None:
        chosen, why = usable[0], _no_choice(offers, wish)
    elif nothing_missing(thin):
        saved = f"{amount(thin.size)} are fetched instead of {amount(full.size)}"
        chosen, why = thin, f"NVIDIA's libraries are on this machine, {saved}"
    else:
        chosen, why = full, "not all of NVIDIA's libraries are on this machine"
    return chosen, f"Layout {chosen.layout}: {why}.{_form_note(chosen, offers)}"


def _first(offers: Sequence[IndexPackage], layout: Layout) -> Optional[IndexPackage]:
    return next((offer for offer in offers if offer.layout == layout.value), None)


def _no_choice(offers: Sequence[IndexPackage], wish: Optional[str]) -> str:
    if wish is not None:
        return "as asked with --layout"
    one_layout = len({offer.layout for offer in offers}) == 1
    return "the release has no other" if one_layout else "nothing here can unpack the other"


def _form_note(chosen: IndexPackage, offers: Sequence[IndexPackage]) -> str:
    better = any(offer.layout == chosen.layout and form_of(offer.file) is Form.ZST for offer in offers)
    if form_of(chosen.file) is Form.GZ and better:
        return " As gzip: nothing here can unpack zstd."
    return ""
