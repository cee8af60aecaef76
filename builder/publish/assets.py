"""This module compares a release on a host with local files and finds the steps that make both equal.

The functions are pure: ``compare`` and ``converge`` get what a host listed and return what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from builder.config.fields import REPOSITORY
from builder.errors import ConfigError
from builder.files.digest import LocalFile
from builder.formats.package_names import CHECKSUMS, INDEX
from builder.formats.text import redacted
from builder.formats.trust import TARGETS

UPLOADED = "uploaded"
"""The state of a complete asset. A failed upload leaves ``starter``."""

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(?:/[A-Za-z0-9][A-Za-z0-9._+-]*)*")

_LAST = (CHECKSUMS, TARGETS, INDEX)
"""Files that name all other files. They are uploaded last, so that half a release never looks complete, the
index after its signature, so that nobody sees a new index with an old signature."""


@dataclass(frozen=True)
class Asset:
    """One file of a release, as its host lists it; ``digest`` is ``sha256:<hex>`` or ``None``."""

    name: str
    size: int
    digest: str | None
    state: str
    id: int


@dataclass(frozen=True)
class Release:
    """A release on a host. Only its owner sees a draft, and not by its tag."""

    tag: str
    draft: bool
    assets: tuple[Asset, ...]
    html_url: str
    id: int = 0
    immutable: bool = False
    upload_url: str = ""
    commit: str | None = None
    """The commit that the release was made for, if the host stores one."""


@dataclass(frozen=True)
class ReleasePlan:
    """A release as it should be on the host."""

    tag: str
    title: str
    body: str
    """The notes, in Markdown."""
    files: tuple[LocalFile, ...]


class ReleaseHost(Protocol):
    """A host of releases: GitHub, or a mirror's folder.

    Every method raises ``TransferError`` if the host refuses or is out of reach. A folder's methods also
    raise ``DiskError``, and ``ReleaseConflictError`` if something other than a release is at its place.
    """

    def require_access(self) -> None:
        """Raise ``TransferError`` or ``ConfigError`` unless the host lets us write. Called first."""

    def published(self, tag: str) -> Release | None:
        """Return the published release of a tag; ``None`` without one, even if there are drafts."""

    def latest(self) -> Release | None:
        """Return the newest published release of any tag; ``None`` if there is none."""

    def drafts(self, tag: str) -> Sequence[Release]:
        """Return every draft of a tag, oldest first. A tag may have several."""

    def create_draft(self, tag: str, title: str, body: str, commit: str | None = None) -> Release:
        """Make an empty draft and return it. Publishing creates a missing tag on ``commit``."""

    def assets(self, release: Release) -> tuple[Asset, ...]:
        """Return the assets that the release has now, each whole one with the digest of its bytes.

        Where the host states no digest, the bytes are read back.
        """

    def download(self, asset: Asset, limit: int) -> bytes:
        """Return the bytes of a small asset. Raises ``TransferError`` for more than ``limit`` bytes."""

    def upload(self, release: Release, file: LocalFile) -> Asset:
        """Upload one whole file and return its asset, with the size, and the digest if the host has one.

        Raises ``IntegrityError`` if the host repeatedly stores other bytes.
        """

    def delete(self, asset: Asset) -> None:
        """Remove an asset. An asset that does not exist is no error."""

    def publish(self, release: Release, title: str, body: str, commit: str | None = None) -> Release:
        """Make a draft public under its tag, create a missing tag on ``commit``, and return the release."""

    def withdraw(self, release: Release) -> Release:
        """Make a published release a draft of its tag, which only the owner sees, and return it."""


class Repository(ReleaseHost, Protocol):
    """A host whose releases have tags of a git repository: GitHub, but no mirror.

    Both methods raise ``TransferError`` if the host refuses or is out of reach.
    """

    def commit_of(self, tag: str) -> str | None:
        """Return the commit of the tag; ``None`` if there is no such tag."""

    def has_immutable_releases(self) -> bool | None:
        """Return whether published releases can never change.

        If the host does not report it, the result is ``None``, with a warning.
        """


class AssetStatus(Enum):
    """Result of comparing one name on both sides. The value is its mark in the table."""

    EQUAL = "✔"
    MISSING = "↑"
    DIFFERS = "✘"
    BROKEN = "⚠"
    """An upload that was not completed."""
    EXTRA = "+"
    """A file on the host that is not local."""


@dataclass(frozen=True)
class AssetRow:
    """One line of the status table."""

    name: str
    status: AssetStatus
    note: str
    file: LocalFile | None
    asset: Asset | None


def matches(asset: Asset, file: LocalFile) -> bool:
    """Return whether the asset is the file: uploaded, of the same size and digest."""
    return asset.state == UPLOADED and asset.size == file.size and asset.digest == file.digest


def compare(files: Iterable[LocalFile], assets: Iterable[Asset]) -> list[AssetRow]:
    """Return a row for every name of either side, in upload order."""
    here = {file.name: file for file in files}
    there = {asset.name: asset for asset in assets}
    names = sorted({*here, *there}, key=_upload_order)
    sides = ((name, here.get(name), there.get(name)) for name in names)
    return [AssetRow(name, *_judge(file, asset), file, asset) for name, file, asset in sides]


def converge(rows: Sequence[AssetRow]) -> tuple[list[tuple[Asset, str]], list[LocalFile]]:
    """Return what makes a draft equal: assets to delete, each with a reason, and files to upload in order."""
    differing = [row for row in rows if row.status is not AssetStatus.EQUAL]
    return [(row.asset, row.note) for row in differing if row.asset], [
        row.file for row in differing if row.file
    ]


def is_complete(rows: Sequence[AssetRow]) -> bool:
    """Return whether the release has exactly the files."""
    return all(row.status is AssetStatus.EQUAL for row in rows)


def render_table(rows: Sequence[AssetRow]) -> list[str]:
    """Return the table's lines: mark, name, bytes and note, in columns."""
    width = max((len(row.name) for row in rows), default=0)
    return [f"{row.status.value} {row.name:<{width}}  {_bytes(row):>13}  {row.note}".rstrip() for row in rows]


