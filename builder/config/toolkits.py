"""Rules for the toolkits that a set of architectures needs: findings C001 to C009, C013, C014, C016 and C017.

They are about the versions of CUDA, cuDNN and nvcc, and the GPUs that NVIDIA's pinned libraries hold no code
for. A package runs only where its worst library runs, so a set with a GPU that one library does not serve
would fail A003 at the end of the build. ``./run lock`` reads the libraries of each wheel that it pins, like
``verify``, and writes the capabilities that they lack to ``DATA``; ``tests/integration`` reads the libraries
again and compares.

Sources: NVIDIA's cuDNN support matrices 9.10.2 and 9.17.0, the CUDA Toolkit release notes 12.8 to 13.0 and
"CUDA Compatibility, Minor Version Compatibility"; rapids-cmake's documentation on ``-compress-mode``; ORT's
pull request 26307; the PTX ISA on renamed targets. What depends on ORT's version is read from its source
(``facts.ort.known_rules``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support, promised_by
from builder.config.build_plan import BuildPlan
from builder.config.variants import Base
from builder.facts.gpu.architectures import Arch, Capability, sm_names
from builder.facts.gpu.compatibility import (
    NVCCS,
    assembles,
    compilable,
    compiles,
    dotted,
    first_cuda,
    is_made,
    last_cuda,
    version_of,
)
from builder.facts.gpu.drivers import Version
from builder.facts.gpu.table import BY_CAPABILITY, DEVICES, KNOWN_SM, RENAMED
from builder.facts.ort.known_rules import is_known, read_lines, standing_for
from builder.facts.ort.source_rules import Fact, SourceRules
from builder.finding import Code, Finding, Severity
from builder.formats.json_values import json_text

TOOLS = {"cuda": "CUDA", "gcc": "gcc", "cmake": "CMake", "cxx": "C++"}
"""What a source names the oldest version of, by its name in ``SourceRules.minimums``."""

_LAST_CUDNN_BELOW_75 = "9.10.2.21"

TURING = 75

CMAKE_READ = "3.31.6"
"""The newest CMake whose ``Modules/Internal/CMakeCUDAArchitecturesValidate.cmake`` was read."""

_FIRST_CUDNN_75: Version = (9, 11)


@dataclass(frozen=True, kw_only=True)
class ToolkitChoice:
    """A variant's set and the versions that the rules judge together."""

    variant: str
    sm: tuple[Arch, ...]
    cuda: str
    cudnn: str
    rules: SourceRules
    """The rules of ORT's source."""
    nvcc: str | None = None
    """The base's version; ``None`` before a base is chosen."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """The base's versions of ``gcc`` and ``cmake``, if they are known."""
    ptxas: str | None = None
    """Version of a newer ptxas that assembles nvcc's PTX for architectures that nvcc does not know."""

    @property
    def path(self) -> str:
        """The key of the set in ``variants.yaml``."""
        return f"variants.{self.variant}.sm"


def toolkit_of(plan: BuildPlan) -> ToolkitChoice:
    """Return the set and the versions of a plan that compiles."""
    return ToolkitChoice(
        variant=plan.variant.name,
        sm=plan.variant.sm,
        cuda=plan.project.cuda.version,
        cudnn=plan.project.cudnn.version,
        rules=plan.rules,
        nvcc=plan.on.toolkit.version,
        tools=_tools_of(plan.on),
        ptxas=plan.on.toolkit.ptxas,
    )


def _tools_of(base: Base) -> Mapping[str, str]:
    named = (re.fullmatch(r"g\+\+-(\d+)", package) for package in base.system.packages)
    gcc = [("gcc", match[1]) for match in named if match]
    return {**dict(gcc), "cmake": base.cmake.requirement.rpartition("==")[2]}


def lint(subject: ToolkitChoice) -> list[Finding]:
    """Return the findings on a set and its versions, those of ``check_version`` included."""
    return [
        *_cudnn_dropped(subject),
        *_cuda_dropped(subject),
        *_cuda_too_old(subject),
        *_out_of_reach(subject),
        *_from_older_text(subject),
        *check_version(subject),
    ]


