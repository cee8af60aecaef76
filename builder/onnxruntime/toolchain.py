"""This module computes the SASS of a compiled provider from its set: by nvcc, a newer ptxas, and ORT's CMake.

nvcc makes SASS for the architectures that it knows. The newest of nvcc 12.4 is sm_90; the ptxas of CUDA 12.9
assembles its PTX for compute_90 to SASS for sm_100, 103, 120 and 121. That PTX contains all that a device
function may use, except Blackwell's own instructions (docs/decisions/0004).

From 1.23 on, ORT's CMake files rewrite the list (``architecture_list``). Plain code for sm_100 runs on 10.0
and 10.3, but sm_100a, by which ORT replaces it, only on 10.0; SASS made by ptxas stays plain. So the same set
serves other GPUs on another base, unless it is *widened*: the architectures of the lost capabilities, which
CMake does not rewrite, are added to the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from builder.findings.finding import Code, Finding, Severity
from builder.formats.package_names import Profile
from builder.gpu.architectures import Arch, Capability
from builder.gpu.compatibility import runs_sass
from builder.gpu.cuda_toolkits import assembles, compilable
from builder.gpu.table import BY_CAPABILITY, CAPABILITIES
from builder.onnxruntime.architecture_list import Compiled, compiled, refused
from builder.onnxruntime.units import Launch, compiled_launches, shared_ptx, without_device_code
from builder.onnxruntime.versions import sm_names
from builder.project.build_plan import BuildPlan
from builder.project.variants import Origin

BY_PTXAS = 0.25
"""The share of ptxas in what one architecture adds to a unit; the rest makes the PTX.

Measured: 54 CUDA units for 89 90 100 120, the last two from compute_90's PTX, took 1,338 CPU s
(docs/builds.md).
"""


@dataclass(frozen=True)
class Targets:
    """A set of architectures, divided by the tool that makes their SASS."""

    compiled: tuple[Arch, ...]
    """The architectures whose SASS nvcc makes."""
    assembled: tuple[Arch, ...]
    """The architectures whose SASS the newer ptxas makes."""
    ptx: Arch | None
    """The architecture of the PTX for ``assembled``, nvcc's newest; ``None`` where ``assembled`` is empty."""


def divide(sm: Sequence[Arch], nvcc: str, ptxas: str | None) -> Targets:
    """Return a set divided by its tools; ``nvcc`` and ``ptxas`` are CUDA versions such as ``12.4``.

    Architectures that neither tool can make are given to nvcc; C004 reports them before a compile.
    """
    late = () if ptxas is None else tuple(arch for arch in sm if assembles(nvcc, ptxas, arch))
    ptx = Arch(*divmod(compilable(nvcc)[-1], 10)) if late else None
    return Targets(compiled=tuple(arch for arch in sm if arch not in late), assembled=late, ptx=ptx)


@dataclass(frozen=True)
class UnitPart:
    """Units of a plan that are compiled for the same architectures."""

    path: str
    """The beginning of the paths of these units' sources below ``onnxruntime/``; empty for all others."""
    ptx: Mapping[Arch, Arch]
    """The architectures of PTX by those of the SASS that is made of it; empty without device code."""

    @property
    def architectures(self) -> float:
        """Number of architectures, each with PTX of its own, that cost as much."""
        return (1 - BY_PTXAS) * len(set(self.ptx.values())) + BY_PTXAS * len(self.ptx)


def parts(plan: BuildPlan) -> Iterator[UnitPart]:
    """Yield the units of a plan by their architectures. The last part has all units that no other one has."""
    version, sm = plan.ort_version, plan.variant.sm
    targets = divide(sm, *tools(plan))
    if plan.profile is Profile.FULL:
        yield from (UnitPart(path, {}) for path in without_device_code(version))
        for launch, compiled_part in compiled_launches(sm, version):
            yield UnitPart(launch.path, ptx_of(sorted(compiled_part), targets, version, launch))
    yield UnitPart("", ptx_of(sm, targets, version))


