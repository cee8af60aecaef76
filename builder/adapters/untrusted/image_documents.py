"""Readers of a container image's documents, and the merging of its layers into the files that it has.

Sources: OCI image specification v1.1 (image-layout.md, image-index.md, manifest.md; layer.md, "Whiteouts");
``docker save``'s ``manifest.json`` as moby's ``image/tarexport`` writes it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from builder.errors import IntegrityError

DOCUMENT_LIMIT = 4 << 20
"""The most bytes of a document; a real manifest has a few thousand."""

_DOCKER = "manifest.json"

_OCI = "index.json"

_OCI_MARK = "oci-layout"

LAYOUT_FILES = frozenset((_DOCKER, _OCI, _OCI_MARK))
"""Names of files of which an image's folder has at least one at its top."""

_DIGEST = re.compile(r"([a-z0-9]+):([0-9a-fA-F]{32,128})")

_SCHEMA = 2

_SHORT = 12

_MOST_LAYERS = 1024
"""The most layers of one image; docker allows 127."""

_MOST_IMAGES = 1024

_MOST_ENTRIES = 4096
"""The most entries of all indexes together."""

_LONGEST_LABEL = 256
"""The most characters of an image's label, which precedes every name in the image."""

_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")

_TRACE = re.compile(r"(?:.*/)?layer\.tar|blobs/sha256/[0-9a-f]{64}|" + _OCI_MARK)
"""Names of files that only an image has."""


@dataclass(frozen=True)
class ImageLayers:
    """One image of a file: the label that distinguishes it, and its layers' paths, lowest first."""

    label: str
    layers: tuple[str, ...]


def is_document(name: str, head: bytes) -> bool:
    """Return whether a member, whose first bytes are ``head``, may be a document that ``images`` reads."""
    return name in {_DOCKER, _OCI} or (name.startswith("blobs/") and head.lstrip().startswith(b"{"))


def is_layout(names: Iterable[str]) -> bool:
    """Return whether any of the names is that of an image's part, even if the documents are missing."""
    return any(_TRACE.fullmatch(name) for name in names)


def images(documents: Mapping[str, bytes]) -> tuple[ImageLayers, ...]:
    """Return every image that the documents describe; none when they describe something else.

    Raises ``IntegrityError`` for documents of an image that contradict the specification.
    """
    try:
        return _within_reason(_docker(documents) or _oci(documents))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise IntegrityError(f"the image's documents are broken: {_error_text(error)}") from error


def _within_reason(found: Iterable[ImageLayers]) -> tuple[ImageLayers, ...]:
    """Return each image once. Raises ``ValueError`` for too many images or layers."""
    once = tuple(dict.fromkeys(found))
    if len(once) > _MOST_IMAGES:
        raise ValueError(f"{len(once):,} images; at most {_MOST_IMAGES:,} are read")
    for image in once:
        if len(image.layers) > _MOST_LAYERS:
            raise ValueError(
                f"{image.label} has {len(image.layers):,} layers; at most {_MOST_LAYERS:,} are read"
            )
    return once


def _error_text(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _docker(documents: Mapping[str, bytes]) -> tuple[ImageLayers, ...]:
    listed = _parsed(documents.get(_DOCKER))
    if not (
        isinstance(listed, list) and listed and all(isinstance(i, dict) and "Layers" in i for i in listed)
    ):
        return ()
    return tuple(
        ImageLayers(_tags(item) or f"image {place}", _words(item["Layers"] or ()))
        for place, item in enumerate(listed, 1)
    )


def _tags(item: Mapping[str, Iterable[str]]) -> str:
    return _shortened(", ".join(item.get("RepoTags") or ()))


def _words(value: Iterable[object]) -> tuple[str, ...]:
    words = tuple(word for word in value if isinstance(word, str))
    if words != tuple(value):
        raise ValueError("Layers is no list of names")
    return words


def _parsed(document: bytes | None) -> object:
    """Return the value of a JSON document; ``None`` for a file that has a document's name and is no JSON."""
    try:
        return json.loads(document or b"null")
    except (ValueError, RecursionError):
        return None


def _oci(documents: Mapping[str, bytes]) -> tuple[ImageLayers, ...]:
    index = _parsed(documents.get(_OCI))
    if not isinstance(index, dict) or index.get("schemaVersion") != _SCHEMA or "manifests" not in index:
        return ()
    found = tuple(_manifests(documents, index))
    if index["manifests"] and not found:
        raise ValueError("none of its manifests is that of an image")
    return found


def _manifests(documents: Mapping[str, bytes], index: Mapping[str, list[object]]) -> Iterator[ImageLayers]:
    """Yield the image of every manifest that the index names, also through nested indexes, each once."""
    waiting = deque(("", entry) for entry in index["manifests"])
    read: set[str] = set()
    entries = 0
    while waiting:
        outer, entry = waiting.popleft()
        entries += 1
        if entries > _MOST_ENTRIES:
            raise ValueError(f"its indexes have more than {_MOST_ENTRIES:,} entries")
        digest = _digest(entry)
        if digest in read or _is_statement(entry):
            continue
        read.add(digest)
        document = json.loads(_blob(documents, digest))
        label = _shortened(" ".join(filter(None, (outer, _label(entry)))))
        if "manifests" in document:
            waiting.extendleft((label, inner) for inner in reversed(document["manifests"]))
        elif _holds_other_things(document):
            continue
        elif "layers" in document:
            name = label or f"image {digest[-_SHORT:]}"
            yield ImageLayers(name, tuple(_path(_digest(layer)) for layer in document["layers"]))
        else:
            raise ValueError(f"{digest} is neither a manifest nor an index")


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[: _LONGEST_LABEL - 1]}…"


