"""Comparison of a compiled plan with the official build of the same ORT version: differences with reasons.

``official_build.json`` has the architectures and options of Microsoft's own builds for Linux x64, by ORT
version. One build makes the wheel ``onnxruntime-gpu`` (``build_linux_python_package.sh``), which ``origin:
wheel`` repacks and ``host: wheel`` takes the host library from. The other makes the archive of the C API
(``build_cuda_c_api_package.sh``). Both scripts are in ``tools/ci_build/github/linux``. Source for 1.21.0: the
scripts in its source tree; for later lists: the pull requests named with them, and the scripts at that time.
Where the containers of a wheel were counted, they agree with its list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from builder.compile.plan import cost_of_cuda
from builder.config.build_plan import BuildPlan, CompilePlan, compile_plan
from builder.config.build_plan import lost as lost_capabilities
from builder.config.profiles import options_of
from builder.config.toolkits import TOOLS, check_version, toolkit_of
from builder.facts.gpu.architectures import sm_names
from builder.facts.gpu.compatibility import runs_sass, version_of
from builder.facts.gpu.table import CAPABILITIES
from builder.facts.ort.known_rules import loads, standing_for
from builder.facts.ort.source_rules import Compiled
from builder.formats.package_names import Profile


@dataclass(frozen=True, kw_only=True)
class _OfReleases:
    source: str
    first: str = "0"
    """The first release that it holds for."""
    last: str = ""
    """The last one, with all of its line for two numbers; empty if it holds for all that follow."""

    def holds(self, version: str) -> bool:
        numbers, last = version_of(version), version_of(self.last or "9999")
        return version_of(self.first) <= numbers and numbers[: len(last)] <= last


@dataclass(frozen=True, kw_only=True)
class ArchList(_OfReleases):
    """The values of CMAKE_CUDA_ARCHITECTURES of the official wheel and C API archive, built with CUDA 12."""

    wheel: str
    archive: str


@dataclass(frozen=True, kw_only=True)
class Setting(_OfReleases):
    """A CMake option: its value in the official build, and its default."""

    name: str
    value: str
    default: str
    argued: str = ""
    """The reason why this project's value differs, where it does not depend on the profile; else empty."""


@dataclass(frozen=True)
class _Tables:
    lists: tuple[ArchList, ...]
    settings: tuple[Setting, ...]


_TABLES = loads(_Tables, files("builder.compile").joinpath("official_build.json").read_text(encoding="utf-8"))

SETTINGS = _TABLES.settings
"""Options that the official build or this project sets, without those that always agree or are paths."""


def arch_list(version: str) -> ArchList:
    """Return the official lists of architectures for ``version``; for a newer one, the latest known lists."""
    return next(entry for entry in _TABLES.lists if entry.holds(version))


def settings(version: str) -> Iterator[Setting]:
    """Return the options of the official build of ``version``."""
    return (setting for setting in SETTINGS if setting.holds(version))


@dataclass(frozen=True)
class Difference:
    """One option whose value differs from that of the official build."""

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
    """The result of ``render --explain`` for one plan."""

    title: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    """Sentences on the effects of the ORT version on the plan."""


def explain(plan: BuildPlan) -> Explanation:
    """Return the differences between a plan and the official build; none for a plan that compiles nothing."""
    version = plan.ort_version
    if plan.profile is None:
        title = f"{plan.variant.name}: the official build of ONNX Runtime {version} itself, repacked"
        return Explanation(title, (), ())
    division = compile_plan(plan)
    return Explanation(
        title=f"{plan.variant.folder}: profile {plan.profile.value} on base {plan.base}, against the "
        f"official build of ONNX Runtime {version}",
        differences=tuple(_differences(plan, division)),
        notes=tuple(_notes(plan, division)),
    )


def _differences(plan: BuildPlan, division: CompilePlan) -> Iterator[Difference]:
    yield _architectures(plan, division)
    yield _RAW
    ours = {option.name: option for option in options_of(plan, division)}
    for official in settings(plan.ort_version):
        option = ours.get(official.name)
        value = option.value if option else official.default
        if value != official.value:
            reason = official.argued or (option.reason if option else "")
            yield Difference(official.name, value, official.value, reason)


def _architectures(plan: BuildPlan, division: CompilePlan) -> Difference:
    version, sm = plan.ort_version, plan.variant.sm
    official = arch_list(version)
    wheel, archive = (plan.rules.read_list(listed) for listed in (official.wheel, official.archive))
    ours = Compiled(sm, ()) if plan.rules.refused(sm) else division.whole_list
    reason = f"variants.{plan.variant.name}.sm; theirs is the wheel's for CUDA 12, the archive's is {archive}"
    return Difference("CMAKE_CUDA_ARCHITECTURES", str(ours), str(wheel), reason)


