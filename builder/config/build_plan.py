"""The plan of one package, what ``render`` makes of it, the folder where it is built, and what is compiled.

``CompilePlan`` has the PTX and SASS of each unit of a compiled provider. nvcc makes SASS for the
architectures that it knows. The newest of nvcc 12.4 is sm_90; the ptxas of CUDA 12.9 assembles its PTX for
compute_90 to SASS for sm_100, 103, 120 and 121. That PTX contains all that a device function may use, except
Blackwell's own instructions (docs/decisions/0004).

From 1.23 on, ORT's CMake files rewrite the list (``facts.ort.units``). Plain code for sm_100 runs on 10.0
and 10.3, but sm_100a, by which ORT replaces it, only on 10.0; SASS made by ptxas stays plain. So the same set
serves other GPUs on another base, unless it is *widened*: the architectures of the lost capabilities, which
CMake does not rewrite, are added to the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.config.inputs import DebianPackage, Input
from builder.config.repairs import repairs_for
from builder.config.variants import Base, Origin, Project, Variant
from builder.facts.gpu.architectures import Arch, Capability, sm_names
from builder.facts.gpu.compatibility import assembles, compilable, runs_sass
from builder.facts.gpu.table import BY_CAPABILITY, CAPABILITIES
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.launch_patterns import Launch
from builder.facts.ort.source_rules import Compiled, SourceRules, UnitGroup
from builder.facts.ort.units import UnitSet, cmake_list, compiled_launches, left_out, shared_ptx
from builder.farm.repair import Repair
from builder.finding import Code, Finding, Severity
from builder.formats.missing_kernels import MissingKernels, cannot_run
from builder.formats.package_names import CUDA, REDUCED, Host, Layout, PackageName, Profile

NO_BASE = "none"
"""``BuildPlan.base`` of a package that needs no image."""


@dataclass(frozen=True)
class BuildPlan:
    """All decisions on one variant, made by the ``plan`` step and read by ``render`` and every later step."""

    project: Project
    variant: Variant
    base: str
    """A name of ``bases``; ``NO_BASE`` for a package that needs no image."""
    base_reason: str
    origin: Origin
    """``WHEEL`` or ``SOURCE``, never ``AUTO``."""
    origin_reason: str
    profile: Profile | None
    """Profile of the compiled ORT; ``None`` for origin wheel."""
    host: Host | None
    """Where the host library comes from; ``None`` for a plug-in, which has none."""
    ort_version: str
    """Version of the libraries in the package."""
    ort_wheel: Input
    """Official ``onnxruntime-gpu`` wheel of that version: source of the host library, or of everything.

    A package whose host library is compiled needs nothing of it. In a package without CUDA it is the wheel
    that is repacked.
    """
    added: tuple[Arch, ...] = ()
    """Architectures of ``variant.sm`` that widening added to the set of ``variants.yaml``."""
    source_rules: SourceRules | None = None
    """The rules that were read from the very source; ``None``: those that are stored for the version."""
    host_reason: str = ""
    """Why the official host library is not of the source that is compiled; empty if it is, or not known."""
    cuda_reason: str = ""
    """Why it is compiled for a CUDA of ``toolkits``; empty for the CUDA of ``cuda``."""

    @property
    def rules(self) -> SourceRules:
        """The rules of ORT's source."""
        return self.source_rules or rules_for(self.ort_version)

    @property
    def on(self) -> Base:
        """The base that it is built on. Raises ``KeyError`` for ``NO_BASE``."""
        return self.project.bases[self.base]

    @property
    def host_origin(self) -> str:
        """Where the host library comes from, as manifests name it: ``wheel``, ``source`` or ``none``."""
        return self.host.value if self.host else "none"

    @property
    def cannot_run(self) -> tuple[MissingKernels, ...]:
        """The operators that the official provider has kernels for, and the package has not."""
        plugin = self.rules.plugin if self.variant.is_plugin else None
        profile = self.profile.value if self.profile else None
        return cannot_run(profile, self.ort_version, plugin.left_out if plugin else {})

    @property
    def patches(self) -> tuple[str, ...]:
        """The base's patches to the sources that are compiled."""
        return self.on.patches if self.base != NO_BASE else ()

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs of the sources that the set needs."""
        overrides = self.on.dependencies if self.base != NO_BASE else {}
        given = [name for name, one in overrides.items() if one.item]
        return repairs_for(self.rules, self.variant.sm, given, self.variant.form)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Layouts that are made.

        Without CUDA only the full one, since there are no NVIDIA libraries to omit.
        """
        return self.project.bundle.layouts if self.variant.provider == CUDA else (Layout.FULL,)

    @property
    def possible_layouts(self) -> tuple[Layout, ...]:
        """Layouts that an earlier build may have made."""
        return tuple(Layout) if self.variant.provider == CUDA else (Layout.FULL,)


