"""An index is read from a URL, a file or a folder, and names the places of its packages.

A single archive gets an index of its own, made from the manifest inside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union
from urllib.parse import urldefrag, urljoin, urlsplit

from builder.errors import ConfigError, ParseError, TransferError, ValidationError
from builder.files.digest import other_bytes
from builder.files.http_client import NotThereError, Web, read_small, too_large
from builder.formats.index import INDEX_LIMIT, Index, loads
from builder.formats.package_names import ARCHIVE_SUFFIXES, INDEX, Form, form_of
from builder.formats.text import redacted

if TYPE_CHECKING:  # as in builder.client.context
    from builder.client.install.signed import Trust
    from builder.formats.trust import SignedRelease


Place = Union[str, Path]
"""A URL or a local path."""


@dataclass(frozen=True)
class Located:
    """An index and its place. Packages lie beside the index."""

    index: Index
    place: Place
    is_archive: bool = False
    """Whether ``place`` is the archive of the only package, under any file name."""
    signed: Optional[SignedRelease] = None
    """The signed metadata of the release; ``None`` where no signature is required."""
    trust: Optional[Trust] = None
    """The keys that have signed the release."""

    @property
    def shown(self) -> str:
        """Return the place as messages show it, without a login."""
        return shown_place(self.place)

    def remember(self) -> None:
        """Store the version of the signed release that was taken from here. Raises ``DiskError``."""
        if self.trust and self.signed:
            self.trust.remember(self.shown, self.signed)

    def asset(self, name: str) -> Place:
        """Return the URL or path of the archive ``name``."""
        return self.place if self.is_archive else beside(self.place, name)


def locate(place: Optional[Place], web: Web, trust: Optional[Trust] = None) -> Located:
    """Return the index at ``place``: a URL, an ``index.json`` or the folder that holds it.

    An archive's index is made from the manifest inside. ``trust`` verifies the signatures beside the index;
    ``None`` requires none. Raises ``ConfigError``, ``TransferError``, ``IntegrityError`` or
    ``ToolMissingError``.
    """
    if place is None:
        raise ConfigError("No index: pass --index URL|FILE|DIR or set ORTPACKS_INDEX.")
    if isinstance(place, Path) and place.is_dir():
        place /= INDEX
    form = _archive_form(place) if isinstance(place, Path) else None
    if isinstance(place, Path) and form is not None:
        from builder.client.install.unpack import index_of  # noqa: PLC0415 an index needs none of it

        signed = trust.require_archive(place, FilesBeside(place, web)) if trust else None
        index = index_of(place, form)
        if trust and signed:  # the archive was read again
            trust.require_named(place, index.packages[0].sha256, signed)
        return Located(index, place, is_archive=True, signed=signed, trust=trust)
    content = _read_file(place) if isinstance(place, Path) else _fetched(place, web)
    where = shown_place(place)
    signed = trust.require_signed(INDEX, content, where, FilesBeside(place, web)) if trust else None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        why = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise ValidationError(
            f"{where}: {why}.", advice="Name an index.json, or the folder it is in."
        ) from error
    try:
        return Located(loads(text, where), place, signed=signed, trust=trust)
    except ParseError as error:
        if isinstance(place, Path) or urlsplit(place).path.endswith(".json"):
            raise
        advice = f"The URL of a folder ends with a slash: {where}/"
        raise ParseError(f"{where} is not an index.", advice=advice) from error


def beside(place: Place, name: str) -> Place:
    """Return the URL or path of the release's file ``name`` beside ``place``."""
    if isinstance(place, Path):
        return place.parent / name
    return urljoin(urldefrag(place).url, name)


def shown_place(place: Place) -> str:
    """Return a place as messages show it: a URL without login and fragment, or a path, unchanged."""
    return str(place) if isinstance(place, Path) else redacted(urldefrag(place).url)


@dataclass(frozen=True)
class FilesBeside:
    """The small files of a release, beside its index or archive."""

    index: Place
    web: Web

    def __call__(self, name: str) -> Optional[bytes]:
        """Return the bytes of the file ``name``; ``None`` where there is none. Raises ``TransferError``."""
        place = beside(self.index, name)
        if isinstance(place, Path):
            return _read_file(place) if place.is_file() else None
        try:
            return read_small(place, INDEX_LIMIT, self.web)
        except NotThereError:
            return None


_PIN = re.compile(r"sha256=([0-9A-Fa-f]{64})")

_THIS_MACHINE = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")


def _fetched(url: str, web: Web) -> bytes:
    """Return the index's bytes, compared with the sha256 in the URL's fragment, if it has one.

    Raises ``ConfigError`` for any other fragment, ``IntegrityError`` or ``TransferError``.
    """
    address, pin = urldefrag(url)
    shown, split, promised = redacted(address), urlsplit(address), _PIN.fullmatch(pin)
    if pin and promised is None:
        raise ConfigError(f"{shown}#{pin}: after # write sha256= and 64 hexadecimal digits.")
    if split.scheme == "http" and promised is None and _THIS_MACHINE.fullmatch(split.hostname or "") is None:
        web.say(f"{shown}: {_NOT_ENCRYPTED}")
    content = read_small(address, INDEX_LIMIT, web)
    digest = sha256(content).hexdigest()
    if promised is not None and promised[1].lower() != digest:
        raise other_bytes(f"{shown}: not the index that was named", promised[1].lower(), digest)
    return content


_NOT_ENCRYPTED = (
    "without https anybody between this machine and the server can change the files and their checksums. "
    "Use https, or name the index with its sha256: …/index.json#sha256=…"
)


_FIRST_BYTES = {b"\x28\xb5\x2f\xfd": Form.ZST, b"\x1f\x8b": Form.GZ}
"""First bytes → form of an archive: RFC 8878, section 3.1.1, and RFC 1952, section 2.3.1."""


def _archive_form(file: Path) -> Optional[Form]:
    """Return the form of an archive by its first bytes, else by its name; ``None`` for no archive."""
    named = form_of(file.name) if file.name.endswith(ARCHIVE_SUFFIXES) else None
    try:
        with file.open("rb") as stream:
            head = stream.read(4)
    except OSError:
        return named
    return next((form for magic, form in _FIRST_BYTES.items() if head.startswith(magic)), named)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(INDEX_LIMIT + 1)
    except OSError as error:
        raise TransferError(
            f"{path}: {error.strerror}. --index takes a URL, an index.json or the folder it is in."
        ) from error
    if len(content) > INDEX_LIMIT:
        raise too_large(str(path), INDEX_LIMIT)
    return content
