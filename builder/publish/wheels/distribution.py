"""Contents of a wheel's ``.dist-info``, its file name, and where its provider looks for NVIDIA's libraries.

Sources: "Binary distribution format" and "Core metadata" of packaging.python.org; PEP 639 for licences, PEP
770 for the SBOM, which lists every file and its origin, PEP 600 for ``manylinux``, and auditwheel's table of
it for the versions of GLIBCXX.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import PurePosixPath

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from builder.binary.library_names import BRIDGE, NVIDIA, ONNXRUNTIME, PROVIDER
from builder.config.inputs import OFFICIAL_WHEELS, Input, Pin
from builder.contents.package_manifest import BUILT
from builder.contents.required_files import ORTPACKS
from builder.contents.sbom import (
    SUPPLIERS,
    Bom,
    BomComponent,
    BomFile,
    BomLicence,
    compiled_purl,
    pypi_purl,
    supplier_of,
)
from builder.facts.gpu.compatibility import version_of
from builder.files.digest import Digest
from builder.formats.manifest import FileEntry, Manifest, PluginEntry
from builder.formats.package_names import CUDA, LIB, LINUX

DISTRIBUTION = "ortpacks-onnxruntime-gpu"
"""Name of the distribution.

Its import is ``onnxruntime``, so it cannot be installed beside an official one.
"""

STEM = DISTRIBUTION.replace("-", "_")

CAPI = "onnxruntime/capi/"

DESCRIPTION = "ortpacks.json"
"""File of ``.dist-info`` that names the wheel's package and the GPUs that it runs on."""

LICENCES = ("onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt")
"""Licence texts of the official wheel, by their path in it."""

OUR_LICENCE = "ortpacks/LICENSE"

_NVRTC = "libnvrtc.so."

_GLIBCXX = ((28, "3.4.24"), (31, "3.4.28"), (34, "3.4.29"), (35, "3.4.30"), (39, "3.4.33"))
"""The minor version of glibc in ``manylinux_2_N``, and the newest GLIBCXX that its systems have."""


@dataclass(frozen=True)
class OfficialWheel:
    """An official wheel: its file name, and the text of its METADATA."""

    file: str
    metadata: str

    @property
    def tags(self) -> frozenset[Tag]:
        """Tags in the wheel's name."""
        return parse_wheel_filename(self.file)[3]


PLUGIN_MODULE = "onnxruntime_ep_cuda_ortpacks"
"""The module of a plug-in's wheel, with its library; named as those of ONNX Runtime's own plug-ins."""

PLUGIN_DISTRIBUTION = "onnxruntime-ep-cuda{major}-ortpacks"
"""Name of the distribution of a plug-in for a major version of CUDA."""

STEMS = (f"{STEM}-", *(f"{PLUGIN_DISTRIBUTION.format(major=one).replace('-', '_')}-" for one in (12, 13)))
"""What the names of wheels begin with."""

_MODULE_TEXT = '''"""The plug-in for CUDA of ONNX Runtime that this distribution brings: see its METADATA."""

from pathlib import Path


def get_library_path():
    """Return the path for ``onnxruntime.register_execution_provider_library``."""
    return str(Path(__file__).resolve().parent / "{library}")


def get_ep_names():
    """Return the names of the execution providers that the library makes."""
    return {names}


def get_ep_name():
    """Return the name of its only execution provider."""
    return get_ep_names()[0]
'''


def module_text(plugin: PluginEntry) -> str:
    """Return the text of a plug-in wheel's ``__init__.py``."""
    return _MODULE_TEXT.format(library=PurePosixPath(plugin.library).name, names=json.dumps(plugin.names))


def stem_of(manifest: Manifest) -> str:
    """Return what the names of the package's wheels begin with."""
    return distribution_of(manifest).replace("-", "_")


def distribution_of(manifest: Manifest) -> str:
    """Return the name of the distribution of the package's wheels."""
    major = str(manifest.cuda).partition(".")[0]
    return PLUGIN_DISTRIBUTION.format(major=major) if manifest.plugin else DISTRIBUTION


