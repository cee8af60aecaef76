"""The step render makes a plan's two Dockerfiles and the list of inputs in their build context.

The functions return text and read no disk, except for the templates. The templates compute nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath

from jinja2 import BaseLoader

from builder.config.build_plan import NO_BASE, BuildPlan, CompilePlan, Rendered, compile_plan
from builder.config.inputs import TRIALS, DebianPackage, Input, InputKind, Lock, Pin
from builder.config.profiles import build_targets, options_of
from builder.config.repairs import dumps
from builder.config.variants import (
    BaseToolkit,
    ImageSystem,
    ImageToolkit,
    Origin,
    RedistToolkit,
    SuiteSystem,
    System,
    UnpackedToolkit,
    WheelToolkit,
    archives,
    source_problems,
)
from builder.contents.required_files import LINK_ROLES, required_files
from builder.errors import ConfigError
from builder.facts.ort.source import HEADERS, mirrored
from builder.facts.ort.units import cmake_list
from builder.formats.package_names import Host, Profile
from builder.io.templates import template_environment

_PACKAGE_DIRECTORY = {"cudart": "cuda_runtime", "nvrtc": "cuda_nvrtc"}
"""The folder in NVIDIA's wheel for CUDA 12, for roles whose name differs from it."""

_CONTEXT_NAME = {"cudart": "cudart-headers"}
"""Context names of toolchain wheels whose role is also a bundled library's."""

_DRIVER = "CUDA::cuda_driver"
"""CMake's name of the driver's library. Sources that link it have a front end of cuDNN that reads nvrtc.h."""

_NO_NEED = "nothing"
"""The empty folder of dependencies that a base leaves out."""


def render(
    plan: BuildPlan,
    lock: Lock,
    loader: BaseLoader,
    *,
    system: tuple[DebianPackage, ...] = (),
) -> Rendered:
    """Return both Dockerfiles of a plan; ``system`` are the packages of the root file system that compiles.

    Raises ``ConfigError`` naming every input that the lock lacks.
    """
    _require_pins(plan, lock)
    environment = template_environment(loader)
    division = compile_plan(plan)
    view = _view(plan, division, _toolchain_key(plan, lock), lock)
    return Rendered(
        dockerfile=_squeeze(environment.get_template("variant.Dockerfile.j2").render(view)),
        runtime_dockerfile=_squeeze(environment.get_template("runtime.Dockerfile.j2").render(view)),
        contexts=_contexts(plan),
        debs=_debs(plan),
        sources=_sources(plan, lock),
        network=isinstance(plan.on.system, ImageSystem),
        toolchain_key=str(view["toolchain_key"]),
        system=system,
    )


def missing_inputs(plan: BuildPlan, lock: Lock) -> list[str]:
    """Return the sorted keys of a plan's inputs that have no entry in the lock.

    An entry without a pin counts as present.
    """
    needed = {file.source for file in required_files(plan) if file.source}
    if plan.base != NO_BASE:
        needed |= {*_toolchain_inputs(plan, lock), *TRIALS}
        needed |= {plan.on.system.runtime} if isinstance(plan.on.system, ImageSystem) else set()
    return sorted({item.key for item in needed} - lock.pins.keys())


def _require_pins(plan: BuildPlan, lock: Lock) -> None:
    advice = "Run ./run lock and commit the file."
    problems = [f"inputs.lock has no entry {key!r}. {advice}" for key in missing_inputs(plan, lock)]
    if plan.origin is Origin.SOURCE:
        problems += [f"variants.yaml: {one}" for one in source_problems(plan.project, plan.base, lock)]
    if problems:
        raise ConfigError(problems)


