"""The software bill of materials, ``sbom.cdx.json``, lists every file of a package and its origin.

This module decides the contents; an adapter writes them as CycloneDX. Packages with the same content have the
same SBOM, without time and random numbers. Our own properties begin with ``ortpacks:`` (docs/trust.md).
``check_sbom`` compares an SBOM with its package's manifest. The purl project's own library writes the package
URLs (ECMA-427).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import cast
from uuid import NAMESPACE_URL, UUID, uuid5

from packageurl import PackageURL

from builder.binary.library_names import NVIDIA, ONNXRUNTIME
from builder.config.build_plan import BuildPlan, planned_units
from builder.config.inputs import ORT_REPOSITORY, Input, InputKind, Lock
from builder.config.variants import Origin, UnpackedToolkit, WheelToolkit, archives
from builder.contents.package_manifest import BUILT, Member
from builder.contents.required_files import (
    CUDA_LICENCE,
    CUDNN_LICENCE,
    DIRECTML_LICENCE,
    MICROSOFT,
    ORT_LICENCE,
    ORT_NOTICES,
    ORTPACKS,
    OUR_LICENCE,
    SBOM,
)
from builder.contents.supported_gpus import unit_facts
from builder.finding import Code, Finding
from builder.formats.json_values import to_json, value_at
from builder.formats.manifest import CompiledSource, Manifest, WheelEntry
from builder.formats.text import grouped

PACKED = "ortpacks:packed"
"""Property of a file: ``false`` if the archive leaves the file to its wheel."""

MODIFIED = "ortpacks:modified"
"""Property of a file: ``true`` if its bytes differ from its wheel's."""

SIZE = "ortpacks:size"
"""Property of a file: size in bytes."""

TEXT = "ortpacks:text"
"""Property of a licence: path of its text in the package."""

_ORT_NAME = "onnxruntime"

_MIT = "MIT"

_NAMES = {
    CUDA_LICENCE: "NVIDIA CUDA Toolkit End User License Agreement",
    CUDNN_LICENCE: "License Agreement for NVIDIA Software Development Kits, cuDNN Supplement",
    ORT_NOTICES: "ONNX Runtime third-party notices",
    DIRECTML_LICENCE: "Microsoft DirectML licence terms",
}

SUPPLIERS = {
    NVIDIA: "NVIDIA Corporation",
    ONNXRUNTIME: "Microsoft Corporation",
    MICROSOFT: "Microsoft Corporation",
    ORTPACKS: "ortpacks",
}


@dataclass(frozen=True)
class BomLicence:
    """A licence by its SPDX identifier or, if it has none, by its title."""

    name: str
    spdx: bool
    text: str
    """Path of the licence's text in the package."""


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
    """A package of a vendor, and those of its files that our package has."""

    name: str
    version: str
    purl: str
    supplier: str
    sha256: str | None
    """Hex sha256 of the wheel; ``None`` for what was compiled."""
    licences: tuple[BomLicence, ...]
    files: tuple[BomFile, ...]
    linked: tuple[BomComponent, ...] = ()
    """Components that are compiled into these files."""


@dataclass(frozen=True)
class Bom:
    """The contents of an SBOM, in the order in which they are written."""

    name: str
    version: str
    """Version of ONNX Runtime."""
    supplier: str
    components: tuple[BomComponent, ...]
    files: tuple[BomFile, ...]
    """Files that ortpacks compiled or wrote."""

    @property
    def serial(self) -> UUID:
        """Serial number, a UUID that follows from all other values."""
        return uuid5(NAMESPACE_URL, json.dumps(to_json(self), sort_keys=True))


def describe_bom(
    plan: BuildPlan,
    name: str,
    members: Sequence[Member],
    wheels: Sequence[WheelEntry],
    lock: Lock,
) -> Bom:
    """Return the SBOM of a plan's package called ``name``.

    ``members`` are all its files except SBOM and manifest, ``wheels`` their wheels, ``lock`` the pins.
    """
    ordered = sorted(members, key=lambda member: member.path)
    compiled = _source_purl(plan, lock)
    by_purl = grouped((origin_of(one.source, one.vendor, compiled), one) for one in ordered)
    ours = by_purl.pop("", [])
    pinned = {origin_of(wheel.source, "", compiled): wheel.sha256 for wheel in wheels}
    return Bom(
        name=name,
        version=plan.ort_version,
        supplier=SUPPLIERS[ORTPACKS],
        components=tuple(
            _component(key, found, pinned.get(key), plan, lock) for key, found in sorted(by_purl.items())
        ),
        files=tuple(map(_file, ours)),
    )


def source_entry(plan: BuildPlan, lock: Lock) -> CompiledSource | None:
    """Return the manifest's entry on the source that a plan compiles; ``None`` if it compiles nothing."""
    if plan.origin is not Origin.SOURCE:
        return None
    units = planned_units(plan)
    return CompiledSource(_source_purl(plan, lock), tuple(map(unit_facts, units if units[1:] else ())))


