"""render: the Dockerfile and the runtime image's Dockerfile of a plan, and the content of its context.

The functions return text and read no disk. The templates compute nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from jinja2 import BaseLoader, Environment, StrictUndefined

from builder.errors import ConfigError
from builder.formats.package_names import Host, Profile
from builder.gpu.architectures import Arch
from builder.onnxruntime.architecture_list import cmake_list
from builder.onnxruntime.profiles import Option, build_targets, options
from builder.onnxruntime.toolchain import Targets, divide
from builder.onnxruntime.units import narrowed, shared_ptx, without_device_code
from builder.project.build_plan import BuildPlan, Rendered
from builder.project.inputs import (
    SELFTEST_CLASSIFIER,
    SELFTEST_MODEL,
    SELFTEST_TRANSFORMER,
    DebianPackage,
    Input,
    Lock,
)
from builder.project.variants import AssembledBase, NvidiaBase, Origin

LINK_ROLES = ("cudart", "cublas", "cufft", "curand", "cudnn")
"""The wheels whose libraries the provider links against."""

_PACKAGE_DIRECTORY = {"cudart": "cuda_runtime"}
"""The folder in NVIDIA's wheel where it differs from the role."""

_CONTEXT_NAME = {"cudart": "cudart-headers", "cudnn_frontend": "cudnn-frontend"}
"""The context names of toolchain wheels whose role is also a bundled library's, or no valid name."""

_COMPILE_WHEELS = frozenset({"cutlass", "cudnn_frontend", "ptxas"})

_COMPILE_DEBS = frozenset({"mp11", "gsl", "safeint"})
"""The roles that only the source of ORT needs; the others make toolchain and checking tools."""

_CHECK_DEBS = frozenset({"nvcc", "ort_headers"})
"""The roles that the tools which check packages are made of, on every base: cuobjdump, and the C API."""

_INTERFACES = (
    ("mp11", "boost_mp11", "Boost::mp11"),
    ("gsl", "GSL", "Microsoft.GSL::GSL"),
    ("cudnn_frontend", "cudnn_frontend", ""),
)
"""Header-only dependencies: folder, CMake target, and the alias that ORT asks for."""


def template_environment(loader: BaseLoader, *, html: bool = False) -> Environment:
    """The environment of every template: an unknown name is an error, and HTML is escaped."""
    return Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
        autoescape=html,  # noqa: S701 - Dockerfiles and Markdown are not HTML
    )


def render(
    plan: BuildPlan,
    lock: Lock,
    loader: BaseLoader,
    *,
    system: tuple[DebianPackage, ...] = (),
) -> Rendered:
    """Both Dockerfiles of a plan; ``system`` are the packages of the root file system that compiles.

    Raises ``ConfigError`` naming every input that the lock lacks.
    """
    _require_pins(plan, lock)
    environment = template_environment(loader)
    view = _view(plan, _toolchain_key(plan, lock), lock)
    return Rendered(
        dockerfile=_squeeze(environment.get_template("variant.Dockerfile.j2").render(view)),
        runtime_dockerfile=_squeeze(environment.get_template("runtime.Dockerfile.j2").render(view)),
        contexts=_contexts(plan),
        debs=_debs(plan),
        sources=_sources(plan),
        network=plan.base == "nvidia",
        toolchain_key=str(view["toolchain_key"]),
        system=system,
    )


def _require_pins(plan: BuildPlan, lock: Lock) -> None:
    bundled = [*plan.project.cuda.libraries.values(), plan.ort_wheel]
    inputs = [*_toolchain_inputs(plan), *bundled, SELFTEST_MODEL, SELFTEST_CLASSIFIER, SELFTEST_TRANSFORMER]
    if plan.base == "nvidia":
        inputs.append(plan.project.bases.nvidia.runtime)
    missing = sorted({item.key for item in inputs} - lock.pins.keys())
    if missing:
        raise ConfigError(
            [f"inputs.lock has no entry {key!r}. Run ./run lock and commit the file." for key in missing]
        )


