"""The licences page of a release: the licence of every library, and each text once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from jinja2 import BaseLoader

from builder.formats.manifest import FileEntry, Manifest
from builder.formats.package_names import LIB
from builder.package.contents import NOTICE, SBOM
from builder.release.preflight import Candidate
from builder.report.templates import template_environment

LICENCES_PAGE = "licences.html"


@dataclass(frozen=True, kw_only=True)
class LicenceGroup:
    """The files of one package with the same source, vendor and licence."""

    source: str
    """A wheel, ``nvidia-cublas-cu12==12.9.1.4``; or ``compiled``."""
    vendor: str
    licence: str
    """Path of the licence's text in the package."""
    files: tuple[str, ...]


def licences_page(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]], loader: BaseLoader
) -> str:
    """Return the page with the licence of every library; ``texts`` are by package and path in it."""
    environment = template_environment(loader, html=True)
    packages = {one.manifest.name: licence_groups(one.manifest) for one in candidates}
    return environment.get_template("licences.html.j2").render(
        packages=packages, texts=_distinct_texts(candidates, texts)
    )


def licence_groups(manifest: Manifest) -> tuple[LicenceGroup, ...]:
    """Return the package's libraries grouped by source, vendor and licence."""

    def key(entry: FileEntry) -> tuple[str, str, str]:
        source = entry.source.removeprefix("wheel:") if entry.member else "compiled"
        return (source, entry.vendor, entry.licence)

    files = sorted((entry for entry in manifest.files if entry.path.startswith(LIB)), key=key)
    return tuple(
        LicenceGroup(
            source=source, vendor=vendor, licence=licence, files=tuple(entry.path for entry in group)
        )
        for (source, vendor, licence), group in groupby(files, key=key)
    )


def _distinct_texts(
    candidates: Sequence[Candidate], texts: Mapping[str, Mapping[str, bytes]]
) -> list[tuple[str, str]]:
    """Return each distinct licence text with its path; a path with two texts is listed twice."""
    found = {
        (path, content.decode("utf-8", errors="replace")): None
        for one in candidates
        for path, content in sorted(texts[one.file.name].items())
        if path not in {SBOM, NOTICE}
    }
    return sorted(found)
