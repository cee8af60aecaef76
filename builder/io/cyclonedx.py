"""Writer and validator of SBOMs in CycloneDX 1.6, by the format's own library and the schema in it."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom as Document
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.schema._res import BOM_JSON_STRICT, JSF, SPDX_JSON
from jsonschema_rs import Draft7Validator, Registry
from packageurl import PackageURL

from builder.contents.sbom import MODIFIED, PACKED, SIZE, TEXT, Bom, BomComponent, BomFile, BomLicence

_WIDTH = 200
_VERSION = "1.6"
_SCHEMAS = "http://cyclonedx.org/schema"


def render_bom(bom: Bom) -> bytes:
    """Return the document: CycloneDX 1.6, JSON, without a time stamp. One SBOM gives the same bytes again."""
    package = Component(
        name=bom.name,
        version=bom.version,
        type=ComponentType.LIBRARY,
        bom_ref=bom.name,
        supplier=OrganizationalEntity(name=bom.supplier),
    )
    components = [_component(component) for component in bom.components]
    document = Document(
        serial_number=bom.serial, components=[*components, *(_file(file) for file in bom.files)]
    )
    document.metadata.component = package
    document.metadata.timestamp = None  # type: ignore[assignment] # CycloneDX requires none
    document.register_dependency(package, components)
    return f"{JsonV1Dot6(document).output_as_string(indent=2)}\n".encode()


def bom_problems(document: bytes) -> Sequence[str]:
    """Return a line for each violation of CycloneDX 1.6, strictly read; empty for a valid document."""
    try:
        return tuple(_problems(json.loads(document.decode())))
    except (ValueError, RecursionError) as error:  # jsonschema_rs refuses lone surrogates too
        return (f"it is not JSON: {error}",)


def _problems(document: object) -> Iterator[str]:
    for error in _schema().iter_errors(document):
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.instance_path)
        yield f"${path}: {error.message[:_WIDTH]}"
    version = document.get("specVersion") if isinstance(document, dict) else None
    if version != _VERSION:
        yield f"$.specVersion: {_VERSION} is wanted, found {version!r}"


@functools.cache
def _schema() -> Draft7Validator:
    """Return a validator of the strict schema of CycloneDX 1.6 with its formats, from the library's own copy.

    The library's own validator is not used: its import takes 1.9 s of CPU in each process that reads an SBOM.
    """
    files = [Path(file) for file in (SPDX_JSON, JSF, str(BOM_JSON_STRICT[SchemaVersion.V1_6]))]
    *others, bom = [
        (f"{_SCHEMAS}/{file.name}", json.loads(file.read_text(encoding="utf-8"))) for file in files
    ]
    return Draft7Validator(bom[1], registry=Registry(others), validate_formats=True)


def _component(part: BomComponent) -> Component:
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=part.purl,
        purl=PackageURL.from_string(part.purl),
        supplier=OrganizationalEntity(name=part.supplier),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
        licenses=[_licence(licence) for licence in part.licences],
        components=[*(_file(file) for file in part.files), *map(_component, part.linked)],
    )


def _file(bom_file: BomFile) -> Component:
    marks = {SIZE: str(bom_file.size)}
    marks |= {MODIFIED: "true"} if bom_file.modified else {}
    marks |= {} if bom_file.packed else {PACKED: "false"}
    return Component(
        name=bom_file.path,
        type=ComponentType.FILE,
        bom_ref=f"file:{bom_file.path}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=bom_file.sha256)],
        licenses=[_licence(bom_file.licence)],
        properties=[Property(name=name, value=value) for name, value in marks.items()],
    )


def _licence(licence: BomLicence) -> DisjunctiveLicense:
    text = [Property(name=TEXT, value=licence.text)]
    if licence.spdx:
        return DisjunctiveLicense(id=licence.name, properties=text)
    return DisjunctiveLicense(name=licence.name, properties=text)