def _source_purl(plan: BuildPlan, lock: Lock) -> str:
    """Return the purl of the source that a plan compiles; a release's own is the project's tag."""
    item = plan.on.source.item if plan.origin is Origin.SOURCE else None
    if item is None or item.is_release(plan.ort_version):
        return github_purl(ORT_REPOSITORY, f"v{plan.ort_version}")
    url, _, ref = item.spec.rpartition("@")
    pin = lock.pins.get(item.key)
    commit = pin.revision if pin else None
    if item.kind is not InputKind.GIT or item.is_here:
        named = PackageURL.from_string(_origin(item)[0])
        return named._replace(version=commit or named.version).to_string()
    if on_github := re.fullmatch(r"https://github\.com/([^/]+/[^/]+?)(?:\.git)?", url):
        return github_purl(on_github[1], commit or ref)
    where = {"vcs_url": f"git+{url}@{commit or ref}"}
    return PackageURL("generic", None, PurePosixPath(url).stem, commit or ref, where).to_string()


def compiled_purl(manifest: Manifest) -> str:
    """Return the purl of the source that a package was compiled from; an older one does not name it."""
    source = manifest.onnxruntime.source
    return source.purl if source else github_purl(ORT_REPOSITORY, f"v{manifest.onnxruntime.version}")


def supplier_of(purl: str, vendor: str) -> str:
    """Return who made a vendor's files: of ONNX Runtime that is not Microsoft's, the owner of the source."""
    origin = PackageURL.from_string(purl) if vendor == ONNXRUNTIME else None
    is_fork = origin and origin.type != "pypi" and f"{origin.namespace}/{origin.name}" != ORT_REPOSITORY
    return (origin.namespace or origin.name) if origin and is_fork else SUPPLIERS.get(vendor, vendor)


def origin_of(source: str, vendor: str, compiled: str) -> str:
    """Return the purl of a file's origin by ``source`` and ``vendor`` of its entry; empty for our own files.

    ``compiled`` is the purl of the source of ONNX Runtime that was compiled.
    """
    kind, _, spec = source.partition(":")
    if kind == "wheel":
        return pypi_purl(spec)
    return compiled if vendor == ONNXRUNTIME else ""


def _component(
    key: str,
    members: Sequence[Member],
    sha256: str | None,
    plan: BuildPlan,
    lock: Lock,
) -> BomComponent:
    first = members[0]
    name, _, version = first.source.partition(":")[2].partition("@")[0].partition("==")
    built = first.source == BUILT
    return BomComponent(
        name=_ORT_NAME if built else name,
        version=plan.ort_version if built else version,
        purl=key,
        supplier=supplier_of(key, first.vendor),
        sha256=sha256,
        licences=tuple(_licence(path) for path in sorted({member.licence for member in members})),
        files=tuple(map(_file, members)),
        linked=_linked(plan, lock) if built else (),
    )


def _linked(plan: BuildPlan, lock: Lock) -> tuple[BomComponent, ...]:
    """Return what ONNX Runtime's libraries are compiled with: statically linked sources, and headers."""
    base, toolkit = plan.on, plan.on.toolkit
    purls = {archive_purl(one.url): "" for one in archives(base, lock)}
    items = [one.item for one in base.dependencies.values() if one.item]
    if isinstance(toolkit, UnpackedToolkit | WheelToolkit):
        items += [one for role, one in toolkit.wheels.items() if role == "cccl"]
    purls |= dict(map(_origin, items))
    parsed = ((PackageURL.from_string(purl), purl, supplier) for purl, supplier in sorted(purls.items()))
    return tuple(
        BomComponent(
            name=one.name,
            version=one.version or "",
            purl=purl,
            supplier=supplier or one.namespace or one.name,  # an archive's: the owner of its repository
            sha256=None,
            licences=(_licence(ORT_NOTICES),),
            files=(),
        )
        for one, purl, supplier in parsed
    )


def _origin(item: Input) -> tuple[str, str]:
    """Return the purl of a dependency's source, and its supplier if the purl does not name it."""
    if item.kind is InputKind.WHEEL:
        return pypi_purl(item.spec), SUPPLIERS[NVIDIA] if item.spec.startswith("nvidia-") else ""
    if item.kind is InputKind.DEBIAN:
        return debian_purl(item.spec), "Debian"
    if item.kind is InputKind.URL:
        return archive_purl(item.spec), ""
    return local_purl(item), ""


def _file(member: Member) -> BomFile:
    return BomFile(
        path=member.path,
        size=member.size,
        sha256=member.sha256,
        packed=member.packed,
        modified=member.modified,
        licence=_licence(member.licence),
    )


def _licence(path: str) -> BomLicence:
    spdx = path in (ORT_LICENCE, OUR_LICENCE)
    return BomLicence(name=_MIT if spdx else _NAMES.get(path, path), spdx=spdx, text=path)


_Component = Mapping[str, object]