def _cudnn_dropped(subject: ToolkitChoice) -> Iterator[Finding]:
    lost = [arch for arch in subject.sm if arch.number < TURING]
    if lost and version_of(subject.cudnn) >= _FIRST_CUDNN_75:
        yield Finding(
            code=Code.C001,
            path=subject.path,
            message="cuDNN 9.11 and newer have no kernels for Maxwell, Pascal and Volta "
            "(NVIDIA's cuDNN support matrix)",
            wanted=f"cudnn.version {_LAST_CUDNN_BELOW_75}, the last one with them{_or_set(subject, lost)}",
            got=f"cuDNN {subject.cudnn} with {sm_names(lost)}",
        )


def _cuda_dropped(subject: ToolkitChoice) -> Iterator[Finding]:
    cuda = version_of(subject.cuda)[:2]
    gone = [arch for arch in subject.sm if (last_cuda(arch) or cuda) < cuda]
    lost = [arch for arch in gone if arch.number not in RENAMED]
    if lost:
        yield Finding(
            code=Code.C002,
            path=subject.path,
            message="CUDA 13 compiles for sm_75 and newer (CUDA 13.0 release notes)",
            wanted=f"cuda.version 12.9, the last one with them{_or_set(subject, lost)}",
            got=f"CUDA {subject.cuda} with {sm_names(lost)}",
        )
    for arch in gone:
        if arch.number in RENAMED:
            now = Arch(*divmod(RENAMED[arch.number], 10), arch.suffix)
            kept = sorted({now if old == arch else old for old in subject.sm})
            yield Finding(
                code=Code.C002,
                path=subject.path,
                message=f"sm_{arch} is called sm_{now} since CUDA 13 (PTX ISA 9.0)",
                wanted=f"the set {_numbers(kept)}, or cuda.version 12.9",
                got=f"CUDA {subject.cuda} with sm_{arch}",
            )


def _cuda_too_old(subject: ToolkitChoice) -> Iterator[Finding]:
    for arch in subject.sm:
        first = first_cuda(arch)
        if first is not None and version_of(subject.cuda) < first:
            yield Finding(
                code=Code.C003,
                path=subject.path,
                message=f"sm_{arch} came with CUDA {dotted(first)} (CUDA release notes)",
                wanted=f"cuda.version {dotted(first)} {_until(arch)}{_or_set(subject, [arch])}",
                got=f"CUDA {subject.cuda} with sm_{arch}",
            )


def _out_of_reach(subject: ToolkitChoice) -> Iterator[Finding]:
    if subject.nvcc is None:
        return
    reach = compilable(subject.nvcc)
    lost = [arch for arch in subject.sm if not is_made(subject.nvcc, subject.ptxas, arch)]
    if lost:
        yield Finding(
            code=Code.C004,
            path=subject.path,
            message=f"the base's nvcc {subject.nvcc} compiles {_span(reach)} (CUDA release notes)"
            + _by_ptxas(subject.nvcc, subject.ptxas),
            wanted=", or ".join(_ways_out(subject, lost)),
            got=sm_names(lost),
        )


def _from_older_text(subject: ToolkitChoice) -> Iterator[Finding]:
    """Yield a warning for architectures that nvcc does not know and the source treats in other ways.

    nvcc compiles the source's text for them, which may ask for what it does not have.
    """
    nvcc, ptxas = subject.nvcc, subject.ptxas
    late = [arch for arch in subject.sm if nvcc and ptxas and assembles(nvcc, ptxas, arch)]
    if nvcc is None or not late:
        return
    if lines := subject.rules.told_apart(compilable(nvcc)[-1], late[-1].number):
        yield Finding(
            code=Code.C016,
            path=subject.path,
            message=f"ONNX Runtime {subject.rules.version} has code for them "
            f"({', '.join(map(str, lines))}), and nvcc {nvcc} does not know them: what it cannot compile of "
            "that ends the build",
            wanted=", or ".join(_ways_out(subject, late)),
            got=sm_names(late),
            severity=Severity.WARNING,
        )


def _until(arch: Arch) -> str:
    last = last_cuda(arch)
    return f"to {dotted(last)}" if last else "or newer"


