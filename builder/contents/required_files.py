"""This module lists the files that a package must hold: source, licence, and why each is needed.

No pattern is searched: the gathering step looks for exactly these files, and the error for a missing file
names what needs it. Sources of the lists: ``readelf -d`` of the official provider and of NVIDIA's wheels, and
cuDNN's documentation for the libraries that it opens at run time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from builder.binary.library_names import BRIDGE, HOST, NVIDIA, ONNXRUNTIME, TENSORRT, family_of
from builder.config.build_plan import BuildPlan
from builder.config.inputs import Input
from builder.config.variants import Origin
from builder.errors import ValidationError
from builder.formats.package_names import (
    CUDA,
    DIRECTML,
    HOSTS,
    LIB,
    LINUX,
    LINUX_ARM64,
    MACOS,
    PROVIDER_LIBRARIES,
    WINDOWS,
    Host,
)

CUDA_LICENCE = "licenses/nvidia-cuda.txt"

CUDNN_LICENCE = "licenses/nvidia-cudnn.txt"

ORT_LICENCE = "licenses/onnxruntime.txt"

ORT_NOTICES = "licenses/onnxruntime-third-party.txt"

DIRECTML_LICENCE = "licenses/directml.txt"
"""Path of our text on where Microsoft's terms for ``DirectML.dll`` are, which its wheel does not contain."""

OUR_LICENCE = "LICENSE"

NOTICE = "NOTICE"

SBOM = "sbom.cdx.json"

PLUGIN_VERSION = "version.json"
"""The plug-in's own version, as ONNX Runtime's archives of plug-ins have it."""

ORTPACKS = "ortpacks"
"""Vendor of the files that ortpacks writes."""

MICROSOFT = "microsoft"
"""Vendor of ``DirectML.dll``."""

_ALWAYS = (OUR_LICENCE, NOTICE, ORT_LICENCE, ORT_NOTICES)

_PLACES: Mapping[str, Mapping[str, Sequence[str]]] = json.loads(
    files("builder.contents").joinpath("required_files.json").read_text(encoding="utf-8")
)
"""Paths of libraries in NVIDIA's wheels by system and CUDA's major version, then by role.

``{cuda}`` is CUDA's version, ``{digits}`` the same without its dot. ONNX Runtime for Windows uses no cuRAND.

Source: the wheels of CUDA 12.9.1, 13.0 and cuDNN 9.10.2, 9.16.0.
"""

LINK_ROLES = ("cudart", "cublas", "cufft", "curand", "cudnn")
"""Roles whose first library the CUDA provider links or opens.

The first library uses a role's other libraries.
"""

_OF_TENSORRT = re.compile(r"lib(?:nvinfer|nvinfer_plugin|nvonnxparser)\.so\.\d+")
"""Libraries of TensorRT that the official TensorRT provider needs.

Source: its NEEDED entries in 1.21.0 and 1.23.2, by ``readelf``; only 1.21.0 needs the plugins.
"""

_TERMS = "the terms of redistribution ask for it"

DIRECTML_LIBRARY = "DirectML.dll"

_CURAND = "CUDA::curand"
"""CMake's name of cuRAND, which no plug-in links so far."""

_ON_LINUX = (
    (HOST, "libonnxruntime.so.{version}", "every program that uses the package"),
    (BRIDGE, BRIDGE, f"{HOST} opens it"),
)

_REPACKED: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    LINUX: _ON_LINUX,
    LINUX_ARM64: _ON_LINUX,
    WINDOWS: (
        (HOSTS[WINDOWS], HOSTS[WINDOWS], "every program that uses the package"),
        ("onnxruntime_providers_shared.dll",) * 2 + (f"{HOSTS[WINDOWS]} opens it",),
    ),
    MACOS: ((HOSTS[MACOS], "libonnxruntime.{version}.dylib", "every program that uses the package"),),
}
"""Name in the package, name in the wheel's ``onnxruntime/capi``, and what needs it, by platform."""


@dataclass(frozen=True)
class RequiredFile:
    """One file that a package must hold."""

    path: str
    source: Input | None
    """The file's wheel; ``None`` for a file that the compile stage made."""
    places: tuple[str, ...]
    """Possible paths in the wheel's tree or the artifact; the first that exists is taken."""
    licence: str
    vendor: str
    needed_by: str


def licences(provider: str) -> tuple[str, ...]:
    """Return the paths of the licence texts that every package for this execution provider carries."""
    theirs = {CUDA: (CUDA_LICENCE, CUDNN_LICENCE), DIRECTML: (DIRECTML_LICENCE,)}
    return (*_ALWAYS, *theirs.get(provider, ()))


def libraries(provider: str, platform: str) -> tuple[str, ...]:
    """Return the file names of the libraries of a package that is a repacked wheel without CUDA."""
    own = tuple(name for name, _, _ in _REPACKED[platform])
    return (*own, DIRECTML_LIBRARY) if provider == DIRECTML else own


def vendor_of(name: str) -> str:
    """Return the vendor of a library by its file name; empty for a library that no package holds."""
    family = family_of(name)
    return family.vendor if family else ""


def is_users(library: str, needed: str) -> bool:
    """Return whether the user installs ``needed``: a TensorRT library that the TensorRT provider needs."""
    return library == TENSORRT and _OF_TENSORRT.fullmatch(needed) is not None


def required_files(plan: BuildPlan) -> tuple[RequiredFile, ...]:
    """Return every file of the plan's package except our own texts, sorted by path.

    Raises ``ValidationError`` with the keys of ``variants.yaml`` that exclude each other.
    """
    files = [*_libraries(plan), *_ort_licences(plan)]
    if plan.variant.provider == CUDA:
        files += [*_nvidia(plan), *_nvidia_licences(plan)]
    return tuple(sorted(files, key=lambda file: file.path))