def _digest(entry: object) -> str:
    digest = entry.get("digest") if isinstance(entry, dict) else None
    if not isinstance(digest, str):
        raise ValueError("an entry has no digest")  # noqa: TRY004 - the text has the wrong form, not the code
    return digest


def _blob(documents: Mapping[str, bytes], digest: str) -> bytes:
    path = _path(digest)
    if path not in documents:
        raise ValueError(f"{path} is not there")
    return documents[path]


def _notes(entry: object) -> Mapping[str, object]:
    notes = entry.get("annotations") if isinstance(entry, dict) else None
    return notes if isinstance(notes, dict) else {}


def _is_statement(entry: object) -> bool:
    """Return whether an entry is BuildKit's manifest of attestations, which no machine can run."""
    return _notes(entry).get("vnd.docker.reference.type") == "attestation-manifest"


def _holds_other_things(document: Mapping[str, Iterable[object]]) -> bool:
    """Return whether a manifest is that of a signature, an SBOM or the like: no layer of it is a tar."""
    layers = document.get("layers") or ()
    kinds = [layer.get("mediaType") for layer in layers if isinstance(layer, dict)]
    return bool(kinds) and all(isinstance(kind, str) and ".tar" not in kind for kind in kinds)


def _label(entry: object) -> str:
    """Return the platform of an index's entry, else the image's name, else an empty text."""
    platform = entry.get("platform") if isinstance(entry, dict) else None
    if isinstance(platform, dict):
        words = [platform.get(key) for key in ("os", "architecture", "variant")]
        return "/".join(str(word) for word in words if word)
    return next((str(_notes(entry)[name]) for name in _NAMES if name in _notes(entry)), "")


def _path(digest: str) -> str:
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise ValueError(f"{digest!r} is no digest")
    return f"blobs/{found[1]}/{found[2]}"


_WHITEOUT = ".wh."

_OPAQUE = ".wh..wh..opq"


@dataclass
class Layer:
    """The files of one tar; a later member replaces an earlier one of the same name."""

    files: dict[str, Path | None] = field(default_factory=dict)
    """By path: the file with the bytes of a library, ``None`` for any other member that is no folder."""
    folders: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Paths that this layer removes from lower layers."""
    emptied: set[str] = field(default_factory=set)
    """Folders from which this layer removes everything that lower layers put there."""

    def add(self, name: str, library: Path | None) -> None:
        """Add a file, link or device; ``library`` is the file with its bytes if it is a library."""
        self.folders.discard(name)
        self.files[name] = library

    def add_folder(self, name: str) -> None:
        """Add a folder, which replaces an earlier file of the same name."""
        self.files.pop(name, None)
        self.folders.add(name)

    @property
    def libraries(self) -> dict[str, Path]:
        """Return the libraries by path; of several names of one file, only the first."""
        first = {path: name for name, path in reversed(list(self.files.items())) if path}
        return {name: path for name, path in self.files.items() if path and first[path] == name}


def plain(name: str) -> str:
    """Return a member's name without ``./`` and without leading, doubled or final slashes."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def without_whiteouts(layer: Layer) -> Layer:
    """Return the same layer without its whiteout files; ``gone`` and ``emptied`` have what these hide."""
    found = Layer(folders=set(layer.folders))
    for name, library in layer.files.items():
        folder, _, base = name.rpartition("/")
        if base == _OPAQUE:
            found.emptied.add(folder)
        elif not base.startswith(_WHITEOUT):
            found.files[name] = library
        elif not base.startswith(_WHITEOUT * 2):  # files .wh..wh.* are data of aufs itself
            found.gone.add(f"{folder}/{base[len(_WHITEOUT) :]}".lstrip("/"))
    return found


def merge_layers(layers: Sequence[Layer]) -> Layer:
    """Return one layer with the libraries that a container of these layers, lowest first, would see.

    Each layer comes from ``without_whiteouts``. Layers are read from the top down, each once: a layer that is
    there twice adds nothing the second time.
    """
    found: list[dict[str, Path]] = []
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
    """Return whether the layers above hide a file."""
    folders = list(_above(name))
    return (
        name in above.files
        or name in above.gone
        or name in above.folders
        or any(folder in above.gone or folder in above.files for folder in folders)
        or any(folder in above.emptied for folder in (*folders, ""))
    )


def _above(name: str) -> Iterator[str]:
    """Yield every folder that a path lies in, innermost first, except the root."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def below_own_top(files: Mapping[str, Path], top: str) -> dict[str, Path]:
    """Return the files by their paths below the folder ``top``, if all of them lie in it, else unchanged."""
    prefix = f"{top}/"
    if not all(name.startswith(prefix) for name in files):
        return dict(files)
    return {name[len(prefix) :]: path for name, path in files.items()}
