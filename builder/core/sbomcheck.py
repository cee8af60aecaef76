"""Holds an SBOM to the manifest of its package. Values in, findings out."""

from __future__ import annotations

import json
from typing import Dict, Iterator, List, Mapping, Sequence, cast

from builder.core.checks import Code, Finding
from builder.core.content import SBOM
from builder.core.manifest import Manifest
from builder.core.sbom import MODIFIED, PACKED, origin_of

_Component = Mapping[str, object]


def check_sbom(manifest: Manifest, document: bytes, problems: Sequence[str]) -> Iterator[Finding]:
    """B014 where the SBOM is not valid, else B015 wherever it and the manifest differ.

    ``problems`` is what ``BomReader`` said of the document.
    """
    yield from (Finding(Code.B014, SBOM, problem) for problem in problems)
    if problems:
        return
    bom = cast("_Component", json.loads(document))
    subject = _named(bom)
    if subject != manifest.name:
        yield Finding(Code.B015, SBOM, "it is of another package", wanted=manifest.name, got=subject)
    yield from _compare(_claimed(manifest), _listed(bom))


def _compare(claimed: Mapping[str, str], listed: Mapping[str, List[str]]) -> Iterator[Finding]:
    for path in sorted({*claimed, *listed}):
        wanted, got = claimed.get(path), listed.get(path, [])
        if got != [wanted]:
            yield Finding(
                code=Code.B015,
                path=path,
                message="the manifest and the SBOM disagree",
                wanted=wanted or "nothing",
                got="; ".join(got) or "nothing",
            )


def _claimed(manifest: Manifest) -> Dict[str, str]:
    """A line for each file by path, as the manifest tells it; an SBOM does not list itself."""
    return {
        entry.path: _line(
            entry.sha256,
            origin_of(entry.source, entry.vendor, manifest.onnxruntime.version),
            packed=entry.packed,
            modified=entry.modified,
        )
        for entry in manifest.files
        if entry.path != SBOM
    }


def _listed(bom: _Component) -> Dict[str, List[str]]:
    """The same lines as the SBOM tells them: more than one for a file that stands in it twice."""
    found: Dict[str, List[str]] = {}
    for path, line in _files(bom, ""):
        found.setdefault(path, []).append(line)
    return found


def _files(parent: _Component, purl: str) -> Iterator[tuple[str, str]]:
    """Path and line of every file below a component, at any depth; ``purl`` is what they come from."""
    for component in cast("Sequence[_Component]", parent.get("components", ())):
        if component["type"] == "file":
            told = _properties(component)
            modified, packed = told.get(MODIFIED) == "true", told.get(PACKED) != "false"
            yield str(component["name"]), _line(_sha256(component), purl, packed=packed, modified=modified)
        yield from _files(component, str(component.get("purl", purl)))


def _line(sha256: str, purl: str, *, packed: bool, modified: bool) -> str:
    words = [f"sha256 {sha256}", f"from {purl}" if purl else "our own"]
    words += ["modified"] if modified else []
    words += [] if packed else ["not packed"]
    return ", ".join(words)


def _named(bom: _Component) -> str:
    metadata = cast("_Component", bom.get("metadata", {}))
    return str(cast("_Component", metadata.get("component", {})).get("name", "nothing"))


def _properties(component: _Component) -> Dict[str, str]:
    found = cast("Sequence[Mapping[str, str]]", component.get("properties", ()))
    return {one.get("name", ""): one.get("value", "") for one in found}


def _sha256(component: _Component) -> str:
    found = cast("Sequence[Mapping[str, str]]", component.get("hashes", ()))
    return next((one["content"] for one in found if one["alg"] == "SHA-256"), "none")