def part_of(output: str, of_plan: Iterable[UnitPart]) -> UnitPart:
    """Return the part of ``parts`` that the object ``output`` belongs to."""
    return next(part for part in of_plan if f"/{part.path}" in output)


def ptx_of(
    arches: Sequence[Arch], targets: Targets, version: str, launch: Launch | None = None
) -> Mapping[Arch, Arch]:
    """Return the architectures of PTX by those of the SASS that is made of it, in units for ``arches``.

    ``launch``: what the units are part of.
    """
    shared = dict(shared_ptx(arches, version, launch))
    if targets.ptx:
        shared |= dict.fromkeys(targets.assembled, targets.ptx)
    return {arch: shared.get(arch, arch) for arch in arches}


def tools(plan: BuildPlan) -> tuple[str, str | None]:
    """Return the versions of nvcc and of the newer ptxas of a plan's base; ``None`` without such a ptxas."""
    return plan.on.toolkit.version, plan.on.toolkit.ptxas


def compiled_for(sm: Sequence[Arch], plan: BuildPlan) -> Compiled:
    """Return the architectures in each unit for the whole list when a plan's base compiles ``sm``.

    ORT's CMake rewrites only architectures that nvcc compiles for. Raises ``ValueError`` where it refuses an
    architecture (``refused``).
    """
    targets = divide(sm, *tools(plan))
    listed = compiled(targets.compiled, plan.ort_version)
    return Compiled(tuple(sorted({*listed.sass, *targets.assembled})), listed.ptx)


def lost(sm: Iterable[Arch], sass: Iterable[Arch]) -> tuple[Capability, ...]:
    """Return the capabilities that run SASS for ``sm`` but not SASS for ``sass``, its replacement."""
    asked, found = tuple(sm), tuple(sass)
    return tuple(device for device in CAPABILITIES if _serves(asked, device) and not _serves(found, device))


def proposed(plan: BuildPlan) -> tuple[Arch, ...]:
    """Return the architectures to add to a plan's set so that its package runs wherever plain code would.

    Empty for a plan that compiles nothing, and where ORT's CMake refuses an architecture of the set.
    """
    sm = plan.variant.sm
    if plan.origin is not Origin.SOURCE or refused(sm, plan.ort_version):
        return ()
    found: tuple[Arch, ...] = ()
    for device in CAPABILITIES:
        if device in lost(sm, compiled_for((*sm, *found), plan).sass):
            found = (*found, Arch(device.major, device.minor))
    return found


def widened(plan: BuildPlan) -> BuildPlan:
    """Return the plan with the architectures of ``proposed`` in its set, if its variant is to be widened.

    Returns the same plan where there is nothing to add.
    """
    found = proposed(plan) if plan.variant.widen else ()
    sm = tuple(sorted({*plan.variant.sm, *found}))
    return replace(plan, variant=replace(plan.variant, sm=sm), added=found) if found else plan


def check_reach(plan: BuildPlan, sass: Sequence[Arch]) -> Iterator[Finding]:
    """Yield C012 if a package with ``sass`` runs on fewer GPUs than plain code for the plan's set."""
    devices = lost(plan.variant.sm, sass)
    if not devices:
        return
    key = f"variants.{plan.variant.name}"
    found = proposed(plan)
    by_hand = f", or {sm_names(found)} in {key}.sm" if found else ", which compiles"
    yield Finding(
        code=Code.C012,
        path=f"{key}.sm",
        message=f"plain code for this set runs on {_cards(devices)} too, and what the package will hold does "
        "not run there natively",
        wanted=f"--widen, or {key}.widen: true{by_hand}",
        got=sm_names(sass),
        severity=Severity.WARNING,
    )


def _serves(sass: Iterable[Arch], device: Capability) -> bool:
    return any(runs_sass(arch, device) for arch in sass)


def _cards(devices: Sequence[Capability]) -> str:
    return " and ".join(f"{device} ({BY_CAPABILITY[device].cards})" for device in devices)
