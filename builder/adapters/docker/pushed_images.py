"""Images in a repository: one is read by its tag, and an index with attestations is written.

The form of attestations is that of BuildKit.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from builder.adapters.docker.registry import (
    INDEX_TYPE,
    Registry,
    descriptor,
    json_bytes,
    read_answer,
)
from builder.errors import TransferError
from builder.files.digest import named_digest
from builder.formats.oci import MANIFEST_TYPE
from builder.ports import IndexEntry, PushedImage, Statement

_CONFIG = "application/vnd.oci.image.config.v1+json"

_IN_TOTO = "application/vnd.in-toto+json"

_NO_PLATFORM = {"os": "unknown", "architecture": "unknown"}


class _Descriptor(BaseModel):
    """The fields that are read of a descriptor in a manifest or an index."""

    digest: str
    size: int
    platform: dict[str, str] = {}


class _Document(BaseModel):
    """An image's manifest, or the index that names manifests."""

    manifests: list[_Descriptor] = []
    layers: list[_Descriptor] = []
    config: _Descriptor | None = None


class _RootFs(BaseModel):
    diff_ids: list[str]


class _Config(BaseModel):
    rootfs: _RootFs


def read_image(registry: Registry, tag: str, platform: str) -> PushedImage:
    """Return the image for a platform under a tag. Raises ``TransferError``, also if there is none."""
    top = registry.get(f"manifests/{tag}")
    document = read_answer(_Document, top)
    for one in document.manifests:
        if platform == "/".join((one.platform.get("os", ""), one.platform.get("architecture", ""))):
            document = read_answer(_Document, registry.get(f"manifests/{one.digest}"))
    if document.config is None:
        raise TransferError(f"{registry.repository}:{tag} has no image for {platform}")
    config = read_answer(_Config, registry.get(f"blobs/{document.config.digest}"))
    return PushedImage(
        digest=named_digest(top.content),
        layers=tuple(config.rootfs.diff_ids),
        sizes=tuple(layer.size for layer in document.layers),
    )


def push_index(registry: Registry, tags: Sequence[str], images: Sequence[IndexEntry]) -> str:
    """See ``ports.Engine.publish``."""
    entries = [_image_entry(registry, one) for one in images]
    entries += [_attestation_entry(registry, one) for one in images]
    index = json_bytes({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries})
    for tag in tags:
        registry.put_manifest(tag, index, INDEX_TYPE)
    return named_digest(index)


def _image_entry(registry: Registry, image: IndexEntry) -> dict[str, object]:
    answer = registry.get(f"manifests/{image.digest}")
    system, _, architecture = image.platform.partition("/")
    return {
        **descriptor(answer.content, answer.headers.get("Content-Type", MANIFEST_TYPE)),
        "platform": {"os": system, "architecture": architecture},
    }


def _attestation_entry(registry: Registry, image: IndexEntry) -> dict[str, object]:
    """Write an attestation manifest, and return its entry in the index."""
    layers = [_put_statement(registry, statement) for statement in image.statements]
    files = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
    config = registry.put_blob(json_bytes({**_NO_PLATFORM, "config": {}, "rootfs": files}), _CONFIG)
    manifest = json_bytes(
        {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    )
    registry.put_manifest(named_digest(manifest), manifest)
    notes = {"reference.type": "attestation-manifest", "reference.digest": image.digest}
    return {
        **descriptor(manifest, MANIFEST_TYPE),
        "platform": _NO_PLATFORM,
        "annotations": {f"vnd.docker.{name}": value for name, value in notes.items()},
    }


def _put_statement(registry: Registry, statement: Statement) -> dict[str, object]:
    kind = {"in-toto.io/predicate-type": statement["predicateType"]}
    return {**registry.put_blob(json_bytes(statement), _IN_TOTO), "annotations": kind}