def _notes(plan: BuildPlan, division: CompilePlan) -> Iterator[str]:
    least = plan.rules.minimums
    if not plan.rules.refused(plan.variant.sm):
        yield from _made_of(plan, division)
    tools = [f"{name} {least[key].value}" for key, name in TOOLS.items() if key in least]
    lines = ", ".join(str(least[key].line) for key in TOOLS if key in least)
    yield f"this version is compiled with {', '.join(tools)} or newer ({lines})"
    if plan.rules.stands_in:
        stand_in = standing_for(plan.ort_version).source
        yield f"the rules are those of {stand_in}: this version's own source was not read"
    if plan.cuda_reason:
        yield f"CUDA {cost_of_cuda(plan)}"
    yield from plan.rules.notes
    if plugin := plan.rules.plugin if plan.variant.is_plugin else None:
        yield f"hosts from {plugin.oldest_host.value} on register it ({plugin.oldest_host.line})"
        yield f"it is made for ORT_API_VERSION {plugin.api_version.value} ({plugin.api_version.line})"
        if schemas := plugin.contrib_schemas:
            yield f"sha256 of its contrib operators' schemas: {schemas.value} ({schemas.line})"
    for repair in plan.repairs:
        place = plan.rules.repairs.get(repair.name)
        where = (
            f"the source is repaired at {place}" if place else f"{repair.dependency} is repaired if need be"
        )
        yield f"{where} ({repair.name}): {repair.why}"
    yield from (f"the source is patched with {patch}, which says why" for patch in plan.patches)
    yield from (f"{finding.code.name} {finding.message}" for finding in check_version(toolkit_of(plan)))


def _made_of(plan: BuildPlan, division: CompilePlan) -> Iterator[str]:
    plain = [arch for arch in division.targets.compiled if arch.suffix != "f"]
    for asked, becomes in ((arch, plan.rules.rewritten(arch)) for arch in plain):
        if asked == becomes:
            continue
        devices = ", ".join(str(device) for device in CAPABILITIES if runs_sass(becomes, device))
        lost = ", ".join(map(str, lost_capabilities([asked], [becomes])))
        alone = f" alone, not on {lost}" if lost else ""
        yield f"sm_{asked} becomes sm_{becomes}, which runs on {devices}{alone} ({plan.rules.rewriting.line})"
    if plan.added:
        yield f"added for the GPUs that this loses (widen): {sm_names(plan.added)}"
    if plan.profile is Profile.FULL:
        yield from _left_out(division)
        yield from _grouped(division)
    for new, old in division.parts[-1].ptx.items():
        if new != old and new not in division.targets.assembled:
            made = f"SASS for sm_{new} is made from the PTX of compute_{old}"
            yield f"{made}: no source asks for more than that"


def _grouped(division: CompilePlan) -> Iterator[str]:
    """Yield sentences on the units that ORT's CMake compiles for a part of the set by itself."""
    whole = frozenset(map(division.rules.rewritten, division.sm))
    for group in division.rules.groups:
        made = group.compiled(whole)
        units = f"{group.name}, {group.units} unit{'s' * (group.units > 1)}"
        if made == whole:
            continue
        if made:
            yield f"{units}: compiled for {' '.join(map(str, sorted(made)))} alone ({group.line})"
        else:
            means = (
                "what calls them may not link" if group in division.lost else "what calls them is left out"
            )
            yield f"{units}: in no target for this set ({group.line}): {means}"


def _left_out(division: CompilePlan) -> Iterator[str]:
    """Yield sentences on the units that are left out or compiled for fewer architectures, with the reason."""
    for launch in division.left_out:
        yield f"{launch.name} is left out: no architecture of the set launches it ({launch.source})"
    parts = [(part.launch, part.ptx) for part in division.parts if part.launch]
    for launch, ptx in parts:
        if {*ptx} == {*division.sm}:
            continue
        targets = " ".join(map(str, ptx))
        yield f"{launch.name} is compiled for {targets}: nothing else launches it ({launch.source})"
        for arch in sorted(launch.launched(division.sm) - ptx.keys()):
            older = launch.served[arch.number]
            yield f"{launch.name}: sm_{arch} runs the SASS for sm_{older}, made from the same PTX"
    for launch, ptx in parts:
        for new, old in ptx.items():
            if new != old == launch.ptx:
                yield f"{launch.name}: SASS for sm_{new} is made from compute_{old}'s PTX, which is the same"
