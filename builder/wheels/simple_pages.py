"""Pages of a package index: HTML (PEP 503), JSON (PEP 691, PEP 700), place of metadata (PEP 714)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from packaging.version import Version

from builder.wheels.distribution import DISTRIBUTION

HTML, JSON = "index.html", "index.json"

_API = "1.1"


@dataclass(frozen=True)
class ListedFile:
    """A file that the pages list; ``size`` is in bytes."""

    name: str
    size: int
    sha256: str
    requires_python: str = ""
    metadata_sha256: str = ""
    """Hex sha256 of ``<name>.metadata``; empty if there is none."""
    folder: str = ""
    """The file's folder, relative to the page, with a slash at the end; empty: the page's own folder."""


def root_pages() -> Mapping[str, str]:
    """Return the pages above the project's page, which list the project, by file name."""
    link = f'<a href="{DISTRIBUTION}/">{DISTRIBUTION}</a>'
    return {HTML: _html("Simple index", [link]), JSON: _json({"projects": [{"name": DISTRIBUTION}]})}


def project_pages(files: Iterable[ListedFile]) -> Mapping[str, str]:
    """Return the project's pages, by file name."""
    listed = tuple(files)
    versions = sorted({file.name.split("-")[1] for file in listed}, key=Version)
    return {
        HTML: _html(DISTRIBUTION, [_anchor(file) for file in listed]),
        JSON: _json({"name": DISTRIBUTION, "versions": versions, "files": [_entry(one) for one in listed]}),
    }


def _entry(file: ListedFile) -> dict[str, object]:
    return {
        "filename": file.name,
        "url": f"{file.folder}{file.name}",
        "hashes": {"sha256": file.sha256},
        "size": file.size,
        **({"requires-python": file.requires_python} if file.requires_python else {}),
        **({"core-metadata": {"sha256": file.metadata_sha256}} if file.metadata_sha256 else {}),
    }


def _anchor(file: ListedFile) -> str:
    attributes = ""
    if file.requires_python:
        attributes += f' data-requires-python="{escape(file.requires_python)}"'
    if file.metadata_sha256:
        attributes += f' data-core-metadata="sha256={file.metadata_sha256}"'
    return f'<a href="{file.folder}{file.name}#sha256={file.sha256}"{attributes}>{file.name}</a>'


def _html(title: str, anchors: Sequence[str]) -> str:
    version = f'<meta name="pypi:repository-version" content="{_API}">'
    head = f'<meta charset="utf-8">{version}<title>{title}</title>'
    body = "\n".join(f"{anchor}<br>" for anchor in anchors)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _json(value: dict[str, object]) -> str:
    return json.dumps({"meta": {"api-version": _API}, **value}, indent=2) + "\n"
