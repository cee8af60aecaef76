"""``releases.json`` is a mirror's list of its releases. This module reads and writes it, and checks tags.

Fields: docs/schemas/mirror.schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from builder.errors import ConfigError, ValidationError
from builder.formats.json_values import from_json, parse_json, require_format
from builder.formats.oci import TAG_FORM
from builder.formats.package_names import INDEX
from builder.release.assets import require_tag

FORMAT = 1

LISTING = "releases.json"

LATEST = "latest"
"""Name of the link to the newest release."""

SIMPLE = "simple"
"""Folder with the pages of the releases' wheels, for pip and uv."""

LISTING_LIMIT = 16 << 20
"""The largest file that is read, in bytes; about a hundred thousand releases."""


@dataclass(frozen=True)
class MirrorRelease:
    """One release of a mirror."""

    tag: str
    published: str
    """Time when the release first became public on this mirror: UTC, like ``2026-11-21T23:30:00Z``."""
    index: str
    """Path of its ``index.json``, relative to the folder of ``releases.json``."""
    sha256: str
    """Hex sha256 of that ``index.json``."""


@dataclass(frozen=True)
class Mirror:
    """The whole file; the fields are in its order."""

    format: int
    releases: tuple[MirrorRelease, ...]
    """Releases, the last published first."""


EMPTY = Mirror(FORMAT, ())


def mirror_tag(tag: str) -> str:
    """Return ``tag`` if a folder of a mirror can have that name. Raises ``ConfigError`` if not."""
    require_tag(tag)
    if "/" in tag:
        raise ConfigError(
            f"{tag!r} cannot be mirrored",
            cause="a mirror keeps each release in one folder that is named by its tag",
            advice="Pass a --tag without /.",
        )
    if tag in (LISTING, LATEST, SIMPLE):
        raise ConfigError(
            f"{tag!r} cannot be mirrored",
            cause="a mirror has something else there",
            advice="Pass another --tag.",
        )
    return tag


def registry_tag(tag: str) -> str:
    """Return ``tag`` if a registry can have it. Raises ``ConfigError`` if not."""
    if TAG_FORM.fullmatch(require_tag(tag)) is None or tag == LATEST:
        raise ConfigError(
            f"{tag!r} cannot be a tag in a registry",
            cause=f"at most 128 letters, digits and . _ - are, and {LATEST} names the newest release",
            advice="Pass another --tag.",
        )
    return tag


def entry(tag: str, published: str, sha256: str) -> MirrorRelease:
    """Return the list's entry of the release ``tag``."""
    return MirrorRelease(tag, published, f"{tag}/{INDEX}", sha256)


def merged(known: Mirror, found: Sequence[MirrorRelease], folders: Collection[str]) -> Mirror:
    """Return the new list: releases that were never listed before, in the order given, then the known ones.

    A known release keeps its position and time while its folder exists, even if its index cannot be read. Its
    hash is that of ``found``.
    """
    now = {release.tag: release for release in found}
    old = {release.tag for release in known.releases}
    newer = [release for release in found if release.tag not in old]
    kept = [
        replace(release, sha256=now.get(release.tag, release).sha256)
        for release in known.releases
        if release.tag in folders
    ]
    return Mirror(FORMAT, (*newer, *kept))


def tag_in(index: bytes) -> str | None:
    """Return the tag that an ``index.json`` of any format names; ``None`` for any other bytes."""
    try:
        value = json.loads(index)
    except (ValueError, RecursionError):
        return None
    tag = value.get("tag") if isinstance(value, dict) and "packages" in value else None
    return tag if isinstance(tag, str) else None


def loads(text: str | bytes, where: str) -> Mirror:
    """Return the list in a file's text; ``where`` names the file in errors.

    Raises ``ParseError`` for what is not JSON, ``SchemaError`` with every wrong key, and ``ValidationError``
    for an unknown format or impossible values.
    """
    value = parse_json(text, where)
    require_format(value, [FORMAT], where)
    mirror = from_json(Mirror, value, where)
    problems = [f"{where}: {problem}" for problem in _impossible(mirror)]
    if problems:
        raise ValidationError(problems)
    return mirror


def _impossible(mirror: Mirror) -> Iterator[str]:
    seen: list[str] = []
    for number, release in enumerate(mirror.releases):
        where = f"releases[{number}]"
        # A writer joins the tag to the mirror's folder, so it must be a plain name.
        try:
            mirror_tag(release.tag)
        except ConfigError as error:
            yield f"{where}.tag: {error}"
        if release.tag in seen:
            yield f"{where}.tag: {release.tag} is listed twice"
        if release.index != f"{release.tag}/{INDEX}":
            yield f"{where}.index: {release.index!r} is not {release.tag}/{INDEX}"
        seen.append(release.tag)
