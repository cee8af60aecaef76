"""The pages of a package index: HTML (PEP 503), JSON (PEP 691, PEP 700), where metadata lies (PEP 714)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from builder.wheels.distribution import DISTRIBUTION

_API = "1.1"


@dataclass(frozen=True)
class ListedFile:
    """A file beside the pages. ``size`` in bytes."""

    name: str
    size: int
    sha256: str
    requires_python: str = ""
    metadata_sha256: str = ""
    """Of ``<name>.metadata``; empty where there is none."""


def project_html(files: Sequence[ListedFile]) -> str:
    """The page of the project; its files lie beside it."""
    return _html(DISTRIBUTION, [_anchor(file) for file in files])


def root_html() -> str:
    """The page above it, which lists the project."""
    return _html("Simple index", [f'<a href="{DISTRIBUTION}/">{DISTRIBUTION}</a>'])


def project_json(versions: Sequence[str], files: Sequence[ListedFile]) -> str:
    """The same as JSON."""
    listed = [
        {
            "filename": file.name,
            "url": file.name,
            "hashes": {"sha256": file.sha256},
            "size": file.size,
            **({"requires-python": file.requires_python} if file.requires_python else {}),
            **({"core-metadata": {"sha256": file.metadata_sha256}} if file.metadata_sha256 else {}),
        }
        for file in files
    ]
    return _json({"name": DISTRIBUTION, "versions": list(versions), "files": listed})


def root_json() -> str:
    """The page above it as JSON."""
    return _json({"projects": [{"name": DISTRIBUTION}]})


def _anchor(file: ListedFile) -> str:
    attributes = ""
    if file.requires_python:
        attributes += f' data-requires-python="{escape(file.requires_python)}"'
    if file.metadata_sha256:
        attributes += f' data-core-metadata="sha256={file.metadata_sha256}"'
    return f'<a href="{file.name}#sha256={file.sha256}"{attributes}>{file.name}</a>'


def _html(title: str, anchors: Sequence[str]) -> str:
    version = f'<meta name="pypi:repository-version" content="{_API}">'
    head = f'<meta charset="utf-8">{version}<title>{title}</title>'
    body = "\n".join(f"{anchor}<br>" for anchor in anchors)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _json(value: dict[str, object]) -> str:
    return json.dumps({"meta": {"api-version": _API}, **value}, indent=2) + "\n"
