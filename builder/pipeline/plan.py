"""The step plan decides base, origin, ORT version and profile of one variant, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from builder.errors import BuilderError, CompatibilityError, ToolMissingError, TransferError, ValidationError
from builder.findings import finding
from builder.findings.finding import Code, Finding, Severity
from builder.formats.missing_kernels import cannot_run, consequence_of, counted
from builder.formats.package_names import CUDA, PROVIDER_LIBRARIES, Host, Layout, Profile
from builder.formats.text import nearest
from builder.gpu.architectures import Arch
from builder.gpu.compatibility import runs_sass
from builder.gpu.table import CAPABILITIES
from builder.onnxruntime.architecture_list import refused
from builder.onnxruntime.toolchain import check_reach, compiled_for, lost, tools, widened
from builder.onnxruntime.versions import sm_names
from builder.ports import Engine, Reporter, Store
from builder.project.bases import SuiteSystem
from builder.project.build_plan import NO_BASE, BuildPlan
from builder.project.inputs import Input, ort_wheel
from builder.project.variants import Origin, Project, Variant, provider_wheel
from builder.report.sentences import where
from builder.rules.nvidia_libraries import MISSING, check_is_read
from builder.rules.toolkits import lint

T = TypeVar("T")

PROVIDERS_IN_WHEELS = {
    platform: Path("onnxruntime/capi", name) for platform, name in PROVIDER_LIBRARIES.items()
}
"""Path of the CUDA provider in the official wheel, by platform."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The command line's flags on what to build.

    ``None`` and ``"auto"`` mean the value of ``variants.yaml``.
    """

    base: str = "auto"
    offline: bool = False
    """Whether no registry is contacted: a base on an image is used only if the engine has the image."""
    origin: Origin | None = None
    profile: Profile | None = None
    host: Host | None = None
    widen: bool = False
    """Whether the package must run on all GPUs that plain code for the set runs on (``widen: true``)."""
    mixed: bool = False
    """Whether the wheel of ``onnxruntime.version`` is repacked if it serves, even if the base has another."""
    release: bool = False
    """Whether all layouts are made, and plans that ``publish`` would refuse are refused."""


@dataclass(frozen=True, kw_only=True)
class Decision(Generic[T]):
    """A decision and its reason."""

    value: T
    reason: str


def plan(
    project: Project,
    variant: Variant,
    options: PlanOptions,
    *,
    engine: Engine,
    store: Store,
    native_sm: Callable[[Path], Sequence[Arch]],
    reporter: Reporter,
) -> BuildPlan:
    """Return the plan of one variant.

    Its base decides the ORT version, so all variants of a release share it.

    A package without CUDA needs no store; a package that no engine here can try needs the engine only if its
    base is open and determines the version. ``native_sm`` reads the architectures that every container of a
    provider library has SASS for. Raises ``CompatibilityError`` for a set that the chosen toolchain cannot
    build, and ``TransferError`` for a requested base that cannot be reached.
    """
    if options.release:
        project = replace(project, bundle=replace(project.bundle, layouts=tuple(Layout)))
    project = project.of(variant)
    if variant.is_official:
        decided = _repack(project, variant, options, engine)
        if variant.provider == CUDA:
            _require_served(decided, native_sm(provider_in(decided, store)))
        _report_decisions(decided, reporter)
        if idle := _for_compiled_alone(options):
            reporter.say(f"note     {', '.join(idle)}: no effect, because {variant.name} is not compiled")
        return decided
    variant = replace(variant, widen=variant.widen or options.widen)
    read = cache(native_sm)
    base = choose_base(project, options, engine)
    wheel = ort_wheel(_released(project, options, base.value))
    origin = _choose_origin(
        project,
        variant,
        options,
        wheel,
        patches=_missing_patches(project, options, base.value),
        native_sm=lambda: read(store.unpack(wheel) / PROVIDERS_IN_WHEELS[variant.platform]),
    )
    decided = widened(decide(project, variant, options, base, origin))
    unread = check_is_read(wheel.spec for wheel in project.bundled)
    warnings = [*_lint(decided), *_reach_findings(decided, store, read), *unread]
    _report_decisions(decided, reporter)
    for warning in warnings:
        reporter.warn(str(warning))
    return decided


def _report_decisions(decided: BuildPlan, reporter: Reporter) -> None:
    reporter.say(f"base     {decided.base}: {decided.base_reason}")
    reporter.say(f"origin   {decided.origin.value}: {decided.origin_reason}")
    contents = (
        f"profile {decided.profile.value}, host {decided.host.value}" if decided.profile else "as released"
    )
    reporter.say(f"ort      {decided.ort_version}, {contents}")
    if decided.added:
        reporter.say(
            f"widen    {sm_names(decided.added)} added: ONNX Runtime's CMake narrows the set to its own GPUs"
        )


def _repack(project: Project, variant: Variant, options: PlanOptions, engine: Engine) -> BuildPlan:
    """Return the plan of a package that is an official wheel repacked."""
    wheel = variant.wheel or _of_the_release(project, variant, options, engine)
    tried = variant.is_tried_here
    base = (
        choose_base(project, options, engine)
        if tried
        else Decision(value=NO_BASE, reason="nothing is compiled")
    )
    return BuildPlan(
        project=project,
        variant=variant,
        base=base.value,
        base_reason=base.reason,
        origin=Origin.WHEEL,
        origin_reason=f"{wheel.requirement} holds the {variant.provider} provider for {variant.platform}",
        profile=None,
        host=Host.WHEEL,
        ort_version=wheel.requirement.rpartition("==")[2],
        ort_wheel=wheel,
    )


def _require_served(decided: BuildPlan, held: Sequence[Arch]) -> None:
    """Raise ``CompatibilityError`` if the wheel lacks native code for an architecture of the set."""
    variant = decided.variant
    missing = _missing(replace(variant, widen=False), held)
    if missing:
        raise CompatibilityError(
            f"variants.{variant.name}.sm: {decided.ort_wheel.spec} does not serve this set",
            cause=f"it lacks native code for {', '.join(missing)} and holds {sm_names(held)}",
            advice=f"Nothing is compiled for {variant.name}: change the set.",
        )


def _for_compiled_alone(options: PlanOptions) -> list[str]:
    """Return the flags among ``options`` that change nothing about a package that is a wheel repacked."""
    given = {
        "--origin source": options.origin is Origin.SOURCE,
        "--profile": options.profile is not None,
        "--host": options.host is not None,
        "--widen": options.widen,
    }
    return [flag for flag, is_given in given.items() if is_given]


def _of_the_release(project: Project, variant: Variant, options: PlanOptions, engine: Engine) -> Input:
    """Return the wheel of the toolkit's or the release's version.

    An engine is used only if the base is open.
    """
    if variant.toolkit:
        return ort_wheel(project.toolkits[variant.toolkit].ort_version, variant.platform)
    base = choose_base(project, options, engine).value if options.base == "auto" else options.base
    version = _released(project, options, base)
    return (
        ort_wheel(version, variant.platform) if variant.provider == CUDA else provider_wheel(variant, version)
    )


def _released(project: Project, options: PlanOptions, base: str) -> str:
    """Return the version of the official wheels that are repacked."""
    return project.onnxruntime.version if options.mixed else project.bases[base].ort_version


def _missing_patches(project: Project, options: PlanOptions, base: str) -> Sequence[str]:
    """Return the base's patches if the official wheel has the base's version; the wheel has none of them."""
    same = _released(project, options, base) == project.bases[base].ort_version
    return project.bases[base].patches if same else ()


def choose_base(project: Project, options: PlanOptions, engine: Engine) -> Decision[str]:
    """Return the first base whose system is available: an image that is present or can be pulled, or Debian.

    Raises ``ValidationError`` for an unknown base, and ``TransferError`` or ``ToolMissingError`` if the
    requested base, or every base, is unavailable.
    """
    require_base(project, options.base)
    missed: list[str] = []
    for name in project.bases if options.base == "auto" else (options.base,):
        system = project.bases[name].system
        if isinstance(system, SuiteSystem):
            return Decision(value=name, reason="; ".join(missed) or "asked for")
        try:
            reason = f"{system.image.spec} {_how_to_have(system.image.spec, options, engine)}"
            return Decision(value=name, reason=reason)
        except (ToolMissingError, TransferError) as error:
            if options.base == name:
                raise
            missed.append(_why_not(system.image.spec, error))
    raise ToolMissingError(f"no base of variants.yaml is available: {'; '.join(missed)}")


def require_base(project: Project, base: str) -> None:
    """Raise ``ValidationError`` unless ``base`` is ``auto`` or one of the project's."""
    known = ("auto", *project.bases)
    if base not in known:
        raise ValidationError(
            f"--base {base!r} is none of {', '.join(known)}. {nearest(base, known)}".rstrip()
        )