def folder_of(manifest: Manifest) -> str:
    """Return the folder of the package's wheels in that of all."""
    return f"{manifest.variant}-plugin" if manifest.plugin else manifest.variant


def info_folder(version: str, stem: str) -> str:
    """Return the name of ``.dist-info``."""
    return f"{stem}-{version}.dist-info"


def plugin_tag(manifest: Manifest) -> Tag:
    """Return the tag of a plug-in's wheel, which is for every Python."""
    return Tag("py3", "none", f"manylinux_2_{_least_manylinux(manifest)}_x86_64")


def wheel_name(manifest: Manifest, official: OfficialWheel) -> str:
    """Return the file name of the wheel that is made of ``official`` and the package of ``manifest``."""
    tags = wheel_tags(manifest, official)
    parts = [sorted({getattr(tag, part) for tag in tags}) for part in ("interpreter", "abi", "platform")]
    return "-".join([f"{STEM}-{manifest.onnxruntime.version}", *(".".join(part) for part in parts)]) + ".whl"


def wheel_tags(manifest: Manifest, official: OfficialWheel) -> tuple[Tag, ...]:
    """Return the official wheel's tags, or the tag of a newer system if the package needs newer libraries."""
    least = _least_manylinux(manifest)
    if manifest.provider != CUDA or any(_minor(tag.platform) >= least for tag in official.tags):
        return tuple(sorted(official.tags, key=str))
    official_tag = next(iter(official.tags))
    return (Tag(official_tag.interpreter, official_tag.abi, f"manylinux_2_{least}_x86_64"),)


def _least_manylinux(manifest: Manifest) -> int:
    """Return N of the oldest ``manylinux_2_N`` with the GLIBC and GLIBCXX that the package needs."""
    glibc = version_of(manifest.glibc or "2.17")[1]
    wanted = version_of(manifest.glibcxx or "0")
    compilers = [minor for minor, newest in _GLIBCXX if version_of(newest) >= wanted]
    return max(glibc, compilers[0] if compilers and wanted > version_of("3.4.24") else 0)


def _minor(platform: str) -> int:
    return int(platform.split("_")[2]) if platform.startswith("manylinux_2_") else 0


def nvidia_wheels(manifest: Manifest) -> tuple[str, ...]:
    """Return the NVIDIA wheels of the package's libraries, ``nvidia-cublas-cu12==12.9.1.4``, sorted."""
    theirs = {entry.source for entry in _nvidia_libraries(manifest)}
    return tuple(sorted(Input.parse(source).requirement for source in theirs))


def runpath(manifest: Manifest) -> str:
    """Return the provider's RUNPATH: its own folder, and those of NVIDIA's wheels in ``site-packages``."""
    folders = sorted(
        {str(PurePosixPath(str(library.member)).parent) for library in _nvidia_libraries(manifest)}
    )
    above = ".." if manifest.plugin else "../.."
    return ":".join(["$ORIGIN", *(f"$ORIGIN/{above}/{folder}" for folder in folders)])


def unlinked(manifest: Manifest) -> tuple[str, ...]:
    """Return the libraries that the provider must name besides its own NEEDED: NVRTC, unless it has it.

    cuDNN opens NVRTC and looks for it in ``nvidia/nvrtc/lib``, which is not its folder in NVIDIA's wheel.
    """
    needed = next((file.needed for file in manifest.files if file.path == f"{LIB}{PROVIDER}"), ())
    names = [PurePosixPath(library.path).name for library in _nvidia_libraries(manifest)]
    return tuple(name for name in names if name.startswith(_NVRTC) and name not in needed)


def _nvidia_libraries(manifest: Manifest) -> Iterator[FileEntry]:
    for entry in manifest.files:
        if entry.vendor == NVIDIA and entry.path.startswith(LIB):
            yield entry


