"""SBOMs in CycloneDX 1.6, written and validated by the format's own library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom as Document
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

from builder.package.sbom import MODIFIED, PACKED, SIZE, TEXT, Bom, BomComponent, BomFile, BomLicence

_WIDTH = 200
_VERSION = "1.6"


class CycloneDx:
    """Implements ``package.sbom.BomWriter`` and ``BomReader``."""

    def render(self, bom: Bom) -> bytes:
        """See ``package.sbom.BomWriter.render``. Without a time stamp: it would differ from run to run."""
        package = Component(
            name=bom.name,
            version=bom.version,
            type=ComponentType.LIBRARY,
            bom_ref=bom.name,
            supplier=OrganizationalEntity(name=bom.supplier),
        )
        components = [_component(one) for one in bom.components]
        document = Document(
            serial_number=bom.serial, components=[*components, *(_file(one) for one in bom.files)]
        )
        document.metadata.component = package
        document.metadata.timestamp = None  # type: ignore[assignment] # CycloneDX asks for none
        document.register_dependency(package, components)
        return f"{JsonV1Dot6(document).output_as_string(indent=2)}\n".encode()

    def problems(self, document: bytes) -> Sequence[str]:
        """See ``package.sbom.BomReader.problems``."""
        try:
            text = document.decode()
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            return (f"it is not JSON: {error}",)
        return tuple(_problems(text, parsed))


def _problems(text: str, parsed: object) -> Iterator[str]:
    # Imported late: jsonschema builds a grammar of IRIs, half of what every verb would take to start.
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    for error in JsonStrictValidator(SchemaVersion.V1_6).validate_str(text, all_errors=True) or ():
        yield f"{error.data.json_path}: {error.data.message[:_WIDTH]}"
    version = parsed.get("specVersion") if isinstance(parsed, dict) else None
    if version != _VERSION:
        yield f"$.specVersion: {_VERSION} is wanted, found {version!r}"


def _component(one: BomComponent) -> Component:
    return Component(
        name=one.name,
        version=one.version,
        type=ComponentType.LIBRARY,
        bom_ref=one.purl,
        purl=PackageURL.from_string(one.purl),
        supplier=OrganizationalEntity(name=one.supplier),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one.sha256)] if one.sha256 else [],
        licenses=[_licence(licence) for licence in one.licences],
        components=[_file(file) for file in one.files],
    )


def _file(one: BomFile) -> Component:
    marks = {SIZE: str(one.size)}
    marks |= {MODIFIED: "true"} if one.modified else {}
    marks |= {} if one.packed else {PACKED: "false"}
    return Component(
        name=one.path,
        type=ComponentType.FILE,
        bom_ref=f"file:{one.path}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one.sha256)],
        licenses=[_licence(one.licence)],
        properties=[Property(name=name, value=value) for name, value in marks.items()],
    )


def _licence(one: BomLicence) -> DisjunctiveLicense:
    text = [Property(name=TEXT, value=one.text)]
    if one.spdx:
        return DisjunctiveLicense(id=one.name, properties=text)
    return DisjunctiveLicense(name=one.name, properties=text)