def _squeeze(text: str) -> str:
    """Return the text with at most one blank line in a row, since skipped template blocks leave some."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text


def _view(plan: BuildPlan, division: CompilePlan, key: str, lock: Lock) -> dict[str, object]:
    on = plan.on
    return {
        "plan": plan,
        "title": _title(plan),
        "compiles": plan.origin is Origin.SOURCE,
        "options": options_of(plan, division),
        "targets": build_targets(plan.host),
        "outputs": _outputs(plan),
        "compiles_host": plan.host is Host.SOURCE,
        "is_plugin": plan.variant.is_plugin,
        "patches": [PurePosixPath(patch).name for patch in plan.patches],
        "repairs": dumps(plan.repairs) if plan.repairs else "",
        "has_driver": _DRIVER in plan.rules.linked,
        "standard": plan.rules.standard,
        "link_libraries": [
            (role, _lib_context(role), f"nvidia/{_package_directory(role, on.toolkit)}/lib")
            for role in _link_roles(plan)
        ],
        "cuobjdump": plan.project.check.cuobjdump.file_name,
        "headers": plan.project.check.headers.file_name,
        "toolchain_key": key,
        "tree": ninja_tree(plan, key),
        **_system_view(on.system, lock),
        **_toolkit_view(on.toolkit),
        **_source_view(plan, lock),
        **_code_view(division, is_full=plan.profile is Profile.FULL),
    }


def _package_directory(role: str, toolkit: BaseToolkit) -> str:
    """Return the folder below ``nvidia`` in the wheel of a library; those for CUDA 13 share one."""
    if isinstance(toolkit, WheelToolkit) and role != "cudnn":
        return "cu13"
    return _PACKAGE_DIRECTORY.get(role, role)


def ninja_tree(plan: BuildPlan, key: str) -> str:
    """Return the name of the cache mount with the Ninja tree of a toolchain; ``AHEAD`` is added to it."""
    profile = plan.profile.value if plan.profile else "official"
    return f"ortpacks-{plan.variant.folder}-{profile}-{plan.host_origin}-{key}"


def _title(plan: BuildPlan) -> str:
    names = " ".join(f"sm_{arch}" for arch in plan.variant.sm)
    how = f"compiled, profile {plan.profile.value}" if plan.profile else "from the official wheel"
    how = f"plug-in, {how}" if plan.variant.is_plugin else how
    return f"{plan.variant.name} ({names}): ORT {plan.ort_version} {how}, base {plan.base}"


def _outputs(plan: BuildPlan) -> tuple[str, ...]:
    if plan.host is None:
        return ("libonnxruntime_providers_cuda.so",)
    provider = ("libonnxruntime_providers_cuda.so", "libonnxruntime_providers_shared.so")
    return provider if plan.host is Host.WHEEL else (*provider, f"libonnxruntime.so.{plan.ort_version}")


def _system_view(system: System, lock: Lock) -> dict[str, object]:
    if isinstance(system, SuiteSystem):
        return {}
    return {
        "image": system.image.spec,
        "image_reference": _reference(system.image, lock),
        "runtime_image": _reference(system.runtime, lock),
        "apt": [_apt_list(item, lock) for item in system.snapshot],
    }


def _apt_list(item: Input, lock: Lock) -> dict[str, str]:
    """Return a suite of apt's archive: its address, and the name and sha256 of its signed list."""
    address = item.spec.removeprefix("https://")
    root, _, suite = address.removesuffix("/InRelease").partition("/dists/")
    return {
        "root": root,
        "suite": suite,
        "list": address.replace("/", "_"),
        "sha256": lock.pins.get(item.key, Pin()).sha256,
    }


def _toolkit_view(toolkit: BaseToolkit) -> dict[str, object]:
    """Return the templates' values on nvcc; ``toolkit`` is image, redist, debian or wheels."""
    if isinstance(toolkit, UnpackedToolkit):
        return {"toolkit": "debian", "nvcc_deb": toolkit.deb.file_name}
    if isinstance(toolkit, RedistToolkit):
        return {"toolkit": "redist"}
    return {"toolkit": "wheels" if isinstance(toolkit, WheelToolkit) else "image"}


def _code_view(division: CompilePlan, *, is_full: bool) -> dict[str, object]:
    """Return the values for CMake, for Ninja's statements and for the program that replaces fatbinary.

    A row of ``parts``, by which ``builder/farm/drive.py`` narrows units, has the beginning of sources'
    paths, the codes of these units, and ``UnitPart.architectures``; ``architectures`` is that of all others.
    """
    targets = division.targets
    assembled = ":".join(map(str, targets.assembled))
    ptx = f"{targets.ptx}-virtual" if targets.ptx else None
    return {
        "cuda_architectures": ";".join(filter(None, (cmake_list(targets.compiled), ptx))),
        "architectures_reason": f"SASS; the PTX becomes SASS for {assembled}" if assembled else "SASS only",
        "fatbin_options": ("--raw", *((f"--assemble={assembled}",) if assembled else ())),
        "parts": [(part.path, part.codes, f"{part.architectures:g}") for part in division.narrowed()],
        "architectures": f"{division.parts[-1].architectures:g}",
        "plain_units": [part.path for part in division.parts if not (part.ptx or part.group)],
        "unused_units": [launch.path for launch in division.left_out if is_full],
    }


def _source_view(plan: BuildPlan, lock: Lock) -> dict[str, object]:
    """Return the templates' values on ORT's source and its dependencies."""
    source, others = plan.on.source.item, plan.on.dependencies
    known_as = {one.name: one.content for one in lock.dependencies(source)}
    replaced = sorted((known_as.get(name, name), name, one) for name, one in others.items())
    trees = [("onnxruntime", source), *((folder, one.tree) for folder, _, one in replaced if one.tree)]
    return {
        "trees": [(folder, item.file_name, item.folders_above) for folder, item in trees],
        "archives": [(item.file_name, mirrored(item.spec)) for item in _archives(plan, lock)],
        "replaced": [
            (folder, _source_context(name), one, HEADERS.get(name) if one.has_headers_alone else None)
            for folder, name, one in replaced
        ],
        "dependencies": sorted(
            (folder.upper(), folder if one.item else _NO_NEED) for folder, _, one in replaced
        ),
        "patched_eigen": "eigen" in others and plan.host is Host.SOURCE,
        "patched_onnx": plan.host is Host.SOURCE and "onnx" in others and bool(others["onnx"].tree),
    }