def _squeeze(text: str) -> str:
    """The text with at most one blank line in a row, since skipped template blocks leave some."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def _view(plan: BuildPlan, key: str, lock: Lock) -> dict[str, object]:
    profile = plan.profile.value if plan.profile else "official"
    common: dict[str, object] = {
        "base": plan.base,
        "variant": plan.variant.name,
        "title": _title(plan),
        "compiles": plan.origin is Origin.SOURCE,
        "profile": profile,
        "ort_version": plan.ort_version,
        "cudnn": plan.project.cudnn.version,
        "options": _options(plan),
        "targets": build_targets(plan.host),
        "outputs": _outputs(plan),
        "compiles_host": plan.host is Host.SOURCE,
        "architectures": len(plan.variant.sm),
        "patches": [_base_name(patch) for patch in plan.patches],
        "link_libraries": [
            (role, _lib_context(role), f"nvidia/{_PACKAGE_DIRECTORY.get(role, role)}/lib")
            for role in LINK_ROLES
        ],
        "debs": {role: _base_name(deb.spec) for role, deb in plan.project.bases.assembled.debs.items()},
        "toolchain_key": key,
        "tree": f"ortpacks-{plan.variant.name}-{profile}-{plan.host.value}-{key}",
    }
    bases = plan.project.bases
    special = (
        _assembled_view(bases.assembled, plan)
        if plan.base == "assembled"
        else _nvidia_view(bases.nvidia, lock, plan)
    )
    return common | special


def _title(plan: BuildPlan) -> str:
    names = " ".join(f"sm_{arch}" for arch in plan.variant.sm)
    how = f"compiled, profile {plan.profile.value}" if plan.profile else "from the official wheel"
    return f"{plan.variant.name} ({names}): ORT {plan.ort_version} {how}, base {plan.base}"


def _options(plan: BuildPlan) -> tuple[Option, ...]:
    if plan.profile is None:
        return ()
    return options(plan.profile, plan.ort_version, plan.variant.sm, cpuinfo=plan.base == "nvidia")


def _outputs(plan: BuildPlan) -> tuple[str, ...]:
    provider = ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so")
    return provider if plan.host is Host.WHEEL else (*provider, f"libonnxruntime.so.{plan.ort_version}")


def _assembled_view(base: AssembledBase, plan: BuildPlan) -> dict[str, object]:
    return {
        "suite": base.suite,
        "nvcc": base.nvcc,
        "tarballs": [(name, _base_name(item.spec)) for name, item in _tarballs(base)],
        "interfaces": _INTERFACES,
        "dependencies": _dependencies(base),
        **_targets(divide(plan.variant.sm, base.nvcc, base.ptxas), plan),
    }


def _targets(targets: Targets, plan: BuildPlan) -> dict[str, object]:
    """The values for CMake, Ninja's statements and the stand-in for fatbinary."""
    version = plan.ort_version
    assembled = ":".join(str(arch) for arch in targets.assembled)
    ptx = () if targets.ptx is None else (f"{targets.ptx}-virtual",)
    return {
        "cuda_architectures": ";".join(filter(None, (cmake_list(targets.compiled), *ptx))),
        "architectures_reason": f"SASS; the PTX becomes SASS for {assembled}" if ptx else "SASS only",
        "fatbin_options": ("--raw", *((f"--assemble={assembled}",) if ptx else ())),
        "parts": list(_parts(targets, plan)),
        "plain_units": without_device_code(version) if plan.profile is Profile.FULL else (),
    }


def _parts(targets: Targets, plan: BuildPlan) -> Iterator[tuple[str, list[str]]]:
    """The path prefixes of sources and the codes of these units (``builder/inside/drive.py``)."""
    version, sm = plan.ort_version, plan.variant.sm
    for launch, part in narrowed(sm, version) if plan.profile is Profile.FULL else ():
        yield launch.path, _codes(part, targets, shared_ptx(sorted(part), version, launch))
    shared = shared_ptx(targets.compiled, version)
    if shared:
        yield "", _codes(sm, targets, shared)


def _codes(part: Collection[Arch], targets: Targets, shared: Mapping[Arch, Arch]) -> list[str]:
    """The codes that nvcc compiles for part of a set: PTX where the newer ptxas assembles it."""
    kept = [arch for arch in targets.compiled if arch in part]
    sass = [f"sm_{arch}:compute_{shared[arch]}" if arch in shared else f"sm_{arch}" for arch in kept]
    return [*sass, *([f"compute_{targets.ptx}"] if set(targets.assembled) & set(part) else [])]


