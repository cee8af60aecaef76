"""This module makes the SBOM in a wheel (PEP 770), which lists every file and its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from builder.binary.library_names import NVIDIA, ONNXRUNTIME
from builder.files.digest import Digest
from builder.formats.manifest import FileEntry, Manifest
from builder.package.contents import ORTPACKS
from builder.package.sbom import SUPPLIERS, Bom, BomComponent, BomFile, BomLicence, origin_of, pypi_purl
from builder.project.inputs import Input, Pin
from builder.wheels.distribution import CAPI, LICENCES, OUR_LICENCE, nvidia_wheels

_ORT = "onnxruntime"


def describe_wheel(
    name: str,
    manifest: Manifest,
    official: tuple[Input, Pin],
    digests: Mapping[str, Digest],
    taken: Sequence[FileEntry],
) -> Bom:
    """Return the SBOM of the wheel called ``name``.

    ``official`` is the wheel it is made of; ``digests`` are of all its files except RECORD and the SBOM, by
    path; ``taken`` are the files that come from the package of ``manifest``, all of them ONNX Runtime's.
    """
    info = name.partition("-cp")[0] + ".dist-info/"
    licence = BomLicence("MIT", spdx=True, text=f"{info}licenses/{LICENCES[0]}")
    ours = replace(licence, text=f"{info}licenses/{OUR_LICENCE}")
    from_package = {f"{CAPI}{entry.path.removeprefix('lib/')}": entry for entry in taken}
    upstream: list[BomFile] = []
    made: list[BomFile] = []
    for path, digest in sorted(digests.items()):
        whose = made if path.startswith(info) else upstream
        file = BomFile(path, digest.size, digest.sha256, packed=True, modified=False, licence=licence)
        if path not in from_package:
            whose.append(replace(file, licence=ours) if whose is made else file)
    item, pin = official
    wheel = BomComponent(
        name=item.requirement.partition("==")[0],
        version=manifest.onnxruntime.version,
        purl=pypi_purl(item.requirement),
        supplier=SUPPLIERS[ONNXRUNTIME],
        sha256=pin.sha256,
        licences=(licence,),
        files=tuple(upstream),
    )
    changed = (
        BomFile(path, digests[path].size, digests[path].sha256, packed=True, modified=True, licence=licence)
        for path in from_package
    )
    compiled = [entry for entry in taken if not entry.source.startswith("wheel:")]
    if compiled:
        purl = origin_of(compiled[0].source, ONNXRUNTIME, manifest.onnxruntime.version)
        built = replace(wheel, name=_ORT, purl=purl, sha256=None, files=tuple(changed))
        components = [wheel, built]
    else:
        components = [replace(wheel, files=(*wheel.files, *changed))]
    return Bom(
        name=name,
        version=manifest.onnxruntime.version,
        supplier=SUPPLIERS[ORTPACKS],
        components=(*components, *_required(manifest)),
        files=tuple(made),
    )


def _required(manifest: Manifest) -> tuple[BomComponent, ...]:
    """Return components for NVIDIA's wheels, none of whose files is inside."""
    known = {Input.parse(one.source).requirement: one.sha256 for one in manifest.wheels}
    return tuple(
        BomComponent(
            name=one.partition("==")[0],
            version=one.partition("==")[2],
            purl=pypi_purl(one),
            supplier=SUPPLIERS[NVIDIA],
            sha256=known[one],
            licences=(),
            files=(),
        )
        for one in nvidia_wheels(manifest)
    )