def _why_not(image: str, error: BuilderError) -> str:
    if isinstance(error, ToolMissingError):
        return "no Docker engine answers"
    return f"{image} is neither here nor pullable: {error.cause or error.what}"


def _how_to_have(image: str, options: PlanOptions, engine: Engine) -> str:
    if engine.has_image(image):
        return "is on this engine"
    if options.offline:
        raise TransferError(
            f"{image} is not on this engine", cause="--offline asks no registry", advice="Pull it first."
        )
    engine.resolve(image)
    return "can be pulled"


def _choose_origin(
    project: Project,
    variant: Variant,
    options: PlanOptions,
    wheel: Input,
    *,
    patches: Sequence[str],
    native_sm: Callable[[], Sequence[Arch]],
) -> Decision[Origin]:
    wish = options.origin or project.onnxruntime.origin
    if wish is Origin.SOURCE:
        return Decision(value=Origin.SOURCE, reason="asked for")
    if wish is Origin.AUTO and options.profile not in (None, Profile.FULL):
        return Decision(value=Origin.SOURCE, reason=f"profile {options.profile.value} was asked for")
    if wish is Origin.AUTO and options.host is Host.SOURCE:
        return Decision(value=Origin.SOURCE, reason="host source was asked for")
    sass = native_sm()
    held = {arch.number for arch in sass}
    missing = _missing(variant, sass)
    if not missing and wish is Origin.AUTO and patches:
        return Decision(value=Origin.SOURCE, reason=f"{wheel.spec} lacks {', '.join(patches)}")
    if not missing:
        return Decision(
            value=Origin.WHEEL, reason=f"{wheel.spec} holds native code for all of {sm_names(variant.sm)}"
        )
    lacks = f"{wheel.spec} lacks native code for {', '.join(missing)}"
    if wish is Origin.WHEEL:
        raise CompatibilityError(
            f"variant {variant.name}: --origin wheel is impossible",
            cause=f"{lacks}. It holds {', '.join(f'sm_{number}' for number in sorted(held))}",
            advice="Use --origin source (or auto).",
        )
    return Decision(value=Origin.SOURCE, reason=lacks)


