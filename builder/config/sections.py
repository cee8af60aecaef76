"""The sections of ``variants.yaml``, each read into its value of ``project.variants``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from builder.config import values
from builder.config.cursor import Cursor
from builder.config.shapes import choice, choices, entries, flag, items, number, one_of, section
from builder.errors import ValidationError
from builder.findings.finding import Severity
from builder.formats.manifest import ModelRule
from builder.formats.package_names import Form, Host, Layout, Profile
from builder.formats.providers import DIRECTML, PLATFORMS, SERVED
from builder.project.inputs import Input
from builder.project.variants import (
    AssembledBase,
    Bases,
    Bundle,
    Cuda,
    Cudnn,
    Limits,
    NvidiaBase,
    OnnxRuntime,
    Origin,
    Oversize,
    Preset,
    Publish,
    Variant,
)

_LARGEST_ASSET = 2**31 - 1
_LARGEST_FLOOR = 10_000_000
_CUDA_ROLES = ("cudart", "cublas", "cufft", "curand", "nvrtc")
_DEB_ROLES = ("nvcc", "mp11", "gsl", "safeint", "ort_headers")
_TOOLCHAIN_ROLES = ("nvcc", "ptxas", "cudart", "cccl", "cusparse", "cudnn_frontend", "cutlass", "cmake")
_FLOORS = ("vram_mib", "cores", "ram_gib")

T = TypeVar("T")


def read_onnxruntime(cursor: Cursor) -> OnnxRuntime:
    """Section ``onnxruntime``."""
    keys = section(cursor, ("version", "origin", "host", "profile"), optional=("tensorrt",))
    return OnnxRuntime(
        version=values.version(keys["version"], "X.Y.Z"),
        origin=choice(keys["origin"], Origin),
        host=choice(keys["host"], Host),
        profile=choice(keys["profile"], Profile),
        tensorrt=flag(keys["tensorrt"]),
    )


def read_cuda(cursor: Cursor) -> Cuda:
    """Section ``cuda``."""
    keys = section(cursor, ("version", "libraries"))
    return Cuda(
        version=values.version(keys["version"], "X.Y"),
        libraries=_by_role(keys["libraries"], _CUDA_ROLES, values.wheel),
    )


def read_cudnn(cursor: Cursor) -> Cudnn:
    """Section ``cudnn``."""
    keys = section(cursor, ("version", "wheel"))
    return Cudnn(version=values.version(keys["version"], "W.X.Y.Z"), wheel=values.wheel(keys["wheel"]))


def read_bases(cursor: Cursor) -> Bases:
    """Section ``bases``."""
    keys = section(cursor, ("nvidia", "assembled"))
    return Bases(nvidia=_nvidia(keys["nvidia"]), assembled=_assembled(keys["assembled"]))


def read_variants(cursor: Cursor) -> Mapping[str, Variant]:
    """Section ``variants``: at least one, by name."""
    found = entries(cursor)
    if cursor.found == "an empty mapping":
        cursor.report(ValidationError, "at least one variant is needed", found="")
    return {name: _variant(name, place) for name, place in found.items()}


def read_providers(cursor: Cursor) -> Mapping[str, Variant]:
    """Section ``providers``, which may be missing."""
    return {name: _provider(name, place) for name, place in entries(cursor).items()}


def read_check(cursor: Cursor) -> Limits:
    """Section ``check``."""
    keys = section(cursor, ("extra_sm", "glibc", "glibcxx"))
    return Limits(
        extra_sm=choice(keys["extra_sm"], Severity),
        glibc=values.version(keys["glibc"], "X.Y"),
        glibcxx=values.version(keys["glibcxx"], "X.Y.Z"),
    )


def read_bundle(cursor: Cursor) -> Bundle:
    """Section ``bundle``."""
    keys = section(cursor, ("layouts", "forms", "preset", "budget", "oversize", "licence"))
    return Bundle(
        layouts=choices(keys["layouts"], Layout),
        forms=choices(keys["forms"], Form),
        preset=choice(keys["preset"], Preset),
        budget=number(keys["budget"], least=1, most=_LARGEST_ASSET),
        oversize=choice(keys["oversize"], Oversize),
        licence=values.file_path(keys["licence"]),
    )


def read_publish(cursor: Cursor) -> Publish:
    """Section ``publish``."""
    keys = section(cursor, ("api", "repository", "tag"))
    return Publish(
        api=values.api(keys["api"]),
        repository=values.repository(keys["repository"]),
        tag=values.tag(keys["tag"]),
    )


def read_models(cursor: Cursor) -> tuple[ModelRule, ...]:
    """Section ``models``: a list in the order in which a client tries it."""
    return tuple(_model(place) for place in items(cursor))


def _nvidia(cursor: Cursor) -> NvidiaBase:
    keys = section(
        cursor,
        ("image", "runtime", "onnxruntime", "source", "packages", "wheels"),
        optional=("patches",),
    )
    return NvidiaBase(
        image=values.image(keys["image"]),
        runtime=values.image(keys["runtime"]),
        source=values.git(keys["source"]),
        ort_version=values.version(keys["onnxruntime"], "X.Y.Z"),
        packages=_distinct(keys["packages"], values.package),
        wheels=_by_role(keys["wheels"], ("cmake",), values.wheel),
        patches=_distinct(keys["patches"], values.file_path),
    )


def _assembled(cursor: Cursor) -> AssembledBase:
    keys = section(
        cursor,
        ("suite", "packages", "nvcc", "onnxruntime", "source", "debs", "sources", "wheels"),
        optional=("patches",),
    )
    return AssembledBase(
        suite=values.suite(keys["suite"]),
        packages=_distinct(keys["packages"], values.package),
        nvcc=values.version(keys["nvcc"], "X.Y"),
        ort_version=values.version(keys["onnxruntime"], "X.Y.Z"),
        source=values.tarball(keys["source"]),
        debs=_by_role(keys["debs"], _DEB_ROLES, values.deb),
        sources=_sources(keys["sources"]),
        wheels=_by_role(keys["wheels"], _TOOLCHAIN_ROLES, values.wheel),
        patches=_distinct(keys["patches"], values.file_path),
    )


def _sources(cursor: Cursor) -> Mapping[str, Input]:
    found = entries(cursor)
    for name, place in found.items():
        values.dependency_name(name, place)
    return {name: values.tarball(place) for name, place in found.items()}


def _variant(name: str, cursor: Cursor) -> Variant:
    values.variant_name(name, cursor)
    keys = section(cursor, ("sm", "generations"), optional=("widen",))
    return Variant(
        name=name,
        sm=tuple(sorted(_distinct(keys["sm"], values.arch))),
        generations=_distinct(keys["generations"], values.generation),
        widen=flag(keys["widen"]),
    )


def _provider(name: str, cursor: Cursor) -> Variant:
    values.provider_name(name, cursor)
    needed = ("platform", "wheel") if name == DIRECTML else ("platform",)
    keys = section(cursor, needed, optional=("wheel",))
    platform = one_of(keys["platform"], SERVED.get(name, PLATFORMS))
    wheel = values.wheel_for(keys["wheel"], platform) if keys["wheel"].node else None
    return Variant(name=name, sm=(), generations=(), provider=name, platform=platform, wheel=wheel)


def _model(cursor: Cursor) -> ModelRule:
    keys = section(cursor, ("model", "device"), optional=_FLOORS)
    floors = {key: number(keys[key], least=0, most=_LARGEST_FLOOR) for key in _FLOORS}
    device = values.device(keys["device"])
    if device == "cpu" and keys["vram_mib"].node is not None:
        keys["vram_mib"].report(ValidationError, "a cpu line has no floor of GPU memory", found="")
    return ModelRule(model=values.model(keys["model"]), device=device, **floors)


def _by_role(cursor: Cursor, roles: Sequence[str], read: Callable[[Cursor], T]) -> Mapping[str, T]:
    return {role: read(place) for role, place in section(cursor, roles).items()}


def _distinct(cursor: Cursor, read: Callable[[Cursor], T | None]) -> tuple[T, ...]:
    found: dict[T, Cursor] = {}
    for place in items(cursor):
        value = read(place)
        if value and value in found:
            place.report(ValidationError, f"stands in {found[value].path} already")
        elif value:
            found[value] = place
    return tuple(found)
