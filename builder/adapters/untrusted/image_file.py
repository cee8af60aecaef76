"""Reader of container images in files, from ``docker save`` or as OCI layouts, packed or as a folder.

A file is read twice: first for its documents, then for each layer once, in the order of the file.
"""

from __future__ import annotations

import io
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from builder.adapters.untrusted.image_documents import (
    DOCUMENT_LIMIT,
    LAYOUT_FILES,
    ImageLayers,
    Layer,
    images,
    is_document,
    is_layout,
    merge_layers,
    plain,
    without_whiteouts,
)
from builder.adapters.untrusted.reading import Scratch, UnpackLimits, damage_errors
from builder.adapters.untrusted.tar import ForwardTar, LayerReader, opened_tar
from builder.errors import IntegrityError
from builder.formats.text import printable
from builder.ports import Reporter

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_DOCUMENTS_LIMIT = 16 * DOCUMENT_LIMIT

_SAVE_AGAIN = "Save the image again."

_HOPS = 8
"""The most links to follow to a layer: an old ``docker save`` wrote a repeated layer as a link."""


@dataclass
class Contents:
    """The documents, links and names that the first reading of a possible image finds."""

    what: str
    documents: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    _room: int = _DOCUMENTS_LIMIT

    def note(self, name: str, size: int, content: io.BufferedReader | None) -> None:
        """Record one file, and its bytes if it is a document."""
        self.names.add(name)
        if content is None or not 0 < size <= DOCUMENT_LIMIT:
            return
        with damage_errors(self.what):
            if is_document(name, content.peek(64)[:64]):
                self._keep(name, size, content)

    def _keep(self, name: str, size: int, content: io.BufferedReader) -> None:
        self._room -= size
        if self._room < 0:
            raise IntegrityError(f"{self.what}: its documents have more than {_DOCUMENTS_LIMIT:,} bytes.")
        self.documents[name] = content.read(size)

    def link(self, name: str, target: str, *, hard: bool) -> None:
        """Record a link and its target."""
        self.names.add(name)
        folder = "" if hard else posixpath.dirname(name)
        self.links[name] = posixpath.normpath(posixpath.join(folder, target))

    def images(self) -> tuple[ImageLayers, ...]:
        """Return the images that the documents describe; none if there is none. Raises ``IntegrityError``."""
        try:
            found = images(self.documents)
        except IntegrityError as error:
            raise IntegrityError(f"{self.what}: {printable(str(error))}", advice=_SAVE_AGAIN) from error
        if not found and is_layout(self.names):
            raise IntegrityError(
                f"{self.what} has the parts of a container image, but neither docker's manifest.json nor "
                "OCI's index.json says how they belong together",
                advice=_SAVE_AGAIN,
            )
        return tuple(ImageLayers(one.label, tuple(map(self._follow_links, one.layers))) for one in found)

    def _follow_links(self, name: str) -> str:
        name = plain(name)
        for _ in range(_HOPS):
            if name not in self.links:
                return name
            name = self.links[name]
        raise IntegrityError(f"{self.what}: {printable(name)} is a link to itself", advice=_SAVE_AGAIN)


def read_tar(path: Path, what: str, scratch: Scratch, reporter: Reporter) -> dict[str, Path]:
    """Return the libraries of a tar by name. A tar that is an image is read a second time, for its layers."""
    limits = UnpackLimits.of(what, path.stat().st_size)
    contents, reader = Contents(what), LayerReader(scratch, what, limits, opens_zips=True)
    with _watched(path, what, reporter) as file, opened_tar(file, what, limits, seekable=True) as tar:
        for info, content in tar.members():
            reader.take(info, content)
            if info.issym() or info.islnk():
                contents.link(plain(info.name), info.linkname, hard=info.islnk())
            elif not info.isdir():
                contents.note(plain(info.name), info.size, content)
    found = contents.images()
    if not found:
        return reader.layer.libraries
    wanted = {layer for image in found for layer in image.layers}
    with _watched(path, what, reporter) as file, opened_tar(file, what, limits, seekable=True) as tar:
        return _final_files(found, dict(_layers(tar, wanted, scratch)), what, limits)