def replaced(manifest: Manifest) -> tuple[FileEntry, ...]:
    """Return the package's files that replace the official wheel's: the provider, and a compiled bridge."""
    if manifest.provider != CUDA:
        return ()
    names = {f"{LIB}{PROVIDER}": True, f"{LIB}{BRIDGE}": False}
    return tuple(
        entry
        for entry in manifest.files
        if names.get(entry.path, False) or (entry.path in names and entry.source == BUILT)
    )


def wheel_text(tags: Iterable[Tag]) -> str:
    """Return the text of the file WHEEL."""
    lines = ["Wheel-Version: 1.0", "Generator: ortpacks", "Root-Is-Purelib: false"]
    return "\n".join([*lines, *(f"Tag: {tag}" for tag in tags)]) + "\n"


def metadata_text(manifest: Manifest, official: OfficialWheel, page: str) -> str:
    """Return the text of METADATA, with the official requirements and NVIDIA's wheels.

    ``page`` is the project's home page.
    """
    theirs = HeaderParser().parsestr(official.metadata)
    skipped = ("MacOS", "Windows")
    classifiers = [
        one
        for one in theirs.get_all("Classifier", [])
        if not (one.startswith("License ::") or one.endswith(skipped))
    ]
    more = [
        *(("Classifier", classifier) for classifier in classifiers),
        ("Requires-Python", theirs["Requires-Python"]),
        *(
            ("Requires-Dist", requirement)
            for requirement in requirements(manifest, theirs.get_all("Requires-Dist", []))
        ),
    ]
    return _metadata(manifest, page, _summary(manifest), more, _description(manifest))


def plugin_metadata(manifest: Manifest, plugin: PluginEntry, page: str) -> str:
    """Return the text of METADATA of a plug-in's wheel: it needs NVIDIA's wheels and no ONNX Runtime."""
    summary = f"Plug-in for CUDA of ONNX Runtime: {_summary(manifest).partition('for ')[2]}"
    wheels = [("Requires-Dist", requirement) for requirement in nvidia_wheels(manifest)]
    text = (
        f"Any `onnxruntime` from {plugin.oldest_host} on registers the library of "
        f"`{PLUGIN_MODULE}.get_library_path()`; its provider is `{PLUGIN_MODULE}.get_ep_name()`. Made by "
        f"ortpacks as the package {manifest.name}; this is no release of Microsoft's or NVIDIA's, whose "
        "libraries come from NVIDIA's own wheels."
    )
    return _metadata(manifest, page, summary, [("Requires-Python", ">=3.9"), *wheels], text)


def _metadata(
    manifest: Manifest, page: str, summary: str, more: Iterable[tuple[str, str]], description: str
) -> str:
    name = distribution_of(manifest)
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", name),
        ("Version", manifest.onnxruntime.version),
        ("Summary", summary),
        ("Project-URL", f"Homepage, {page}"),
        ("License-Expression", "MIT"),
        *(("License-File", path) for path in (*LICENCES, OUR_LICENCE)),
        *more,
        ("Description-Content-Type", "text/markdown"),
    ]
    head = "".join(f"{key}: {value}\n" for key, value in fields)
    return f"{head}\n# {name}\n\n{description}\n"


def requirements(manifest: Manifest, official: Iterable[str]) -> tuple[str, ...]:
    """Return the official wheel's requirements without its extras, and NVIDIA's wheels by exact version."""
    theirs = (requirement for requirement in official if "extra" not in str(Requirement(requirement).marker))
    return (*theirs, *nvidia_wheels(manifest))


def _summary(manifest: Manifest) -> str:
    version = manifest.onnxruntime.version
    if manifest.provider != CUDA:
        return f"ONNX Runtime {version} for the CPU, where no wheel of {DISTRIBUTION} for a GPU was chosen"
    runs = [name for name, how in manifest.capabilities.items() if how == "native"]
    return f"ONNX Runtime {version} for NVIDIA GPUs of compute capability {', '.join(runs)}"


