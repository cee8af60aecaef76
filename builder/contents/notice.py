"""``NOTICE`` lists owner, licence and wheel of each file, and says which files our licence does not cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import fill

from builder.binary.library_names import NVIDIA
from builder.formats.manifest import FileEntry

STATEMENT = (
    "LICENSE covers only the files listed under it. It does not cover NVIDIA's files, and nothing in this "
    "package puts them under an open-source licence."
)
"""Sentence in every NOTICE of a package with NVIDIA's files.

The CUDA EULA, 1.2, forbids putting NVIDIA's files under an open-source licence.
"""

_OWNERS = "This package holds files of several owners. Each is listed below the path of its licence text."

_TERMS = (
    "They are NVIDIA's, byte for byte as in the wheels named here, under the CUDA Toolkit End User License "
    "Agreement and the cuDNN licence: they may be passed on as part of an application that uses them, not as "
    "a product of their own and not modified, for systems with NVIDIA GPUs."
)

_NOT_HERE = "not in the archive"

_THIN = (
    f'Files marked "{_NOT_HERE}" are taken, unchanged, from the wheel named beside each by whoever installs '
    "the package. They belong to the installed package, and all of the above holds for them too."
)

_WHERE = (
    'Beside each file stands the wheel it comes from; "built" is what ortpacks compiled or wrote. '
    "manifest.json has each file's size and sha256."
)

_WIDTH = 110

_INDENT = "  "


def notice(name: str, files: Sequence[FileEntry]) -> str:
    """Return the text for a package called ``name``; the same files give the same text."""
    ordered = sorted(files, key=lambda file: (file.licence, file.path))
    groups = ((licence, list(group)) for licence, group in groupby(ordered, key=lambda file: file.licence))
    sections = ["\n".join([_title(licence, group), *_lines(group)]) for licence, group in groups]
    nvidia = [f"{STATEMENT} {_TERMS}"] if any(file.vendor == NVIDIA for file in files) else []
    thin = [_THIN] if any(not file.packed for file in files) else []
    head = [fill(text, _WIDTH) for text in (name, _OWNERS, *nvidia, *thin, _WHERE)]
    return "\n\n".join([*head, *sections]) + "\n"


def read_notice(text: str) -> set[tuple[str, str, str]]:
    """Return licence, path and source of every file that a NOTICE lists; empty for other text."""
    entries = set()
    licence = ""
    for line in text.splitlines():
        if line.startswith(_INDENT):
            path, _, rest = line.strip().partition(_INDENT)
            entries.add((licence, path, rest.strip().partition(";")[0]))
        else:
            licence = line.rpartition(" (")[0]
    return entries


def _title(licence: str, group: Sequence[FileEntry]) -> str:
    return f"{licence} ({', '.join(sorted({file.vendor for file in group}))})"


def _lines(group: Sequence[FileEntry]) -> Iterator[str]:
    width = max(len(file.path) for file in group)
    for file in group:
        marks = ["RUNPATH set to $ORIGIN"] if file.modified else []
        marks += [] if file.packed else [_NOT_HERE]
        yield f"{_INDENT}{file.path:<{width}}{_INDENT}{'; '.join([file.source, *marks])}"
