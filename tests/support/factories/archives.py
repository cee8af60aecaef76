"""Tar archives with whatever headers a test wants, and image files made of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence


def member(name: str, data: bytes = b"", **header: object) -> tuple[tarfile.TarInfo, bytes]:
    """A member whose header says what its bytes are, except where ``header`` says otherwise."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in header.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], end: bytes = bytes(1024)) -> bytes:
    """The members one after the other, each header as it is told, however wrong."""
    parts = []
    for info, data in members:
        parts += [info.tobuf(tarfile.GNU_FORMAT), data, bytes(-len(data) % 512)]
    return b"".join(parts) + end


def files(contents: Mapping[str, bytes]) -> bytes:
    """A tar of plain files."""
    return tar(*(member(name, data) for name, data in contents.items()))


def docker_save(layers: Sequence[bytes], *, drop: int | None = None) -> bytes:
    """``docker save`` before version 25: a folder a layer; a layer that was there before is a link."""
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
    """An OCI layout, blob by blob."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def blob(self, data: bytes) -> dict[str, object]:
        """Put a blob in; its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.contents[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def document(self, **entries: object) -> dict[str, object]:
        """Put a manifest or an index in; its descriptor."""
        return self.blob(json.dumps({"schemaVersion": 2, **entries}).encode())

    def image(self, *layers: bytes) -> dict[str, object]:
        """Put a manifest and its layers in; its descriptor."""
        return self.document(config=self.blob(b"{}"), layers=[self.blob(layer) for layer in layers])

    def index(self, *manifests: Mapping[str, object]) -> dict[str, bytes]:
        """The files of the whole layout, the index last as BuildKit writes it."""
        index = json.dumps({"schemaVersion": 2, "manifests": list(manifests)}).encode()
        return {**self.contents, "index.json": index}


def pax_tar(records: Mapping[str, str], name: str, data: bytes) -> bytes:
    """One member with pax records of our choice."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info, _ = member(name, data, pax_headers=dict(records))
        archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()
