"""``releases.json``, a mirror's list of its releases, and the tags that a mirror can hold.

Fields: docs/schemas/mirror.schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from builder.errors import ConfigError, ValidationError
from builder.formats.json_values import from_json, parse_json, require_format, to_json
from builder.formats.package_names import INDEX
from builder.release.assets import require_tag

FORMAT = 1

LISTING = "releases.json"

LATEST = "latest"
"""The name of the link to the newest release."""

SIMPLE = "simple"
"""The folder with the pages of the releases' wheels, for pip and uv."""

LISTING_LIMIT = 16 << 20
"""The largest file that is read, in bytes: some hundred thousand releases."""


@dataclass(frozen=True)
class MirrorRelease:
    """One release of a mirror."""

    tag: str
    published: str
    """When it first became public on this mirror: UTC, like ``2026-11-21T23:30:00Z``."""
    index: str
    """Path of its ``index.json``, from the folder that ``releases.json`` is in."""
    sha256: str
    """Of that ``index.json``."""


@dataclass(frozen=True)
class Mirror:
    """The whole file; the fields stand in its order."""

    format: int
    releases: tuple[MirrorRelease, ...]
    """The last published first."""


EMPTY = Mirror(FORMAT, ())


def mirror_tag(tag: str) -> str:
    """``tag``, if a folder can have that name. Raises ``ConfigError``."""
    require_tag(tag)
    if "/" in tag:
        raise ConfigError(
            f"{tag!r} cannot be mirrored: a mirror keeps each release in one folder that is named by its "
            "tag. Pass a --tag without /."
        )
    if tag in (LISTING, LATEST, SIMPLE):
        raise ConfigError(
            f"{tag!r} cannot be mirrored: a mirror has something else there. Pass another --tag."
        )
    return tag


def entry(tag: str, published: str, sha256: str) -> MirrorRelease:
    """The list's entry of the release ``tag``."""
    return MirrorRelease(tag, published, f"{tag}/{INDEX}", sha256)


def merged(known: Mirror, found: Sequence[MirrorRelease], folders: Collection[str]) -> Mirror:
    """The new list: releases that were never listed before, in the order given, then the known ones.

    A known release keeps its place and its time while its folder exists, even when its index cannot be read.
    Its hash is that of ``found``.
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
    """The tag that an ``index.json`` of any format names; ``None`` for any other bytes."""
    try:
        value = json.loads(index)
    except (ValueError, RecursionError):
        return None
    tag = value.get("tag") if isinstance(value, dict) and "packages" in value else None
    return tag if isinstance(tag, str) else None


def dumps(mirror: Mirror) -> str:
    """The file's text. The same releases give the same bytes."""
    return json.dumps(to_json(mirror), indent=2, ensure_ascii=False) + "\n"


def loads(text: str | bytes, where: str) -> Mirror:
    """The list in a file's text; ``where`` names the file in errors.

    Raises ``ParseError`` (no JSON), ``SchemaError`` (every wrong key) or ``ValidationError`` (an unknown
    format, or impossible values).
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