def package_name(plan: BuildPlan, layout: Layout = Layout.FULL) -> PackageName:
    """Return the name of a plan's package."""
    profile = plan.profile.value if plan.profile else None
    return PackageName(
        variant=plan.variant.name,
        ort=plan.ort_version,
        cuda=plan.project.cuda.version if plan.variant.provider == CUDA else None,
        profile=profile if profile in REDUCED else None,
        layout=layout.value,
        platform=plan.variant.platform,
        form=plan.variant.form,
    )


@dataclass(frozen=True)
class Rendered:
    """A variant's Dockerfiles and the contents of their build contexts."""

    dockerfile: str
    runtime_dockerfile: str
    contexts: Mapping[str, Input]
    """Named build contexts: the wheel whose unpacked tree the context is, by the context's name."""
    debs: tuple[Input, ...]
    """Debian packages of the main context, under ``debs/``."""
    sources: tuple[Input, ...]
    """Sources and archives of the main context, under ``sources/``."""
    network: bool
    """Whether a step needs the network: on an image, for the packages of its apt."""
    toolchain_key: str
    """Eight hex digits that change when anything in the toolchain changes."""
    system: tuple[DebianPackage, ...] = ()
    """Packages of the root file system that compiles, if one is assembled."""


NOTHING_RENDERED = Rendered("", "", {}, debs=(), sources=(), network=False, toolchain_key="")
"""``Rendered`` of a package that needs no image."""


class Workplace:
    """The folder ``dist/<variant>`` and the paths in it.

    ``context`` is the folder name of the main build context. BuildKit keeps one copy of what is read from all
    contexts of a folder name, so builds that read other files have a folder name of their own.
    """

    def __init__(self, root: Path, *, context: str = "context") -> None:
        self.root = root
        self.dockerfile = root / "Dockerfile"
        """The rendered Dockerfile."""
        self.runtime_dockerfile = root / "runtime.Dockerfile"
        """The rendered Dockerfile of the system in which packages are tried."""
        self.context = root / context
        """The main build context."""
        self.artifact = root / "artifact"
        """ORT's compiled libraries."""
        self.artifact_key = root / "artifact.key"
        """Key of the inputs that the libraries in ``artifact`` were compiled from."""
        self.unverified = root / "unverified"
        """Folder of packages until they are verified."""
        self.tools = root / "tools"
        """Programs that packages are tried with: ``ortpacks-smoke``."""
        self.log = root / "build.log"
        """The whole log of the last build."""


BY_PTXAS = 0.25
"""The share of ptxas in what one architecture adds to a unit; making the PTX is the other 0.75.

Measured: 54 CUDA units for 89 90 100 120, the last two from compute_90's PTX, took 1,338 CPU s
(docs/performance.md).
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
    """The beginning of the paths of these units' sources below ``onnxruntime/``; empty for the remaining
    units."""
    ptx: Mapping[Arch, Arch]
    """For each architecture of the SASS, that of the PTX it is made from; empty without device code."""
    codes: tuple[str, ...] = ()
    """What nvcc compiles the units for: ``sm_86``, or ``sm_52:compute_50`` for SASS of other PTX.

    ``compute_90`` is among them if the newer ptxas assembles any of it.
    """
    launch: Launch | None = None
    """The rule that says which architectures these units are launched on; ``None`` for the remaining
    units."""
    group: UnitGroup | None = None
    """The group of units that ORT's CMake compiles for these architectures by itself, if it is one."""

    @property
    def is_lost(self) -> bool:
        """Whether ORT's CMake compiles these units in no target."""
        return self.group is not None and not self.ptx

    @property
    def architectures(self) -> float:
        """The cost of these units, as a number of architectures that each have PTX of their own."""
        return (1 - BY_PTXAS) * len(set(self.ptx.values())) + BY_PTXAS * len(self.ptx)