def check_sbom(manifest: Manifest, document: bytes, problems: Sequence[str]) -> Iterator[Finding]:
    """Yield B014 for each problem of an invalid SBOM, else B015 for each difference from the manifest.

    ``problems`` are those that ``io.cyclonedx`` found in the document.
    """
    yield from (Finding(Code.B014, SBOM, problem) for problem in problems)
    if problems:
        return
    bom = cast("_Component", json.loads(document))
    subject = str(value_at(bom, "metadata.component.name") or "nothing")
    if subject != manifest.name:
        yield Finding(Code.B015, SBOM, "it is of another package", wanted=manifest.name, got=subject)
    yield from _compare(_manifest_lines(manifest), grouped(_files(bom, "")))


def _compare(claimed: Mapping[str, str], listed: Mapping[str, list[str]]) -> Iterator[Finding]:
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


def _manifest_lines(manifest: Manifest) -> dict[str, str]:
    """Return a line for each file of the manifest, by path; an SBOM does not list itself."""
    return {
        entry.path: _line(
            entry.sha256,
            origin_of(entry.source, entry.vendor, compiled_purl(manifest)),
            packed=entry.packed,
            modified=entry.modified,
        )
        for entry in manifest.files
        if entry.path != SBOM
    }


def _files(parent: _Component, purl: str) -> Iterator[tuple[str, str]]:
    """Yield path and line of every file below a component, at any depth; ``purl`` is the component's."""
    for component in cast("Sequence[_Component]", parent.get("components", ())):
        if component["type"] == "file":
            properties = _properties(component)
            modified, packed = properties.get(MODIFIED) == "true", properties.get(PACKED) != "false"
            yield str(component["name"]), _line(_sha256(component), purl, packed=packed, modified=modified)
        yield from _files(component, str(component.get("purl", purl)))


def _line(sha256: str, purl: str, *, packed: bool, modified: bool) -> str:
    words = [f"sha256 {sha256}", f"from {purl}" if purl else "our own"]
    words += ["modified"] if modified else []
    words += [] if packed else ["not packed"]
    return ", ".join(words)


def _properties(component: _Component) -> dict[str, str]:
    properties = cast("Sequence[Mapping[str, str]]", component.get("properties", ()))
    return {entry.get("name", ""): entry.get("value", "") for entry in properties}


def _sha256(component: _Component) -> str:
    hashes = cast("Sequence[Mapping[str, str]]", component.get("hashes", ()))
    return next((entry["content"] for entry in hashes if entry["alg"] == "SHA-256"), "none")


_REVISION = re.compile(
    r"https://(?P<host>[^/]+)/(?P<owner>[^/]+)/(?P<name>[^/]+)(?:/-)?/archive/(?:refs/tags/)?"
    r"(?P<revision>[^/]+?)(?:/[^/]+)?\.(?:zip|tar\.gz)"
)

_DEB = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_(?P<arch>[^_]+)\.deb")

_SOURCE = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)\.orig(?:-[A-Za-z0-9-]+)?\.tar\.[a-z0-9]+")


def pypi_purl(spec: str) -> str:
    """Return a wheel's purl from ``name==version`` or ``name==version@platform``; purls have no platform."""
    name, _, version = spec.partition("@")[0].partition("==")
    return PackageURL("pypi", None, name, version).to_string()


def github_purl(repository: str, version: str) -> str:
    """Return the purl of a repository ``owner/name`` at a tag or commit."""
    owner, _, name = repository.partition("/")
    return PackageURL("github", owner, name, version).to_string()


def archive_purl(url: str) -> str:
    """Return the purl of the archive that GitHub or GitLab makes of a tag or commit, by its address.

    Any other archive gets a purl of type ``generic``.
    """
    named = {"download_url": url}
    match = _REVISION.fullmatch(url)
    if match is None:
        return PackageURL("generic", None, PurePosixPath(url).name, None, named).to_string()
    if match["host"] == "github.com":
        return github_purl(f"{match['owner']}/{match['name']}", match["revision"])
    return PackageURL("generic", match["owner"], match["name"], match["revision"], named).to_string()


def local_purl(item: Input) -> str:
    """Return the purl of what is on the machine that built, by its name without the folders above it."""
    name, _, ref = item.public.rpartition("@") if item.kind is InputKind.GIT else (item.public, "", "")
    return PackageURL("generic", None, name, ref or None).to_string()


def image_purl(spec: str) -> str:
    """Return an image's purl from ``owner/name:tag`` or ``owner/name@sha256:…``."""
    owner, _, image = spec.rpartition("/")
    name, _, version = image.partition("@" if "@" in image else ":")
    return PackageURL("docker", owner, name, version).to_string()


def deb_purl(name: str, version: str, arch: str) -> str:
    """Return the purl of a binary package of Debian; ``arch`` is ``source`` for its upstream source."""
    return PackageURL("deb", "debian", name, version, {"arch": arch}).to_string()


def debian_purl(path: str) -> str:
    """Return the purl of a file of Debian's archive by its path: a binary package or an upstream source.

    Other files get a purl of type ``generic``.
    """
    file = PurePosixPath(path).name
    if binary := _DEB.fullmatch(file):
        return deb_purl(binary["name"], binary["version"], binary["arch"])
    if source := _SOURCE.fullmatch(file):
        return deb_purl(source["name"], source["version"], "source")
    return PackageURL("generic", None, file).to_string()