def require_tag(tag: str) -> str:
    """Return ``tag`` if git accepts it. Raises ``ConfigError`` if not."""
    if _TAG.fullmatch(tag) is None or ".." in tag or ".lock/" in f"{tag}/" or tag.endswith("."):
        raise ConfigError(
            f"{tag!r} cannot be a tag: letters, digits and . _ + - / only, like gpu-libs-v1.30.0."
        )
    return tag


def require_repository(repository: str) -> str:
    """Return ``repository`` if it is ``owner/name``. Raises ``ConfigError`` if not."""
    if REPOSITORY.fullmatch(repository) is None:
        raise ConfigError(
            f"--repository (or GITHUB_REPOSITORY, or publish.repository of variants.yaml) is "
            f"{redacted(repository)!r}, not owner/name."
        )
    return repository


def _judge(file: LocalFile | None, asset: Asset | None) -> tuple[AssetStatus, str]:
    if asset is None:
        return AssetStatus.MISSING, "not on the release"
    if asset.state != UPLOADED:
        return AssetStatus.BROKEN, f"upload never finished (state {asset.state})"
    if file is None:
        return AssetStatus.EXTRA, "not among the local files"
    if matches(asset, file):
        return AssetStatus.EQUAL, ""
    return AssetStatus.DIFFERS, _difference(asset, file)


def _difference(asset: Asset, file: LocalFile) -> str:
    if asset.size != file.size:
        return f"{asset.size} bytes there, {file.size} here"
    return f"{str(asset.digest)[:23]}… there, {file.digest[:23]}… here"


def _upload_order(name: str) -> tuple[int, str]:
    return (_LAST.index(name) + 1 if name in _LAST else 0, name)


def _bytes(row: AssetRow) -> str:
    if row.file is not None:
        return f"{row.file.size:,} B"
    return f"{row.asset.size:,} B" if row.asset is not None else ""
