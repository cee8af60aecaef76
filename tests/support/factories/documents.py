"""Factories of a package's file lists and manifests, from which tests make SBOM, NOTICE and provenance.

No factory writes a file: digests are made up from paths.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from builder.binary.library_names import NVIDIA
from builder.config.build_plan import BuildPlan, package_name
from builder.config.variants import Origin
from builder.contents.package_manifest import BUILT, Member, describe
from builder.contents.required_files import ORTPACKS, SBOM, required_files
from builder.files.digest import Digest
from builder.formats.manifest import Manifest, WheelEntry
from builder.formats.package_names import Layout
from tests.support.factories.packages import PROVIDER, plan, report


def digest(text: str) -> Digest:
    """Return the digest of the text's bytes, which stands for a digest of any file."""
    return Digest(len(text), hashlib.sha256(text.encode()).hexdigest())


def members(made: BuildPlan, layout: Layout = Layout.FULL) -> tuple[Member, ...]:
    """Return every file of a plan's package, the SBOM included, sorted by path, with made-up digests."""
    found = (
        Member(
            path=file.path,
            file=Path("nowhere"),
            source=file.source.key if file.source else BUILT,
            licence=file.licence,
            vendor=file.vendor,
            modified=made.origin is Origin.WHEEL and file.path == PROVIDER,
            member=file.places[0] if file.source else None,
            packed=layout is Layout.FULL or file.vendor != NVIDIA or not file.path.startswith("lib/"),
        )
        for file in required_files(made)
    )
    ours = (
        Member(path=path, file=Path("nowhere"), source=BUILT, licence="LICENSE", vendor=ORTPACKS)
        for path in ("LICENSE", "NOTICE", SBOM)
    )
    hashed = (member.of_bytes(digest(member.path)) for member in (*found, *ours))
    return tuple(sorted(hashed, key=lambda member: member.path))


def wheels(files: Iterable[Member]) -> tuple[WheelEntry, ...]:
    """Return the wheels that the files come from, sorted by source."""
    sources = sorted({file.source for file in files} - {BUILT})
    return tuple(WheelEntry(source, f"{source}.whl", 7, digest(source).sha256) for source in sources)


def manifest(made: BuildPlan | None = None, layout: Layout = Layout.FULL) -> Manifest:
    """Return the manifest of a plan's package, by default of ``packages.plan()``."""
    decided = made or plan()
    files = members(decided, layout)
    return describe(decided, layout, files, wheels(files), report(), None)


def changed(whole: Manifest, path: str, **values: object) -> Manifest:
    """Return the manifest with other values in the entry of ``path``, which must change."""
    files = tuple(
        replace(entry, **values) if entry.path == path else entry  # type: ignore[arg-type]
        for entry in whole.files
    )
    assert files != whole.files
    return replace(whole, files=files)


def without(whole: Manifest, path: str) -> Manifest:
    """Return the manifest without the file ``path``."""
    return replace(whole, files=tuple(entry for entry in whole.files if entry.path != path))


def name(made: BuildPlan, layout: Layout) -> str:
    """Return the name of a plan's package."""
    return str(package_name(made, layout))