def _libraries(plan: BuildPlan) -> Iterator[RequiredFile]:
    """Yield the libraries of ONNX Runtime, and Microsoft's own that it loads."""
    provider, platform = plan.variant.provider, plan.variant.platform
    compiled, host_compiled = plan.origin is Origin.SOURCE, _compiles_host(plan)
    for name, pattern, needed_by in () if plan.variant.is_plugin else _REPACKED[platform]:
        places = (pattern.format(version=plan.ort_version), name)
        yield _ort_file(plan, name, places, needed_by, compiled=host_compiled if name == HOST else compiled)
    if provider == DIRECTML:
        yield RequiredFile(
            path=f"{LIB}{DIRECTML_LIBRARY}",
            source=plan.ort_wheel,
            places=(f"onnxruntime/capi/{DIRECTML_LIBRARY}",),
            licence=DIRECTML_LICENCE,
            vendor=MICROSOFT,
            needed_by=f"{HOSTS[WINDOWS]} loads it",
        )
    if provider == CUDA:
        name, opened = PROVIDER_LIBRARIES[platform], f"{HOSTS[platform]} opens it"
        user = "stock hosts register it" if plan.variant.is_plugin else opened
        yield _ort_file(plan, name, (name,), user, compiled=compiled)
        if plan.project.onnxruntime.tensorrt and platform != WINDOWS and not plan.variant.is_plugin:
            if host_compiled:  # such a host library does not open the TensorRT provider
                raise ValidationError(
                    "variants.yaml: onnxruntime.tensorrt: true adds the official TensorRT provider, and the "
                    "host library of onnxruntime.host: source (--host source) is compiled without TensorRT. "
                    "Use host: wheel, or tensorrt: false."
                )
            yield _ort_file(plan, TENSORRT, (TENSORRT,), opened, compiled=False)


def _compiles_host(plan: BuildPlan) -> bool:
    """Return whether all of ONNX Runtime is compiled, so that nothing of the official wheel is needed."""
    return plan.origin is Origin.SOURCE and plan.host is not Host.WHEEL


def _ort_file(
    plan: BuildPlan, name: str, names: tuple[str, ...], needed_by: str, *, compiled: bool
) -> RequiredFile:
    folder = "" if compiled else "onnxruntime/capi/"
    return RequiredFile(
        path=f"{LIB}{name}",
        source=None if compiled else plan.ort_wheel,
        places=tuple(f"{folder}{candidate}" for candidate in dict.fromkeys(names)),
        licence=ORT_LICENCE,
        vendor=ONNXRUNTIME,
        needed_by=needed_by,
    )


def _nvidia(plan: BuildPlan) -> Iterator[RequiredFile]:
    platform, cuda = plan.variant.platform, plan.project.cuda.version
    by_role = _places(platform, cuda)
    (graph,) = (_name(place) for place in by_role["cudnn"] if "_graph" in place)
    for role, patterns in by_role.items():
        if role == "curand" and plan.variant.is_plugin and _CURAND not in plan.rules.linked:
            continue
        places = [pattern.format(cuda=cuda, digits=cuda.replace(".", "")) for pattern in patterns]
        first = f"{PROVIDER_LIBRARIES[platform]} needs it" if role in LINK_ROLES else f"{graph} opens it"
        others = f"{_name(places[0])} {_USES.get(role, 'needs it')}"
        for place in places:
            yield RequiredFile(
                path=f"{LIB}{_name(place)}",
                source=_wheel(plan, role),
                places=(place,),
                licence=CUDNN_LICENCE if role == "cudnn" else CUDA_LICENCE,
                vendor=NVIDIA,
                needed_by=first if place == places[0] else others,
            )


_USES = {"nvrtc": "opens it", "cudnn": "opens it, or what it opens"}
"""What a role's first library does with the others, by role."""


def _name(place: str) -> str:
    return place.rpartition("/")[2]


def _places(platform: str, cuda: str) -> Mapping[str, Sequence[str]]:
    places = _PLACES.get(f"{platform.partition('-')[0]}-cuda{cuda.partition('.')[0]}")
    if places is None:
        raise ValidationError(
            f"CUDA {cuda} on {platform}: what NVIDIA's wheels for it hold was never looked up",
            advice="Packages are made with CUDA 12 and 13 on Linux, and with CUDA 12 on Windows.",
        )
    return places


def _nvidia_licences(plan: BuildPlan) -> Iterator[RequiredFile]:
    for path, wheel in ((CUDA_LICENCE, _wheel(plan, "cudart")), (CUDNN_LICENCE, _wheel(plan, "cudnn"))):
        yield RequiredFile(path, wheel, _licence_places(wheel), licence=path, vendor=NVIDIA, needed_by=_TERMS)


def _wheel(plan: BuildPlan, role: str) -> Input:
    return plan.project.cudnn.wheel if role == "cudnn" else plan.project.cuda.libraries[role]


def _ort_licences(plan: BuildPlan) -> Iterator[RequiredFile]:
    compiled = _compiles_host(plan)
    for path, place in ((ORT_LICENCE, "LICENSE"), (ORT_NOTICES, "ThirdPartyNotices.txt")):
        yield RequiredFile(
            path=path,
            source=None if compiled else plan.ort_wheel,
            places=(place if compiled else f"onnxruntime/{place}",),
            licence=path,
            vendor=ONNXRUNTIME,
            needed_by=_TERMS,
        )


def _licence_places(wheel: Input) -> tuple[str, ...]:
    """Return the paths of NVIDIA's licence text: ``licenses/`` or, in older wheels, beside ``METADATA``."""
    name, _, version = wheel.requirement.partition("==")
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    return f"{info}/licenses/License.txt", f"{info}/License.txt"