def _by_ptxas(nvcc: str, ptxas: str | None) -> str:
    if ptxas is None:
        return ""
    numbers = [number for number in KNOWN_SM if assembles(nvcc, ptxas, Arch(*divmod(number, 10)))]
    return f", ptxas {ptxas} adds sm_{' '.join(map(str, numbers))} without a suffix" if numbers else ""


def _ways_out(subject: ToolkitChoice, lost: Sequence[Arch]) -> Iterator[str]:
    """Yield as text the oldest and the newest nvcc for the whole set, and the set without ``lost``."""
    nvcc = next((release for release in NVCCS if all(compiles(release, arch) for arch in subject.sm)), None)
    kept = [arch for arch in subject.sm if arch not in lost]
    if nvcc is not None:
        yield f"a base with nvcc {nvcc} (--base nvidia)"
    if all(compiles(NVCCS[-1], arch) for arch in subject.sm):
        yield f"--cuda {version_of(NVCCS[-1])[0]}"
    if kept:
        yield f"the set {_numbers(kept)}"


def _or_set(subject: ToolkitChoice, lost: Sequence[Arch]) -> str:
    kept = [arch for arch in subject.sm if arch not in lost]
    return f", or the set {_numbers(kept)}" if kept else ""


def _numbers(arches: Iterable[Arch]) -> str:
    return " ".join(map(str, arches))


def _span(numbers: Sequence[int]) -> str:
    return f"sm_{numbers[0]} to sm_{numbers[-1]}" if numbers else "nothing we know"


DATA = "builder/config/nvidia_libraries.json"
"""The file of the capabilities that wheels lack, from the project's root; ``./run lock`` writes it."""

MISSING: Mapping[str, tuple[Capability, ...]] = {
    wheel: tuple(map(Capability.parse, devices))
    for wheel, devices in json.loads(
        Path(__file__).with_name("nvidia_libraries.json").read_text(encoding="utf-8")
    ).items()
}
"""The capabilities that a library of a wheel does not run on, by the wheel's ``NAME==VERSION[@PLATFORM]``."""


def missing_in(coverages: Sequence[LibraryCoverage]) -> tuple[Capability, ...]:
    """Return the capabilities that run one of a wheel's libraries neither natively nor by JIT."""
    runnable = [coverage for coverage in coverages if coverage.runnable]
    lost = (Support.PARTIAL, Support.NONE)
    return tuple(device for device in DEVICES if any(one.support[device] in lost for one in runnable))


def dumps(missing: Mapping[str, Sequence[Capability]]) -> str:
    """Return the JSON text of ``DATA``."""
    return json_text({wheel: list(map(str, devices)) for wheel, devices in sorted(missing.items())})


def check_served(path: str, sm: Sequence[Arch], wheels: Iterable[str]) -> Iterator[Finding]:
    """Yield C013 for the architectures of ``sm`` that a pinned wheel holds no code for.

    ``path``: the key of the set in ``variants.yaml``. ``wheels``: pinned wheels, named as in ``MISSING``.
    """
    lacking = {wheel: _unserved_architectures(sm, MISSING.get(wheel, ())) for wheel in wheels}
    unserved = sorted({arch for arches in lacking.values() for arch in arches})
    if not unserved:
        return
    by = ", ".join(wheel for wheel, arches in lacking.items() if arches)
    kept = [arch for arch in sm if arch not in unserved]
    yield Finding(
        code=Code.C013,
        path=path,
        message=f"no code for {_cards(unserved)} in {by} (read from their bytes): what is compiled for it "
        "would never run"
        + (". Jetson modules are ARM machines, packages are for x86-64" if _are_modules(unserved) else ""),
        wanted=f"the set {_numbers(kept)}" if kept else "a set of cards: docs/variants.md names them all",
        got=sm_names(unserved),
    )


def check_is_read(wheels: Iterable[str]) -> Iterator[Finding]:
    """Yield the warning C014 for each pinned wheel that ``MISSING`` does not name."""
    for wheel in wheels:
        if wheel not in MISSING:
            yield Finding(
                code=Code.C014,
                path=wheel,
                message="which GPUs its libraries serve is not known before the package is checked",
                wanted="./run lock, which pins and reads it",
                severity=Severity.WARNING,
            )


