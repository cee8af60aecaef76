"""This module makes the attestations of an image: its SBOM in SPDX 2.3, and its provenance in SLSA v1.

Both are in-toto Statements about the image's manifest, the form that BuildKit gives attestations
(moby/buildkit, docs/attestations/attestation-storage.md). Our parameters: docs/trust.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import NAMESPACE_URL, uuid5

from packageurl import PackageURL

from builder.contents.provenance import SLSA, BuilderRun, Resource, slsa_predicate, statement, utc
from builder.contents.required_files import ORTPACKS
from builder.contents.sbom import SUPPLIERS, compiled_purl, origin_of, supplier_of
from builder.formats.manifest import Manifest
from builder.formats.package_names import LIB
from builder.formats.text import grouped

SPDX = "https://spdx.dev/Document"

_ROOT = "SPDXRef-image"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A package, of any vendor, some of whose files are in an image."""

    purl: str
    sha256: str = ""
    """Hex sha256 of its wheel, archive or Debian file; empty for what was compiled."""
    supplier: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """The hex sha256 of an ortpacks package's libraries, by their paths in the image."""


@dataclass(frozen=True, kw_only=True)
class AttestedImage:
    """The image that attestations describe."""

    reference: str
    """Name of the image, ``HOST/NAME:TAG``."""
    digest: str
    """Digest of its manifest, ``sha256:`` and hex."""
    platform: str
    variant: str
    package: str
    """File name of the package in the image; empty without one."""
    service: bool
    parts: Sequence[Part]

    @property
    def sha256(self) -> str:
        """The digest in hex, without ``sha256:``."""
        return self.digest.removeprefix("sha256:")

    @property
    def purl(self) -> str:
        """Package URL, in the form that BuildKit uses for images."""
        name, _, tag = self.reference.rpartition(":")
        namespace, _, last = name.rpartition("/")
        return PackageURL("docker", namespace, last, tag, {"platform": self.platform}).to_string()


def library_parts(manifest: Manifest, home: str) -> Iterator[Part]:
    """Yield the parts of an ortpacks package unpacked to ``home``, one for each origin of its libraries."""
    compiled = compiled_purl(manifest)
    pinned = {origin_of(wheel.source, "", compiled): wheel.sha256 for wheel in manifest.wheels}
    libraries = [entry for entry in manifest.packed if entry.path.startswith(LIB)]
    origins = ((origin_of(entry.source, entry.vendor, compiled), entry) for entry in libraries)
    by_origin = grouped(((purl, supplier_of(purl, entry.vendor)), entry) for purl, entry in origins)
    for (purl, supplier), entries in by_origin.items():
        files = {f"{home}/{entry.path}": entry.sha256 for entry in entries}
        yield Part(purl=purl, sha256=pinned.get(purl, ""), supplier=supplier, files=files)


def attestations(image: AttestedImage, repository: str, run: BuilderRun) -> tuple[Mapping[str, object], ...]:
    """Return the statements of an image's provenance and SBOM.

    ``repository`` is the builder's, ``owner/name``.
    """
    provenance = slsa_predicate(
        repository,
        "image-type-v1",
        external={
            "variant": image.variant,
            **({"package": image.package} if image.package else {}),
            "service": image.service,
            "platform": image.platform,
        },
        internal={},
        resources=[
            Resource(uri=part.purl, digest={"sha256": part.sha256}) for part in image.parts if part.sha256
        ],
        run=run,
    )
    subjects = {image.purl: image.sha256}
    return statement(subjects, SLSA, provenance), statement(subjects, SPDX, _spdx(image, repository, run))


def _spdx(image: AttestedImage, repository: str, run: BuilderRun) -> dict[str, object]:
    """Return the SBOM (spdx.github.io/spdx-spec/v2.3).

    A library is a package contained in that of its origin.
    """
    created = utc(run.finished)
    serial = uuid5(NAMESPACE_URL, f"{image.purl} {image.digest} {created}")
    root = Part(purl=image.purl, sha256=image.sha256, supplier=SUPPLIERS[ORTPACKS])
    packages = [*_packages(_ROOT, root)]
    relations: list[tuple[object, str, object]] = [("SPDXRef-DOCUMENT", "DESCRIBES", _ROOT)]
    for number, part in enumerate(image.parts):
        origin, *libraries = _packages(f"{_ROOT}-{number}", part)
        packages += [origin, *libraries]
        relations.append((_ROOT, "CONTAINS", origin["SPDXID"]))
        relations += [(origin["SPDXID"], "CONTAINS", library["SPDXID"]) for library in libraries]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.reference,
        "documentNamespace": f"https://github.com/{repository}/spdx/{serial}",
        "creationInfo": {"created": created, "creators": ["Tool: ortpacks"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}
            for element, kind, other in relations
        ],
    }


def _packages(ref: str, part: Part) -> Iterator[Mapping[str, object]]:
    purl = PackageURL.from_string(part.purl)
    common = {
        "versionInfo": purl.version,
        "supplier": f"Organization: {part.supplier}" if part.supplier else "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
    }
    located = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}
    named = {"SPDXID": ref, "name": purl.name, "externalRefs": [located]}
    yield {**named, **common, "checksums": _checksums(part.sha256)}
    for number, (path, sha256) in enumerate(part.files.items()):
        yield {"SPDXID": f"{ref}-{number}", "name": path, **common, "checksums": _checksums(sha256)}


def _checksums(sha256: str) -> Sequence[Mapping[str, str]]:
    return [{"algorithm": "SHA256", "checksumValue": sha256}] if sha256 else []
