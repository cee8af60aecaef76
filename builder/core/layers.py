"""Layers of a container image, one over the other: which files the final image has.

Source: OCI image specification v1.1, layer.md, "Whiteouts".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass
class Layer:
    """What one tar says, in its order: a later member takes the place of an earlier one of the same name."""

    files: Dict[str, Optional[Path]] = field(default_factory=dict)
    """By path: the bytes of a library, ``None`` for anything else that is no folder."""
    folders: Set[str] = field(default_factory=set)
    gone: Set[str] = field(default_factory=set)
    """Paths that lower layers have and the image has not."""
    emptied: Set[str] = field(default_factory=set)
    """Folders of which only what this layer and those above it put in is left."""

    def add(self, name: str, library: Optional[Path]) -> None:
        """A file, link or device."""
        self.folders.discard(name)
        self.files[name] = library

    def add_folder(self, name: str) -> None:
        """A folder; what was a file of that name before is none any more."""
        self.files.pop(name, None)
        self.folders.add(name)

    @property
    def libraries(self) -> Dict[str, Path]:
        """The libraries alone, each file's bytes under the first name that they have."""
        first = {path: name for name, path in reversed(list(self.files.items())) if path}
        return {name: path for name, path in self.files.items() if path and first[path] == name}


def plain(name: str) -> str:
    """A member's name without ``./``, doubled or leading slashes."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def marked(layer: Layer) -> Layer:
    """The same layer with its whiteout files read as what they mean."""
    found = Layer(folders=set(layer.folders))
    for name, library in layer.files.items():
        folder, _, base = name.rpartition("/")
        if base == _OPAQUE:
            found.emptied.add(folder)
        elif not base.startswith(_WHITEOUT):
            found.files[name] = library
        elif not base.startswith(_WHITEOUT * 2):  # aufs keeps its own books under .wh..wh.*
            found.gone.add(f"{folder}/{base[len(_WHITEOUT) :]}".lstrip("/"))
    return found


def stack(layers: Sequence[Layer]) -> Layer:
    """The libraries in all ``marked`` layers, lowest first, as one: what a container would see.

    From the top down, so that each is gone through once: one that lies under itself adds nothing.
    """
    found: List[Dict[str, Path]] = []
    above = Layer()
    for layer in {id(layer): layer for layer in reversed(layers)}.values():
        libraries = ((name, library) for name, library in layer.files.items() if library)
        found.append({name: library for name, library in libraries if not _hides(above, name)})
        above.files.update(layer.files)
        above.folders |= layer.folders
        above.gone |= layer.gone
        above.emptied |= layer.emptied
    return Layer(files={name: library for files in reversed(found) for name, library in files.items()})


def _hides(above: Layer, name: str) -> bool:
    """Whether a file is gone under all that lies above it."""
    folders = list(_above(name))
    return (
        name in above.files
        or name in above.gone
        or name in above.folders
        or any(folder in above.gone or folder in above.files for folder in folders)
        or any(folder in above.emptied for folder in (*folders, ""))
    )


def _above(name: str) -> Iterator[str]:
    """Every folder that a path lies in, the top one left out."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def below_own_top(files: Mapping[str, Path], top: str) -> Dict[str, Path]:
    """The same files without the one folder ``top`` that all of them lie in, if they do."""
    prefix = f"{top}/"
    if not all(name.startswith(prefix) for name in files):
        return dict(files)
    return {name[len(prefix) :]: path for name, path in files.items()}