@dataclass(frozen=True)
class CompilePlan:
    """The PTX and SASS of each unit of a plan.

    The flags of nvcc, the estimates, the explanations, the provenance and the GPUs that a package will run on
    follow from it.
    """

    sm: tuple[Arch, ...]
    rules: SourceRules
    targets: Targets
    parts: tuple[UnitPart, ...]
    """All units; the last part has the units that are in no other part."""
    lost: tuple[UnitGroup, ...]
    """The groups of units that ORT's CMake compiles in no target for the set, without those of repairs."""
    left_out: tuple[Launch, ...]
    """Units that no architecture of the set launches. They are among the contrib operators."""

    @property
    def whole_list(self) -> Compiled:
        """The architectures in a unit that is compiled for the whole set, as ORT's CMake rewrites them.

        Only those that nvcc compiles are rewritten. Raises ``ValueError`` where ORT's CMake refuses one
        (``SourceRules.refused``).
        """
        listed = self.rules.read_list(cmake_list(self.targets.compiled))
        return Compiled(tuple(sorted({*listed.sass, *self.targets.assembled})), listed.ptx)

    def part_of(self, output: str) -> UnitPart:
        """Return the part that the object ``output`` belongs to."""
        return next(part for part in self.parts if f"/{part.path}" in output)

    def narrowed(self) -> list[UnitPart]:
        """Return the parts that nvcc compiles for other codes than CMake's list gives every unit.

        In that list, each architecture has PTX of its own.
        """
        *named, others = self.parts
        parts = [part for part in named if part.ptx != others.ptx and part.group is None]
        if any(others.ptx[arch] != arch for arch in self.targets.compiled):
            parts.append(others)
        return parts


def planned_units(plan: BuildPlan) -> tuple[UnitSet, ...]:
    """Return the sets of units of the provider that a plan compiles, that for the whole list first."""
    division = compile_plan(plan)
    whole = {arch.number: arch for arch in division.whole_list.sass}
    sets = [UnitSet("whole list", frozenset(whole.values()))]
    for part in division.parts[:-1]:
        sass = frozenset(whole[arch.number] for arch in part.ptx)
        if launch := part.launch:
            sets.append(UnitSet(launch.name, sass, launch.units, (launch.first, launch.last)))
        elif part.group:
            sets.append(UnitSet(part.group.name, sass))
    return tuple(
        dict.fromkeys(one for one in sets if one == sets[0] or one.sass not in {sets[0].sass, frozenset()})
    )


def compile_plan(plan: BuildPlan) -> CompilePlan:
    """Return the PTX and SASS of each unit of a plan's provider, also for a plan that compiles nothing."""
    rules, sm = plan.rules, plan.variant.sm
    targets = divide(sm, plan.on.toolkit.version, plan.on.toolkit.ptxas)
    parts: list[UnitPart] = []
    lost: list[UnitGroup] = []
    left_out_units = tuple(path for repair in plan.repairs for path in repair.units)
    if plan.profile is Profile.FULL:
        plain = () if plan.variant.is_plugin else rules.without_device_code  # its C++ has other headers
        parts += (UnitPart(path, {}) for path in plain)
        for launch, part in compiled_launches(sm, rules):
            parts.append(_part(launch.path, sorted(part), targets, rules, launch))
        for group in rules.groups:
            made = _compiled_by_cmake(group, targets)
            lost += [] if made or group.is_below(left_out_units) else [group]
            parts += (replace(_part(path, made, targets, rules), group=group) for path in group.paths)
    parts.append(_part("", sm, targets, rules))
    return CompilePlan(sm, rules, targets, tuple(parts), tuple(lost), left_out(sm, rules))