def read_layout(files: Mapping[str, Path], what: str, scratch: Scratch) -> dict[str, Path]:
    """Return the libraries of an unpacked image by name; none if ``files`` are no image."""
    if not LAYOUT_FILES & files.keys():
        return {}
    contents = Contents(what)
    for name, path in files.items():
        with _opened(path, what) as file:
            contents.note(name, path.stat().st_size, file)
    found = contents.images()
    layers: dict[str, Layer] = {}
    wanted = {layer for image in found for layer in image.layers} & files.keys()
    limits = UnpackLimits.of(what, sum(files[name].stat().st_size for name in wanted))
    for name in sorted(wanted):
        with _opened(files[name], _layer(what, name)) as file:
            layers[name] = _read_layer(file, scratch, _layer(what, name), limits, seekable=True)
    return _final_files(found, layers, what, limits)


def _layers(tar: ForwardTar, wanted: set[str], scratch: Scratch) -> Iterator[tuple[str, Layer]]:
    """Yield every wanted layer of a tar with its name, in the second reading."""
    for info, content in tar.members():
        name = plain(info.name)
        if content is not None and name in wanted:
            what = _layer(tar.what, name)
            yield name, _read_layer(content, scratch, what, tar.limits, seekable=tar.seekable)


def _read_layer(
    content: io.BufferedReader, scratch: Scratch, what: str, limits: UnpackLimits, *, seekable: bool
) -> Layer:
    """Return one layer, ``without_whiteouts``, from its tar, compressed or not."""
    reader = LayerReader(scratch, what, limits)
    with opened_tar(content, what, limits, seekable=seekable) as tar:
        for info, own in tar.members():
            reader.take(info, own)
    return without_whiteouts(reader.layer)


def _final_files(
    found: Sequence[ImageLayers], layers: Mapping[str, Layer], what: str, limits: UnpackLimits
) -> dict[str, Path]:
    """Return the libraries that each image has in the end; of several images, under their labels."""
    _require_whole(found, layers, what)
    files: dict[str, Path] = {}
    for prefix, image in zip(_prefixes(found), found, strict=True):
        limits.take_stacked(sum(len(layers[name].files) for name in set(image.layers)))
        seen = merge_layers([layers[name] for name in image.layers]).libraries
        limits.take_libraries(len(seen) if prefix else 0)
        files.update({f"{prefix}{name}": path for name, path in seen.items()})
    return files


def _require_whole(found: Iterable[ImageLayers], layers: Mapping[str, Layer], what: str) -> None:
    """Raise ``IntegrityError`` for a layer that is missing."""
    for image in found:
        missing = [name for name in image.layers if name not in layers]
        if missing:
            raise IntegrityError(
                f"{what}: the layer {printable(missing[0])} of {printable(image.label)} is not there "
                f"({len(missing)} of {len(image.layers)} are missing)",
                advice=_SAVE_AGAIN,
            )


def _prefixes(found: Sequence[ImageLayers]) -> Iterator[str]:
    """Yield the prefix of each image's files, ``LABEL:/`` as for ``docker cp``; empty for a single image."""
    images_of = Counter(image.label for image in found)
    for place, image in enumerate(found, 1):
        number = f" ({place})" if images_of[image.label] > 1 else ""
        yield f"{image.label}{number}:/" if len(found) > 1 else ""


def _layer(what: str, name: str) -> str:
    return f"{what}, layer {printable(name)}"


class _Watched(io.FileIO):
    """A file that reports how many bytes are read of it."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = super().readinto(buffer)
        self._advance(count)
        return count


@contextmanager
def _watched(path: Path, what: str, reporter: Reporter) -> Iterator[io.BufferedReader]:
    with damage_errors(what):
        size = path.stat().st_size
    with reporter.progress(what.rpartition("/")[2], size) as advance:
        with damage_errors(what):
            file = cast("io.BufferedReader", io.BufferedReader(_Watched(path, advance)))
        with file:
            yield file


@contextmanager
def _opened(path: Path, what: str) -> Iterator[io.BufferedReader]:
    with damage_errors(what):
        file = path.open("rb")
    with file:
        yield file