def _missing(variant: Variant, held: Sequence[Arch]) -> list[str]:
    """Return the names of the variant's architectures and capabilities that ``held`` does not serve."""
    numbers = {arch.number for arch in held}
    there = [arch for arch in variant.sm if arch.number in numbers]
    narrowed = lost(there, held) if variant.widen else ()
    absent = [arch for arch in variant.sm if arch not in there]
    return [*(f"sm_{arch}" for arch in absent), *(f"compute capability {device}" for device in narrowed)]


def _reach_findings(
    decided: BuildPlan, store: Store, native_sm: Callable[[Path], Sequence[Arch]]
) -> Iterable[Finding]:
    """Return the findings C012, from the wheel's code or the code that will be compiled."""
    sm = decided.variant.sm
    if decided.origin is Origin.WHEEL:
        return check_reach(decided, native_sm(provider_in(decided, store)))
    return () if refused(sm, decided.ort_version) else check_reach(decided, compiled_for(sm, decided).sass)


def provider_in(decided: BuildPlan, store: Store) -> Path:
    """Return the path of the CUDA provider in the unpacked wheel of a plan.

    The wheel is fetched if needed.
    """
    return store.unpack(decided.ort_wheel) / PROVIDERS_IN_WHEELS[decided.variant.platform]


def coverage_to_come(decided: BuildPlan, native_sm: Callable[[], Sequence[Arch]]) -> str:
    """Return a line with the GPUs that a CUDA plan's package will run on natively.

    ``native_sm`` reads the wheel of a plan that repacks one, as in ``plan``.
    """
    project = decided.project
    sass = native_sm() if decided.origin is Origin.WHEEL else compiled_for(decided.variant.sm, decided).sass
    lacking = {device for wheel in project.bundled for device in MISSING.get(wheel.spec, ())}
    reached = [device for device in CAPABILITIES if any(runs_sass(arch, device) for arch in sass)]
    found = [device for device in reached if device not in lacking]
    return (
        f"runs     natively on {where(found)}" if found else "runs     natively on no GPU that NVIDIA lists"
    )


def decide(
    project: Project,
    variant: Variant,
    options: PlanOptions,
    base: Decision[str],
    origin: Decision[Origin],
) -> BuildPlan:
    """Return the plan that follows from a base and an origin, without any check."""
    compiled = origin.value is Origin.SOURCE
    version = project.bases[base.value].ort_version if compiled else _released(project, options, base.value)
    return BuildPlan(
        project=project,
        variant=variant,
        base=base.value,
        base_reason=base.reason,
        origin=origin.value,
        origin_reason=origin.reason,
        profile=(options.profile or project.onnxruntime.profile) if compiled else None,
        host=(options.host or project.onnxruntime.host) if compiled else Host.WHEEL,
        ort_version=version,
        ort_wheel=ort_wheel(version),
    )


def _lint(decided: BuildPlan) -> list[Finding]:
    """Return the warnings that need the chosen toolchain; ``variants.yaml`` was checked for all others.

    Raises ``CompatibilityError`` if there is an error among the findings.
    """
    if decided.origin is not Origin.SOURCE:
        return []
    project = decided.project
    nvcc, ptxas = tools(decided)
    findings = lint(
        variant=decided.variant.name,
        sm=decided.variant.sm,
        cuda=project.cuda.version,
        cudnn=project.cudnn.version,
        ort=decided.ort_version,
        nvcc=nvcc,
        ptxas=ptxas,
    )
    findings += _without_kernels(decided)
    failed = finding.errors(findings)
    if failed:
        raise CompatibilityError([str(one) for one in failed])
    return findings


def _without_kernels(decided: BuildPlan) -> list[Finding]:
    """Return the finding C011: the operators that a package with a reduced profile lacks."""
    if decided.profile is None:
        return []
    missing = cannot_run(decided.profile.value, decided.ort_version)
    found = consequence_of(missing, decided.host.value)
    if found is None:
        return []
    return [
        Finding(
            code=Code.C011,
            path="onnxruntime.profile",
            message=f"operators without CUDA kernels in the package: {counted(missing)}. {found.means}",
            wanted=f"--profile full{found.otherwise}",
            got=f"profile {decided.profile.value}, host {decided.host.value}",
            severity=Severity.WARNING,
        )
    ]
