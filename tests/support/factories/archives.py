"""Factories of tar and zip archives with chosen, also wrong, headers, and of image files made of tars."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence


def member(name: str, data: bytes = b"", **header: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return a member with a true header, in which ``header`` replaces attributes of ``TarInfo``."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in header.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], end: bytes = bytes(1024)) -> bytes:
    """Return a tar of these members, each with its header as given, even if the header is wrong."""
    parts = []
    for info, data in members:
        parts += [info.tobuf(tarfile.GNU_FORMAT), data, bytes(-len(data) % 512)]
    return b"".join(parts) + end


def files(contents: Mapping[str, bytes]) -> bytes:
    """Return a tar of plain files, given as bytes by name."""
    return tar(*(member(name, data) for name, data in contents.items()))


def docker_save(layers: Sequence[bytes], *, drop: int | None = None) -> bytes:
    """Return an image file in the form that ``docker save`` wrote before Docker 25.

    Each layer has its own folder; a repeated layer is a link to its first file. The file of the layer with
    the index ``drop`` is left out.
    """
    parts, names = [], []
    seen: dict[bytes, str] = {}
    for place, layer in enumerate(layers):
        name = f"{place:064d}/layer.tar"
        names.append(name)
        parts.append(member(f"{place:064d}", type=tarfile.DIRTYPE))
        if layer in seen:
            parts.append(member(name, type=tarfile.SYMTYPE, linkname=f"../{seen[layer]}"))
        elif place != drop:
            parts.append(member(name, layer))
            seen[layer] = name
    manifest = [{"Config": "c.json", "RepoTags": ["app:1"], "Layers": names}]
    return tar(*parts, member("manifest.json", json.dumps(manifest).encode()))


class Layout:
    """An OCI image layout under construction: ``contents`` holds bytes by path."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(self, data: bytes) -> dict[str, object]:
        """Add a blob and return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.contents[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def document(self, **entries: object) -> dict[str, object]:
        """Add a manifest or an index with these entries and return its descriptor."""
        return self.blob(json.dumps({"schemaVersion": 2, **entries}).encode())

    def image(self, *layers: bytes) -> dict[str, object]:
        """Add an image's config, layers and manifest, and return the descriptor of the manifest."""
        return self.document(config=self.blob(b"{}"), layers=[self.blob(layer) for layer in layers])

    def index(self, *manifests: Mapping[str, object]) -> dict[str, bytes]:
        """Return the layout's files, ``index.json`` last, as BuildKit orders them."""
        index = json.dumps({"schemaVersion": 2, "manifests": list(manifests)}).encode()
        return {**self.contents, "index.json": index}


def pax_tar(records: Mapping[str, str], name: str, data: bytes) -> bytes:
    """Return a tar of one member that has these pax records."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info, _ = member(name, data, pax_headers=dict(records))
        archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip of plain files, given as bytes by name."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return data.getvalue()


def zip_claiming(size: int, contents: Mapping[str, bytes]) -> bytes:
    """Return a zip whose directory claims ``size`` bytes for the last of its files."""
    data = bytearray(zipped(contents))
    where = data.rindex(b"PK\x01\x02") + 24
    data[where : where + 4] = struct.pack("<I", size)
    return bytes(data)