def _compiled_by_cmake(group: UnitGroup, targets: Targets) -> list[Arch]:
    """Return the architectures of a group's units. CMake is told of those that nvcc makes code for."""
    ptx = (targets.ptx,) if targets.ptx else ()
    found = group.compiled((*targets.compiled, *ptx))
    made = [arch for arch in targets.compiled if arch.number in {one.number for one in found}]
    return [*made, *targets.assembled] if targets.ptx in found else made  # 90a alone has no PTX


def _part(
    path: str, arches: Sequence[Arch], targets: Targets, rules: SourceRules, launch: Launch | None = None
) -> UnitPart:
    shared = dict(shared_ptx(arches, rules, launch))
    if targets.ptx:
        shared |= dict.fromkeys(targets.assembled, targets.ptx)
    ptx = {arch: shared.get(arch, arch) for arch in arches}
    kept = [(arch, ptx[arch]) for arch in targets.compiled if arch in ptx]
    codes = [f"sm_{rules.rewritten(arch)}{'' if of == arch else f':compute_{of}'}" for arch, of in kept]
    if not ptx.keys().isdisjoint(targets.assembled):
        codes.append(f"compute_{targets.ptx}")
    return UnitPart(path, ptx, tuple(codes), launch)


def with_set(plan: BuildPlan, sm: Iterable[Arch]) -> BuildPlan:
    """Return the plan of another set."""
    return replace(plan, variant=replace(plan.variant, sm=tuple(sorted(sm))))


def lost(sm: Iterable[Arch], sass: Iterable[Arch]) -> tuple[Capability, ...]:
    """Return the capabilities that run SASS for ``sm`` but not SASS for ``sass``, its replacement."""
    asked, made = tuple(sm), tuple(sass)
    return tuple(device for device in CAPABILITIES if _serves(asked, device) and not _serves(made, device))


def proposed(plan: BuildPlan) -> tuple[Arch, ...]:
    """Return the architectures to add to a plan's set so that its package runs wherever plain code would.

    Empty for a plan that compiles nothing, and where ORT's CMake refuses an architecture of the set.
    """
    sm = plan.variant.sm
    if plan.origin is not Origin.SOURCE or plan.rules.refused(sm):
        return ()
    added: tuple[Arch, ...] = ()
    for device in CAPABILITIES:
        if device in lost(sm, compile_plan(with_set(plan, (*sm, *added))).whole_list.sass):
            added = (*added, Arch(device.major, device.minor))
    return added


def widened(plan: BuildPlan) -> BuildPlan:
    """Return the plan with the architectures of ``proposed`` in its set, if its variant is to be widened.

    Returns the same plan where there is nothing to add.
    """
    added = proposed(plan) if plan.variant.widen else ()
    return replace(with_set(plan, {*plan.variant.sm, *added}), added=added) if added else plan


def check_reach(plan: BuildPlan, sass: Sequence[Arch]) -> Iterator[Finding]:
    """Yield C012 if a package with ``sass`` runs on fewer GPUs than plain code for the plan's set."""
    devices = lost(plan.variant.sm, sass)
    if not devices:
        return
    key = f"variants.{plan.variant.name}"
    added = proposed(plan)
    cards = " and ".join(f"{device} ({BY_CAPABILITY[device].cards})" for device in devices)
    by_hand = f", or {sm_names(added)} in {key}.sm" if added else ", which compiles"
    yield Finding(
        code=Code.C012,
        path=f"{key}.sm",
        message=f"plain code for this set runs on {cards} too, and what the package will hold does "
        "not run there natively",
        wanted=f"--widen, or {key}.widen: true{by_hand}",
        got=sm_names(sass),
        severity=Severity.WARNING,
    )


def _serves(sass: Iterable[Arch], device: Capability) -> bool:
    return any(runs_sass(arch, device) for arch in sass)