def _unserved_architectures(sm: Sequence[Arch], missing: Sequence[Capability]) -> list[Arch]:
    return [arch for arch in sm if any(device in missing for device in promised_by(arch))]


def _cards(arches: Sequence[Arch]) -> str:
    devices = [device for arch in arches for device in promised_by(arch)]
    return ", ".join(f"{device} ({BY_CAPABILITY[device].cards})" for device in dict.fromkeys(devices))


def _are_modules(arches: Sequence[Arch]) -> bool:
    devices = {device for arch in arches for device in promised_by(arch)}
    return all(BY_CAPABILITY[device].module for device in devices)


def check_version(subject: ToolkitChoice) -> Iterator[Finding]:
    """Yield the findings C007 to C009 on an ORT version with a set of architectures and a CUDA version.

    C008 and C009 are yielded once a base that compiles is chosen.
    """
    if subject.rules.stands_in and not is_known(subject.rules.version):
        yield _unknown(subject.rules.version)
    if subject.nvcc is None:
        return
    families = [arch for arch in subject.sm if arch.suffix == "f"]
    if families:
        yield _families(subject, families)
    newest = subject.rules.newest_cuda
    if newest and version_of(subject.nvcc) > version_of(newest.value):
        yield Finding(
            code=Code.C017,
            path=subject.path,
            message=f"ONNX Runtime {subject.rules.version} is compiled with CUDA {newest.value} or older: it "
            f"asks for what CUDA 13's CUB lacks ({newest.line})",
            wanted=f"CUDA {newest.value}, or a newer ONNX Runtime",
            got=f"nvcc {subject.nvcc}",
        )
    cuda = min(subject.cuda, subject.nvcc, key=version_of)
    for tool, version in {"cuda": cuda, **subject.tools}.items():
        least = subject.rules.minimums.get(tool)
        if least and _is_older(version, least.value):
            yield _too_old_for_ort(subject, tool, version, least)


def _unknown(ort: str) -> Finding:
    return Finding(
        code=Code.C007,
        path="onnxruntime",
        message=f"what a build of ONNX Runtime {ort} depends on was never looked up: the rules of "
        f"{standing_for(ort).line}, the nearest that is known, are used",
        wanted=f"a version whose source was read: {', '.join(read_lines())}",
        got=ort,
        severity=Severity.WARNING,
    )


def _families(subject: ToolkitChoice, families: Sequence[Arch]) -> Finding:
    """Return C008, an error where ORT's CMake files refuse the suffix, else a warning: CMake itself may."""
    ort = subject.rules.version
    stopped = (subject.rules.rewriting.refused or {}).get("f")
    by_ort = f"ONNX Runtime {ort}'s own CMake refuses the suffix f ({stopped.line if stopped else ''})"
    by_cmake = (
        f"CMake {CMAKE_READ} refuses the suffix f in CMAKE_CUDA_ARCHITECTURES; newer ones were not tried"
    )
    return Finding(
        code=Code.C008,
        path=subject.path,
        message=by_ort if stopped else by_cmake,
        wanted="each architecture of the family by itself: 100 103, or 120 121",
        got=sm_names(families),
        severity=Severity.ERROR if stopped else Severity.WARNING,
    )


def _is_older(version: str, least: str) -> bool:
    """Return whether a version is older, as far as both are told: ``12`` is not older than ``12.3``."""
    pairs = zip(version_of(version), version_of(least), strict=False)
    return next((one < other for one, other in pairs if one != other), False)


def _too_old_for_ort(subject: ToolkitChoice, tool: str, version: str, least: Fact) -> Finding:
    name = TOOLS[tool]
    key = "cuda.version" if version == subject.cuda else f"a base with {name}"
    return Finding(
        code=Code.C009,
        path=subject.path,
        message=f"ONNX Runtime {subject.rules.version} is compiled with {name} {least.value} or newer "
        f"({least.line})",
        wanted=f"{key} {least.value} or newer",
        got=f"{name} {version}",
    )