def _description(manifest: Manifest) -> str:
    kind = OFFICIAL_WHEELS[manifest.provider]
    made = (
        f"{_summary(manifest)}. Made by ortpacks of Microsoft's {kind} {manifest.onnxruntime.version} and "
        f"the package {manifest.name}; this is no release of Microsoft's or NVIDIA's."
    )
    conflict = (
        f"It is imported as `onnxruntime`: uninstall `{kind}`, and every other distribution with that "
        "import, first."
    )
    whose = "NVIDIA's libraries come from NVIDIA's own wheels, of exactly the versions required here."
    why = (
        "This is the wheel for installers that do not know wheel variants (pip), and for machines whose GPU "
        "no variant serves. Its sessions run on the CPU."
    )
    return "\n\n".join([made, conflict, whose if manifest.provider == CUDA else why])


def description_json(manifest: Manifest, entry: object) -> str:
    """Return the text of ``ortpacks.json``.

    ``entry`` is the package's entry in a release's ``index.json``.
    """
    return json.dumps({"format": 1, "requires": nvidia_wheels(manifest), "package": entry}, indent=2) + "\n"


def is_wheeled(manifest: Manifest) -> bool:
    """Return whether wheels can be made of the package: for Linux on x86-64, for CUDA or the CPU."""
    return manifest.platform == LINUX and manifest.provider in OFFICIAL_WHEELS


_ORT = "onnxruntime"


def describe_wheel(
    name: str,
    manifest: Manifest,
    digests: Mapping[str, Digest],
    taken: Mapping[str, FileEntry],
    official: tuple[Input, Pin] | None,
) -> Bom:
    """Return the SBOM of the wheel called ``name``.

    ``digests`` are of all its files except RECORD and the SBOM, by path; ``taken`` are those that come from
    the package of ``manifest``, all of them ONNX Runtime's. ``official`` is the wheel it is made of; ``None``
    for a plug-in's.
    """
    info = "-".join(name.split("-")[:2]) + ".dist-info/"
    licence = BomLicence("MIT", spdx=True, text=f"{info}licenses/{LICENCES[0]}")
    ours = replace(licence, text=f"{info}licenses/{OUR_LICENCE}")
    changed, made, upstream = list[BomFile](), list[BomFile](), list[BomFile]()
    for path, digest in sorted(digests.items()):
        modified = path in taken
        file = BomFile(path, digest.size, digest.sha256, packed=True, modified=modified, licence=licence)
        if modified:
            changed.append(file)
        elif official is None or path.startswith(info):
            made.append(replace(file, licence=ours))
        else:
            upstream.append(file)
    version, purl = manifest.onnxruntime.version, compiled_purl(manifest)
    maker = supplier_of(purl, ONNXRUNTIME)
    components = [BomComponent(_ORT, version, purl, maker, None, (licence,), tuple(changed))]
    if official:
        item, pin = official
        if all(entry.source.startswith("wheel:") for entry in taken.values()):
            components, upstream = [], [*upstream, *changed]
        wheel = _wheel(item.requirement, ONNXRUNTIME, pin.sha256)
        components.insert(0, replace(wheel, licences=(licence,), files=tuple(upstream)))
    return Bom(
        name=name,
        version=version,
        supplier=SUPPLIERS[ORTPACKS],
        components=(*components, *_required(manifest)),
        files=tuple(made),
    )


def _required(manifest: Manifest) -> tuple[BomComponent, ...]:
    """Return components for NVIDIA's wheels, none of whose files is inside."""
    known = {Input.parse(wheel.source).requirement: wheel.sha256 for wheel in manifest.wheels}
    return tuple(_wheel(one, NVIDIA, known[one]) for one in nvidia_wheels(manifest))


def _wheel(requirement: str, vendor: str, sha256: str) -> BomComponent:
    name, _, version = requirement.partition("==")
    return BomComponent(name, version, pypi_purl(requirement), SUPPLIERS[vendor], sha256, (), ())
