"""The work of the verb builds, which makes docs/builds.md from packages and their build records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from builder.builds.wiring import Wiring
from builder.errors import ConfigError
from builder.files.atomic_write import write_file
from builder.formats.manifest import Manifest
from builder.formats.package_names import PARTS_SUFFIX, Layout, PackageName, stem
from builder.package.archive import manifest_of
from builder.package.build_record import BuildRecord, builds_page, contradictions, loads, record_name
from builder.release.dist_files import archives_in

BUILDS_PAGE = "docs/builds.md"


def write_builds_page(wiring: Wiring, folders: Sequence[Path]) -> None:
    """Write docs/builds.md from every package in ``folders`` that has a build record in its folder.

    Rows of commands that made none of these packages stay. A package whose record is missing or does not
    match the package is left out with a warning. Raises ``NothingToDoError`` for a folder without packages
    and ``IntegrityError`` for a damaged package.
    """
    packages = [package for folder in folders for package in _recorded(archives_in(folder))]
    found = {}
    for package in packages:
        build = _recorded_build(wiring, package)
        if isinstance(build, str):
            wiring.reporter.warn(f"left out: {package.name}: {build}")
        else:
            found[build[1].sha256] = build
    path = wiring.root / BUILDS_PAGE
    page = builds_page(found.values(), path.read_text(encoding="utf-8") if path.exists() else "")
    write_file(path, page.encode())
    wiring.reporter.say(f"{path}: {len(found)} of {len(packages)} packages")


def _recorded(packages: Sequence[Path]) -> Iterator[Path]:
    """Yield the packages that should have a record: of packages with the same compiled libraries, the first.

    A package without CUDA has no record, since nothing is compiled for it.
    """
    stems = {stem(package.name) for package in packages}
    for package in packages:
        name = PackageName.parse(package.name)
        full = str(replace(name, layout=Layout.FULL.value))
        first = next(one for one in packages if stem(one.name) == str(name))
        if package == first and name.cuda and (str(name) == full or full not in stems):
            yield package


def _recorded_build(wiring: Wiring, package: Path) -> tuple[Manifest, BuildRecord, int] | str:
    """Return the manifest, record and size in bytes of a package, or why its record cannot be used."""
    file = package.with_name(record_name(package.name))
    if not file.is_file():
        return f"no {file.name} lies beside it"
    try:
        record = loads(file.read_bytes(), file.name)
    except ConfigError as error:
        return "; ".join(error.problems)
    with wiring.reporter.step(f"read {package.name}"):
        archive = wiring.archive(wiring.reporter)
        manifest = manifest_of(package, archive)
        digest = archive.whole(package)
    unlike = contradictions(record, manifest, package.name.removesuffix(PARTS_SUFFIX), digest.sha256)
    return "; ".join(unlike) or (manifest, record, digest.size)