def _archives(plan: BuildPlan, lock: Lock) -> list[Input]:
    return [Input(InputKind.URL, one.url) for one in archives(plan.on, lock)]


def _reference(image: Input, lock: Lock) -> str:
    """Return the image by its digest, or as ``variants.yaml`` names it if ``inputs.lock`` has no digest."""
    digest = lock.pins[image.key].revision
    return f"{image.spec.partition('@')[0]}@{digest}" if digest else image.spec


def _contexts(plan: BuildPlan) -> dict[str, Input]:
    project = plan.project
    bundled = {**project.cuda.libraries, "cudnn": project.cudnn.wheel}
    libraries = {role: wheel for role, wheel in bundled.items() if role in LINK_ROLES}
    linked = {_lib_context(role): bundled[role] for role in _link_roles(plan)}
    toolkit = plan.on.toolkit
    read = {"cudnn": project.cudnn.wheel, "cmake": plan.on.cmake}
    if not isinstance(toolkit, ImageToolkit):
        headers = {role: wheel for role, wheel in libraries.items() if role != "cudart"}
        read |= headers if isinstance(toolkit, RedistToolkit) else libraries
        needs_header = plan.origin is Origin.SOURCE and _DRIVER in plan.rules.linked
        if needs_header or isinstance(toolkit, WheelToolkit):
            read |= {"nvrtc": bundled["nvrtc"]}
        read |= {_CONTEXT_NAME.get(role, role): wheel for role, wheel in toolkit.wheels.items()}
    if plan.origin is not Origin.SOURCE:
        read.pop("ptxas", None)  # only the source of ORT needs it
        return read
    others = plan.on.dependencies.items()
    return read | {_source_context(name): one.wheel for name, one in others if one.wheel} | linked


def _link_roles(plan: BuildPlan) -> tuple[str, ...]:
    """Return the roles of the libraries that the linker is given.

    nvrtc is linked by cudnn-frontend's own CMake files, which a package of its headers lacks. Source: 1.7.0's
    ``CMakeLists.txt``.
    """
    headers = plan.on.dependencies.get("cudnn_frontend")
    return LINK_ROLES if headers and headers.has_headers_alone else (*LINK_ROLES, "nvrtc")


def _source_context(dependency: str) -> str:
    """Return the name of the context of a wheel that a dependency comes from."""
    return dependency.replace("_", "-")


def _lib_context(role: str) -> str:
    """Return the name of the context that the linker's libraries of a wheel are read from.

    The wheel's headers are read under the role's own name. BuildKit keeps one copy of a context by its name,
    with the paths that a stage reads: two stages with one name would each send their paths again.
    """
    return f"{role}-lib"


def _debs(plan: BuildPlan) -> tuple[Input, ...]:
    """Return Debian's packages of the toolkit, of ORT's source, and of the check tools of every base."""
    toolkit = plan.on.toolkit
    debs = {plan.project.check.cuobjdump, plan.project.check.headers}
    debs |= {toolkit.deb} if isinstance(toolkit, UnpackedToolkit) else set()
    if plan.origin is Origin.SOURCE:
        debs |= {one.deb for one in plan.on.dependencies.values() if one.deb}
    return tuple(sorted(debs, key=lambda deb: deb.spec))


def _sources(plan: BuildPlan, lock: Lock) -> tuple[Input, ...]:
    on = plan.on
    parts = on.toolkit.archives if isinstance(on.toolkit, RedistToolkit) else ()
    if plan.origin is not Origin.SOURCE:
        return parts
    trees = (one.tree for _, one in sorted(on.dependencies.items()) if one.tree)
    return (*parts, on.source.item, *trees, *_archives(plan, lock))


def _toolchain_inputs(plan: BuildPlan, lock: Lock) -> list[Input]:
    system = plan.on.system
    images = (system.image, *system.snapshot) if isinstance(system, ImageSystem) else ()
    return [*_contexts(plan).values(), *_debs(plan), *_sources(plan, lock), *images]


def _toolchain_key(plan: BuildPlan, lock: Lock) -> str:
    """Return eight hex digits over every toolchain input's pin.

    They are part of the names of the Ninja tree and the compiler cache. The build container detects another
    root file system by its bytes. A folder's files may change: only what they change is compiled anew.
    """
    inputs = _toolchain_inputs(plan, lock)
    pins = {
        item.key if item.kind is InputKind.TREE else f"{item.key} {lock.pins[item.key]}" for item in inputs
    }
    parts = [plan.base, *plan.on.system.packages, *sorted(pins)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
