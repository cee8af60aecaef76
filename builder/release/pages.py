"""What lies beside the packages for people and scanners: an SBOM each, and one page of licences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.errors import IntegrityError
from builder.formats.manifest import FileEntry, Manifest
from builder.package.contents import NOTICE, SBOM
from builder.release.options import PublishPorts
from builder.release.preflight import Candidate

LICENCES_PAGE = "licences.html"

SBOM_SUFFIX = ".cdx.json"


@dataclass(frozen=True, kw_only=True)
class Component:
    """Files of one package from one place under one licence."""

    source: str
    """A wheel, ``nvidia-cublas-cu12==12.9.1.4``; or ``compiled``."""
    vendor: str
    licence: str
    """The text's path in the package."""
    files: tuple[str, ...]


def write_pages(directory: Path, candidates: Sequence[Candidate], ports: PublishPorts) -> list[Path]:
    """Write them into ``directory`` from the packages' own bytes, and remove SBOMs of packages that are gone.

    Raises ``IntegrityError`` for a package without SBOM, NOTICE or one of its licences.
    """
    texts = {one.file.name: _texts(one, ports) for one in candidates}
    sboms = {
        directory / f"{one.manifest.name}{SBOM_SUFFIX}": texts[one.file.name][SBOM] for one in candidates
    }
    page = _licences(candidates, texts, ports.loader)
    pages = {**sboms, directory / LICENCES_PAGE: page.encode()}
    for path, content in pages.items():
        with ports.write(path) as stream:
            stream.write(content)
    _remove([path for path in directory.glob(f"*{SBOM_SUFFIX}") if path not in pages], directory, ports)
    return sorted(pages)


def _remove(stale: Sequence[Path], directory: Path, ports: PublishPorts) -> None:
    for path in stale:
        path.unlink()
    ports.checksums.update(directory, put={}, drop=tuple(path.name for path in stale))


def _texts(one: Candidate, ports: PublishPorts) -> Mapping[str, bytes]:
    """The package's SBOM, NOTICE and licence texts, by their paths in it."""
    wanted = {SBOM, NOTICE, *(entry.licence for entry in one.manifest.files)}
    found = ports.archive.read(one.file.path, wanted)
    missing = ", ".join(sorted(wanted - found.keys()))
    if missing:
        raise IntegrityError(f"{one.file.name} lacks {missing}: no release without them. Build it again.")
    return found


def _licences(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]], loader: BaseLoader
) -> str:
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    packages = {one.manifest.name: components(one.manifest) for one in candidates}
    return environment.get_template("licences.html.j2").render(
        packages=packages, texts=_distinct_texts(candidates, texts)
    )


def components(manifest: Manifest) -> tuple[Component, ...]:
    """The package's files by where they come from, vendor and licence."""

    def key(entry: FileEntry) -> tuple[str, str, str]:
        source = entry.source.removeprefix("wheel:") if entry.member else "compiled"
        return (source, entry.vendor, entry.licence)

    files = sorted((entry for entry in manifest.files if entry.path.startswith("lib/")), key=key)
    return tuple(
        Component(source=source, vendor=vendor, licence=licence, files=tuple(entry.path for entry in group))
        for (source, vendor, licence), group in groupby(files, key=key)
    )


def _distinct_texts(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]]
) -> list[tuple[str, str]]:
    """Each licence text once, with its path in the packages. Another text under the same path is told too."""
    found = {
        (path, content.decode("utf-8", errors="replace")): None
        for one in candidates
        for path, content in sorted(texts[one.file.name].items())
        if path not in {SBOM, NOTICE}
    }
    return sorted(found)
