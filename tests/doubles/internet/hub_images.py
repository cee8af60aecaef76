"""Images whose layers are tar files as they are, pushed to a registry by its API.

docker pushes layers that it packs itself, which takes a minute here.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.request import Request, urlopen

from builder.files.digest import file_digest

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


def push_image(
    registry: str, name: str, layers: Sequence[Path], env: Sequence[str] = (), architecture: str = "amd64"
) -> str:
    """Push an index with one image to ``name``, ``REPOSITORY:TAG``; return the index's digest.

    ``registry`` is the registry's URL, and ``env`` the environment that the image sets.
    """
    repository, _, tag = name.partition(":")
    sums = [file_digest(layer).sha256 for layer in layers]
    for layer, sha256 in zip(layers, sums, strict=True):
        with layer.open("rb") as content:
            _push_blob(registry, repository, content, layer.stat().st_size, sha256)
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": list(env), "Cmd": ["/bin/bash"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256}" for sha256 in sums]},
        }
    ).encode()
    _push_blob(registry, repository, config, len(config), hashlib.sha256(config).hexdigest())
    manifest = _push_manifest(
        *(registry, repository, "", _MANIFEST),
        config=_named(_CONFIG, config),
        layers=[
            {"mediaType": _LAYER, "digest": f"sha256:{sha256}", "size": layer.stat().st_size}
            for layer, sha256 in zip(layers, sums, strict=True)
        ],
    )
    platform = {"architecture": architecture, "os": "linux"}
    listed = [{**_named(_MANIFEST, manifest), "platform": platform}]
    index = _push_manifest(registry, repository, tag, _INDEX, manifests=listed)
    return f"sha256:{hashlib.sha256(index).hexdigest()}"


def _named(kind: str, content: bytes) -> dict[str, object]:
    return {
        "mediaType": kind,
        "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "size": len(content),
    }


def _push_manifest(registry: str, repository: str, tag: str, kind: str, **parts: object) -> bytes:
    content = json.dumps({"schemaVersion": 2, "mediaType": kind, **parts}).encode()
    at = tag or f"sha256:{hashlib.sha256(content).hexdigest()}"
    _put(f"{registry}/v2/{repository}/manifests/{at}", content, len(content), kind)
    return content


def _push_blob(registry: str, repository: str, content: bytes | IO[bytes], size: int, sha256: str) -> None:
    begun = Request(f"{registry}/v2/{repository}/blobs/uploads/", method="POST")
    with urlopen(begun, timeout=30) as answer:
        place = answer.headers["Location"]
    _put(f"{place}&digest=sha256:{sha256}", content, size, "application/octet-stream")


def _put(url: str, content: bytes | IO[bytes], size: int, kind: str) -> None:
    headers = {"Content-Type": kind, "Content-Length": str(size)}
    urlopen(Request(url, content, headers, method="PUT"), timeout=300).close()
