"""A compiled plan beside the official build of the same ORT version: each difference with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.formats.package_names import Profile
from builder.gpu.architectures import Arch
from builder.gpu.compatibility import runs_sass
from builder.gpu.table import CAPABILITIES
from builder.onnxruntime.official_builds import ArchList, Setting, arch_list, settings
from builder.onnxruntime.profiles import Option, options
from builder.onnxruntime.toolchain import Compiled, divide, made, read_list, refused, rewritten, tools
from builder.onnxruntime.toolchain import lost as lost_capabilities
from builder.onnxruntime.units import launches, narrowed, shared_ptx, unused_options
from builder.onnxruntime.versions import hold_version, needs
from builder.project.build_plan import BuildPlan

ARCHITECTURES = "CMAKE_CUDA_ARCHITECTURES"


@dataclass(frozen=True)
class Difference:
    """One option that is not as in the official build."""

    option: str
    ours: str
    official: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option}: {self.ours or 'empty'}, official {self.official or 'empty'}: {self.reason}"


_RAW = Difference(
    "CMAKE_CUDA_FLAGS",
    "-Xfatbin=--raw",
    "",
    "device code is stored as it is, not in LZ4, which an archive's zstd cannot undo (docs/decisions/0004)",
)


@dataclass(frozen=True)
class Explanation:
    """What ``render --explain`` tells of one plan."""

    title: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """What the ORT version makes of the plan, a sentence each."""


def explain(plan: BuildPlan) -> Explanation:
    """The plan against the official build. A plan that compiles nothing has no difference."""
    version = plan.ort_version
    if plan.profile is None:
        title = f"{plan.variant.name}: the official build of ONNX Runtime {version} itself, repacked"
        return Explanation(title, (), ())
    return Explanation(
        title=f"{plan.variant.name}: profile {plan.profile.value} on base {plan.base}, against the official "
        f"build of ONNX Runtime {version}",
        differences=tuple(_differences(plan, plan.profile)),
        notes=tuple(_notes(plan)),
    )


def _differences(plan: BuildPlan, profile: Profile) -> Iterator[Difference]:
    yield _architectures(plan)
    yield _RAW
    chosen = options(profile, plan.ort_version, plan.variant.sm, cpuinfo=plan.base == "nvidia")
    ours = {option.entry.name: option for option in chosen}
    for setting in settings(plan.ort_version):
        yield from _setting(setting, ours)


def _setting(official: Setting, ours: Mapping[str, Option]) -> Iterator[Difference]:
    option = ours.get(official.name)
    value = option.entry.value if option else official.default
    if value != official.value:
        reason = official.argued or (option.entry.reason if option else "")
        yield Difference(official.name, value, official.value, reason)


def _architectures(plan: BuildPlan) -> Difference:
    official = arch_list(plan.ort_version)
    theirs = read_list(official.wheel, plan.ort_version)
    ours = _made(plan)
    reason = f"variants.{plan.variant.name}.sm; theirs is the wheel's for CUDA 12{_archive(official, plan)}"
    return Difference(ARCHITECTURES, str(ours), str(theirs), reason)


def _made(plan: BuildPlan) -> Compiled:
    """What comes out; where ORT's CMake would stop, what is asked for."""
    sm = plan.variant.sm
    return Compiled(sm, ()) if refused(sm, plan.ort_version) else made(sm, plan)


def _archive(official: ArchList, plan: BuildPlan) -> str:
    if official.archive == official.wheel:
        return ""
    return f", the archive's is {read_list(official.archive, plan.ort_version)}"


def _notes(plan: BuildPlan) -> Iterator[str]:
    sm, version = plan.variant.sm, plan.ort_version
    least = needs(version)
    if not refused(sm, version):
        yield from _made_of(plan)
    yield f"this version is compiled with CUDA {least.cuda}, gcc {least.gcc} and CMake {least.cmake} or newer"
    yield from (f"the source is patched with {patch}, which says why" for patch in plan.patches)
    cuda = plan.project.cuda.version
    findings = hold_version(f"variants.{plan.variant.name}.sm", sm, version, cuda, compiling=True)
    yield from (f"{finding.code.name} {finding.message}" for finding in findings)


def _made_of(plan: BuildPlan) -> Iterator[str]:
    sm, version = plan.variant.sm, plan.ort_version
    for asked, becomes in rewritten(divide(sm, *tools(plan)).compiled, version):
        yield f"sm_{asked} becomes sm_{becomes}, which runs on {_devices(becomes)}{_lost(asked, becomes)}"
    if plan.added:
        yield f"added for what is lost so (widen): {_names(plan.added)}"
    if plan.profile is Profile.FULL:
        yield from _left_out(sm, version)
    for new, old in shared_ptx(sm, version).items():
        yield f"SASS for sm_{new} is made from the PTX of compute_{old}: no source asks for more than that"


def _left_out(sm: Sequence[Arch], version: str) -> Iterator[str]:
    """What is not compiled for the whole list, by ORT's own CMake or because nothing launches it."""
    unused = unused_options(sm, version)
    for launch in launches(version):
        if launch.option in unused:
            yield f"{launch.name} is left out: no architecture of the set launches it ({launch.source})"
    for launch, part in narrowed(sm, version):
        made = " ".join(map(str, sorted(part)))
        yield f"{launch.name} is compiled for {made}: nothing else launches it ({launch.source})"
        for arch in sorted(launch.launched(sm) - part):
            older = launch.served[arch.number]
            yield f"{launch.name}: sm_{arch} runs the SASS for sm_{older}, made from the same PTX"
        for new, old in shared_ptx(part, version, launch).items():
            if new.number in launch.shared:
                yield f"{launch.name}: SASS for sm_{new} is made from the PTX of compute_{old}, the same text"


def _devices(arch: Arch) -> str:
    return ", ".join(str(device) for device in CAPABILITIES if runs_sass(arch, device))


def _lost(asked: Arch, becomes: Arch) -> str:
    lost = lost_capabilities([asked], [becomes])
    return f" alone, not on {', '.join(map(str, lost))}" if lost else ""


def _names(arches: Sequence[Arch]) -> str:
    return ", ".join(f"sm_{arch}" for arch in arches)
