"""The software bill of materials, ``sbom.cdx.json``: every file of the installed package, and whose it is.

What stands in it is decided here; how CycloneDX spells it is an adapter's. Two packages of the same content
have the same SBOM: no clock, no random number. Properties of ours begin with ``ortpacks:``
(docs/sbom.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Protocol, Sequence, Tuple
from uuid import NAMESPACE_URL, UUID, uuid5

from builder.core import purl
from builder.core.content import (
    CUDA_LICENCE,
    CUDNN_LICENCE,
    DIRECTML_LICENCE,
    MICROSOFT,
    NVIDIA,
    ONNXRUNTIME,
    ORT_LICENCE,
    ORT_NOTICES,
    ORTPACKS,
    OUR_LICENCE,
)
from builder.core.manifest import WheelEntry
from builder.core.package import BUILT, Digest, Member
from builder.core.shape import to_json
from builder.core.variant import BuildPlan

PACKED = "ortpacks:packed"
"""Property of a file: ``false`` where the archive leaves it to its wheel."""
MODIFIED = "ortpacks:modified"
"""Property of a file: ``true`` where its bytes are not its wheel's."""
SIZE = "ortpacks:size"
"""Property of a file: bytes."""
TEXT = "ortpacks:text"
"""Property of a licence: path of its text in the package."""
ORT_REPOSITORY = "microsoft/onnxruntime"
_ORT_NAME = "onnxruntime"
_MIT = "MIT"
_NAMES = {
    CUDA_LICENCE: "NVIDIA CUDA Toolkit End User License Agreement",
    CUDNN_LICENCE: "License Agreement for NVIDIA Software Development Kits, cuDNN Supplement",
    ORT_NOTICES: "ONNX Runtime third-party notices",
    DIRECTML_LICENCE: "Microsoft DirectML licence terms",
}
_SUPPLIERS = {
    NVIDIA: "NVIDIA Corporation",
    ONNXRUNTIME: "Microsoft Corporation",
    MICROSOFT: "Microsoft Corporation",
    ORTPACKS: "ortpacks",
}


@dataclass(frozen=True)
class BomLicence:
    """A licence by its SPDX identifier or, where it has none, by its title."""

    name: str
    spdx: bool
    text: str
    """Path of its text in the package."""


@dataclass(frozen=True)
class BomFile:
    """One file of the installed package."""

    path: str
    size: int
    sha256: str
    packed: bool
    modified: bool
    licence: BomLicence


@dataclass(frozen=True)
class BomComponent:
    """Somebody's package, and which of its files are here."""

    name: str
    version: str
    purl: str
    supplier: str
    sha256: Optional[str]
    """Of the wheel; ``None`` for what was compiled."""
    licences: Tuple[BomLicence, ...]
    files: Tuple[BomFile, ...]


@dataclass(frozen=True)
class Bom:
    """All of an SBOM, in the order it is written."""

    name: str
    version: str
    """Version of ONNX Runtime."""
    supplier: str
    components: Tuple[BomComponent, ...]
    files: Tuple[BomFile, ...]
    """Our own."""

    @property
    def serial(self) -> UUID:
        """Follows from all the rest: other content, another number."""
        return uuid5(NAMESPACE_URL, json.dumps(to_json(self), sort_keys=True))


class BomWriter(Protocol):
    """Spells an SBOM."""

    def render(self, bom: Bom) -> bytes:
        """The document: CycloneDX 1.6, JSON. The same SBOM gives the same bytes."""


class BomReader(Protocol):
    """Reads an SBOM."""

    def problems(self, document: bytes) -> Sequence[str]:
        """Everything in which it is no strictly valid CycloneDX 1.6, one line each; empty when it is."""


def describe_bom(
    plan: BuildPlan,
    name: str,
    members: Sequence[Member],
    digests: Mapping[str, Digest],
    wheels: Sequence[WheelEntry],
) -> Bom:
    """The SBOM of a plan's package called ``name``.

    ``members`` are all its files but the SBOM and the manifest, ``digests`` are theirs by path, ``wheels``
    those that they come from.
    """
    by_purl: Dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda one: one.path):
        by_purl.setdefault(origin_of(member.source, member.vendor, plan.ort_version), []).append(member)
    ours = by_purl.pop("", [])
    pinned = {origin_of(wheel.source, "", plan.ort_version): wheel.sha256 for wheel in wheels}
    return Bom(
        name=name,
        version=plan.ort_version,
        supplier=_SUPPLIERS[ORTPACKS],
        components=tuple(
            _component(key, found, digests, pinned.get(key), plan.ort_version)
            for key, found in sorted(by_purl.items())
        ),
        files=tuple(_file(member, digests[member.path]) for member in ours),
    )


def origin_of(source: str, vendor: str, ort: str) -> str:
    """The purl of what a file comes from, by ``source`` and ``vendor`` of its entry; empty for our own.

    ``ort`` is the version of ONNX Runtime that was compiled.
    """
    kind, _, spec = source.partition(":")
    if kind == "wheel":
        return purl.pypi(spec)
    return purl.github(ORT_REPOSITORY, f"v{ort}") if vendor == ONNXRUNTIME else ""


def _component(
    key: str, members: Sequence[Member], digests: Mapping[str, Digest], sha256: Optional[str], ort: str
) -> BomComponent:
    first = members[0]
    name, _, version = first.source.partition(":")[2].partition("@")[0].partition("==")
    built = first.source == BUILT
    return BomComponent(
        name=_ORT_NAME if built else name,
        version=ort if built else version,
        purl=key,
        supplier=_SUPPLIERS.get(first.vendor, first.vendor),
        sha256=sha256,
        licences=tuple(_licence(path) for path in sorted({member.licence for member in members})),
        files=tuple(_file(member, digests[member.path]) for member in members),
    )


def _file(member: Member, digest: Digest) -> BomFile:
    return BomFile(
        path=member.path,
        size=digest.size,
        sha256=digest.sha256,
        packed=member.packed,
        modified=member.modified,
        licence=_licence(member.licence),
    )


def _licence(path: str) -> BomLicence:
    spdx = path in (ORT_LICENCE, OUR_LICENCE)
    return BomLicence(name=_MIT if spdx else _NAMES.get(path, path), spdx=spdx, text=path)