def _nvidia_view(base: NvidiaBase, lock: Lock, plan: BuildPlan) -> dict[str, object]:
    url, _, tag = base.source.spec.rpartition("@")
    return {
        "image": base.image.spec,
        "image_reference": _reference(base.image, lock),
        "runtime_image": _reference(base.runtime, lock),
        "packages": base.packages,
        "git_source": f"{url}.git#{lock.pins[base.source.key].revision or tag}",
        **_targets(Targets(compiled=plan.variant.sm, assembled=(), ptx=None), plan),
    }


def _reference(image: Input, lock: Lock) -> str:
    """The image by its digest, or by its tag where ``inputs.lock`` has no digest."""
    digest = lock.pins[image.key].revision
    return f"{image.spec}@{digest}" if digest else image.spec


def _dependencies(base: AssembledBase) -> list[tuple[str, str]]:
    """The FetchContent names with their folders below /src, in order of name."""
    unpacked = {name: name for name in base.sources}
    headers = {"cudnn_frontend": "cudnn_frontend", "cutlass": "cutlass", "gsl": "gsl", "mp11": "mp11"}
    absent = {"safeint": "nothing", "utf8_range": "nothing"}
    return sorted((name.upper(), folder) for name, folder in (unpacked | headers | absent).items())


def _tarballs(base: AssembledBase) -> list[tuple[str, Input]]:
    return [("onnxruntime", base.source), *sorted(base.sources.items())]


def _base_name(path: str) -> str:
    return PurePosixPath(path).name


def _by_name(inputs: Mapping[str, Input]) -> list[Input]:
    return [inputs[name] for name in sorted(inputs)]


def _contexts(plan: BuildPlan) -> dict[str, Input]:
    """The named contexts that the plan's stages read."""
    project = plan.project
    libraries = {role: wheel for role, wheel in project.cuda.libraries.items() if role in LINK_ROLES}
    libraries["cudnn"] = project.cudnn.wheel
    linked = {_lib_context(role): wheel for role, wheel in libraries.items()}
    if plan.base == "nvidia":
        named = {"cudnn": project.cudnn.wheel, "cmake": project.bases.nvidia.wheels["cmake"]}
        return named | (linked if plan.origin is Origin.SOURCE else {})
    unread = frozenset() if plan.origin is Origin.SOURCE else _COMPILE_WHEELS
    wheels = project.bases.assembled.wheels.items()
    toolchain = {_CONTEXT_NAME.get(role, role): wheel for role, wheel in wheels if role not in unread}
    return toolchain | libraries | (linked if plan.origin is Origin.SOURCE else {})


def _lib_context(role: str) -> str:
    """The name of the context that the linker's libraries of a wheel are read from.

    The wheel's headers are read under the role's own name. BuildKit keeps one copy of a context by its name,
    with the paths that a stage reads: two stages under one name would each send their paths anew.
    """
    return f"{role}-lib"


def _debs(plan: BuildPlan) -> tuple[Input, ...]:
    compiles = plan.base == "assembled" and plan.origin is Origin.SOURCE
    read = _CHECK_DEBS | (_COMPILE_DEBS if compiles else set())
    debs = plan.project.bases.assembled.debs
    return tuple(_by_name({role: deb for role, deb in debs.items() if role in read}))


def _sources(plan: BuildPlan) -> tuple[Input, ...]:
    base = plan.project.bases.assembled
    if plan.base != "assembled" or plan.origin is not Origin.SOURCE:
        return ()
    return (base.source, *_by_name(base.sources))


def _toolchain_inputs(plan: BuildPlan) -> list[Input]:
    """The inputs of the compiler and of ONNX Runtime's source."""
    nvidia = plan.project.bases.nvidia
    common = [*_contexts(plan).values(), *_debs(plan)]
    if plan.base == "nvidia":
        return [*common, nvidia.image, nvidia.source]
    return [*common, *_sources(plan)]


def _toolchain_key(plan: BuildPlan, lock: Lock) -> str:
    """Eight hex digits over every toolchain input's pin.

    They name the Ninja tree and the compiler cache. The build container detects another root file system by
    its bytes.
    """
    base = plan.project.bases.assembled if plan.base == "assembled" else plan.project.bases.nvidia
    pins = {f"{item.key} {lock.pins[item.key]}" for item in _toolchain_inputs(plan)}
    return hashlib.sha256("\n".join([plan.base, *base.packages, *sorted(pins)]).encode()).hexdigest()[:8]
