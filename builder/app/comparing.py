"""diff: what sets two packages apart, by their manifests."""

from __future__ import annotations

from pathlib import Path

from builder.app.workshop import Workshop
from builder.core.difference import difference, dumps, tell
from builder.core.manifest import Manifest, loads


def show(shop: Workshop, old: Path, new: Path, *, as_json: bool) -> None:
    """Print it. Nothing is unpacked: a manifest is the head of its archive.

    Raises ``ValidationError`` (no package) or ``IntegrityError`` (a damaged one).
    """
    (one, size), (two, other) = _read(shop, old), _read(shop, new)
    found = difference(one, two, size, other)
    shop.console.show(dumps(found) if as_json else "\n".join(tell(found)))


def _read(shop: Workshop, package: Path) -> tuple[Manifest, int]:
    """A package's manifest, and the size of its archive in bytes."""
    archive = shop.archive(shop.reporter)
    manifest = loads(archive.read_manifest(package), package.name)
    return manifest, archive.whole(package).size
