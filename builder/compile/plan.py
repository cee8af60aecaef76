"""The step plan decides base, origin, ORT version and profile of one variant, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from builder import finding
from builder.binary.library_names import cuda_major
from builder.config.build_plan import (
    NO_BASE,
    BuildPlan,
    check_reach,
    compile_plan,
    lost,
    planned_units,
    widened,
)
from builder.config.inputs import Input, InputKind, ort_wheel
from builder.config.profiles import options_of
from builder.config.toolkits import MISSING, check_is_read, lint, toolkit_of
from builder.config.variants import Base, Origin, Project, SuiteSystem, System, Variant, provider_wheel
from builder.console import Reporter
from builder.contents.sentences import where
from builder.errors import (
    BuilderError,
    CompatibilityError,
    IntegrityError,
    ToolMissingError,
    TransferError,
    ValidationError,
)
from builder.facts.gpu.architectures import Arch, Capability, sm_names
from builder.facts.gpu.compatibility import driver_window, runs_sass
from builder.facts.gpu.table import CAPABILITIES
from builder.facts.ort.source_rules import SourceRules
from builder.finding import Code, Finding, Severity
from builder.formats.missing_kernels import consequence_of, counted
from builder.formats.package_names import CUDA, PROVIDER_LIBRARIES, WINDOWS, Host, Profile
from builder.formats.text import nearest
from builder.io.docker.engine import DockerEngine

Pin = Callable[[str], None]
"""Pins the inputs of the base of this name that have no pin, so that it can compile. Raises
``ToolMissingError``, ``TransferError`` or ``IntegrityError`` for a part that cannot be pinned here, and
``ConfigError`` for a part that exists nowhere."""

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
    source: str | None = None
    """The source that bases compile in place of their own (``build.source_trial``)."""
    dependencies: tuple[str, ...] = ()
    """What it is compiled with in place of its archives."""
    offline: bool = False
    """Whether no registry is contacted: a base on an image is used only if the engine has the image."""
    origin: Origin | None = None
    profile: Profile | None = None
    host: Host | None = None
    widen: bool = False
    """Whether the package must run on all GPUs that plain code for the set runs on (``widen: true``)."""
    cuda: str | None = None
    """The entry of ``toolkits`` whose CUDA packages are compiled with and for."""
    mixed: bool = False
    """Whether the wheel of ``onnxruntime.version`` is repacked if it serves the set, whatever the base's
    version."""
    release: bool = False
    """Whether plans that ``publish`` would refuse are refused."""


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans packages. For that it reads the CUDA providers in official wheels.

    A package's ORT version is that of its base, so all variants of a release have the same version.
    """

    options: PlanOptions
    engine: DockerEngine
    unpack: Callable[[Input], Path]
    """Returns the folder with a wheel's unpacked files; the wheel is fetched if needed."""
    native_sm: Callable[[Path], Sequence[Arch]]
    """Reads the architectures that every container of a provider has SASS for."""
    needed_libraries: Callable[[Path], Sequence[str]]
    """Reads the names of the libraries that a provider needs."""
    reporter: Reporter
    rules: Callable[[Base], SourceRules | None] = lambda _: None
    """Returns the rules of a base's source; ``None``: those that are stored for its version."""
    other_host: Callable[[Base], str] = lambda _: ""
    """Returns why the official host library is not of a base's source; empty if it is, or not known."""
    pin: Pin | None = None
    """Pins the inputs of a base that have no pin; with ``None`` they may stay without one."""

    def plan(self, project: Project, variant: Variant) -> BuildPlan:
        """Return the plan of one variant.

        For a package that cannot be tried here, the engine is asked only if the base has no pin and
        determines the version. Raises ``CompatibilityError`` for a set that the chosen toolchain cannot build
        and for a wheel of another CUDA than the bundled one, and ``TransferError`` for a requested base that
        cannot be reached.
        """
        warnings: list[Finding] = []
        if variant.is_official:
            decided = self._repack(project.of(variant), variant)
        else:
            decided, warnings = self._for_some_cuda(project, variant)
        if decided.origin is Origin.WHEEL and variant.provider == CUDA:
            self._require_served(decided)
            _require_bundled_cuda(decided, self.needed_libraries(self._provider(decided)))
        _report_decisions(decided, self.reporter, trial=self.options.source is not None)
        if variant.is_official and (idle := _for_compiled_alone(self.options)):
            self.reporter.say(
                f"note     {', '.join(idle)}: no effect, because {variant.name} is not compiled"
            )
        for warning in warnings:
            self.reporter.warn(str(warning))
        return decided

    def _for_some_cuda(self, project: Project, variant: Variant) -> tuple[BuildPlan, list[Finding]]:
        """Return the plan of a package that may be compiled, and what is doubtful about it.

        It is for the CUDA of the options, else for that of ``cuda``, unless its compiler cannot build the set
        of this source and that of another toolkit can.
        """
        others = [name for name, other in project.toolkits.items() if other.compiler]
        if (asked := self.options.cuda) is not None:
            if asked not in others:
                raise ValidationError(f"--cuda {asked!r} is none of {', '.join(others)}.")
            return self._compiling_with(project, variant, asked, "asked for")
        decided = self._decide(project, variant)
        try:
            return decided, self._warnings(decided)
        except CompatibilityError as refused:
            reason = str(refused).splitlines()[0].removeprefix("error ")
            for name in others:
                on_it = replace(self, options=replace(self.options, base=decided.base, cuda=name))
                with suppress(BuilderError):
                    made, warnings = on_it._compiling_with(project, variant, name, reason)  # noqa: SLF001
                    return replace(made, origin_reason=decided.origin_reason), warnings
            raise

    def _compiling_with(
        self, project: Project, variant: Variant, name: str, reason: str
    ) -> tuple[BuildPlan, list[Finding]]:
        other, base = project.compiling_with(name), self.options.base
        if base in project.bases and base not in other.bases:
            raise CompatibilityError(
                f"--cuda {name}: base {base} compiles with the toolkit of its image",
                advice=f"Use --base {' or '.join(other.bases) or 'auto'}.",
            )
        decided = replace(self._decide(other, variant), cuda_reason=reason)
        return decided, self._warnings(decided)

    def _decide(self, project: Project, variant: Variant) -> BuildPlan:
        """Return the plan of a package that is compiled unless the official wheel serves it."""
        options, project = self.options, project.of(variant)
        variant = replace(variant, widen=variant.widen or options.widen)
        is_whole = options.base == "auto" and not options.mixed
        base, base_reason = choose_base(project, options, self.engine, self.pin if is_whole else None)
        origin, origin_reason = self._choose_origin(project, variant, base)
        if not is_whole and origin is Origin.SOURCE:
            base, base_reason = choose_base(project, options, self.engine, self.pin)
        rules = self.rules(project.bases[base]) if origin is Origin.SOURCE else None
        decided = widened(replace(decide(project, variant, options, base, origin), source_rules=rules))
        decided = replace(decided, base_reason=base_reason, origin_reason=origin_reason)
        if origin is not Origin.SOURCE or decided.host is not Host.WHEEL:
            return decided
        reason = self.other_host(project.bases[base])
        is_compiled = reason and options.source and not options.host
        return replace(decided, host=Host.SOURCE if is_compiled else Host.WHEEL, host_reason=reason)

    def _provider(self, decided: BuildPlan) -> Path:
        return self.unpack(decided.ort_wheel) / PROVIDERS_IN_WHEELS[decided.variant.platform]

    def sass(self, decided: BuildPlan) -> Sequence[Arch]:
        """Return the architectures of a CUDA plan's SASS: the wheel's, or what will be compiled."""
        if decided.origin is Origin.WHEEL:
            return self.native_sm(self._provider(decided))
        return compile_plan(decided).whole_list.sass

    def _repack(self, project: Project, variant: Variant) -> BuildPlan:
        wheel = variant.wheel or self._of_the_release(project, variant)
        base, reason = NO_BASE, "nothing is compiled"
        if variant.is_tried_here:
            base, reason = choose_base(project, self.options, self.engine)
        return BuildPlan(
            project=project,
            variant=variant,
            base=base,
            base_reason=reason,
            origin=Origin.WHEEL,
            origin_reason=f"{wheel.requirement} holds the {variant.provider} provider for {variant.platform}",
            profile=None,
            host=Host.WHEEL,
            ort_version=wheel.requirement.rpartition("==")[2],
            ort_wheel=wheel,
        )

    def _of_the_release(self, project: Project, variant: Variant) -> Input:
        """Return the wheel for the variant's CUDA, without CUDA that of the release's version.

        An engine is used only if the base is open.
        """
        if variant.provider == CUDA:
            return ort_wheel(project.official_version(variant), variant.platform)
        options, base = self.options, self.options.base
        if base == "auto":
            base, _ = choose_base(project, options, self.engine, None if options.mixed else self.pin)
        return provider_wheel(variant, _released(project, options, base))

    def _choose_origin(self, project: Project, variant: Variant, base: str) -> tuple[Origin, str]:
        version = _released(project, self.options, base)
        wish = self.options.origin or project.onnxruntime.origin
        if variant.is_plugin and wish is Origin.WHEEL:
            raise CompatibilityError(
                f"variant {variant.name}: form plugin is compiled, and --origin wheel repacks",
                advice="Use --origin source (or auto).",
            )
        if reason := self._why_compiled(project, base, wish):
            return Origin.SOURCE, reason
        if variant.is_plugin:
            return Origin.SOURCE, "a plug-in is compiled"
        wheel = ort_wheel(version)
        provider = self.unpack(wheel) / PROVIDERS_IN_WHEELS[variant.platform]
        other = _another_cuda(project, self.needed_libraries(provider))
        if other and wish is Origin.AUTO and not self.options.mixed:
            return Origin.SOURCE, f"{wheel.spec} is for CUDA {other[0]}"
        sass = self.native_sm(provider)
        held = {arch.number for arch in sass}
        missing = _missing(variant, sass)
        patches = project.bases[base].patches  # the wheel has none of them
        if not missing and wish is Origin.AUTO and patches and version == project.bases[base].ort_version:
            return Origin.SOURCE, f"{wheel.spec} lacks {', '.join(patches)}"
        if not missing:
            return Origin.WHEEL, f"{wheel.spec} holds native code for all of {sm_names(variant.sm)}"
        lacks = f"{wheel.spec} lacks native code for {', '.join(missing)}"
        if wish is Origin.WHEEL:
            raise CompatibilityError(
                f"variant {variant.name}: --origin wheel is impossible",
                cause=f"{lacks}. It holds {', '.join(f'sm_{number}' for number in sorted(held))}",
                advice="Use --origin source (or auto).",
            )
        return Origin.SOURCE, lacks

    def _why_compiled(self, project: Project, base: str, wish: Origin) -> str:
        """Return why a package is compiled whatever the wheel holds; empty if it is not."""
        options, source = self.options, project.bases[base].source.item
        if wish is Origin.SOURCE or options.cuda:
            return "asked for"
        if options.source or source.kind is InputKind.TREE:
            return f"the source is {source.spec}"
        if wish is Origin.AUTO and options.profile not in (None, Profile.FULL):
            return f"profile {options.profile.value} was asked for"
        if wish is Origin.AUTO and (options.host or project.onnxruntime.host) is Host.SOURCE:
            return "host source was asked for"
        return ""

    def _require_served(self, decided: BuildPlan) -> None:
        variant, held = decided.variant, self.sass(decided)
        missing = _missing(replace(variant, widen=False), held)
        if missing:
            raise CompatibilityError(
                f"variants.{variant.name}.sm: {decided.ort_wheel.spec} does not serve this set",
                cause=f"it lacks native code for {', '.join(missing)} and holds {sm_names(held)}",
                advice=f"Nothing is compiled for {variant.name}: change the set.",
            )

    def _warnings(self, decided: BuildPlan) -> list[Finding]:
        """Return what is doubtful. Raises ``CompatibilityError`` for what the toolchain cannot build."""
        findings = _lint(decided)
        options_of(decided, compile_plan(decided))  # refuses a source without an option that it needs
        if decided.origin is Origin.WHEEL or not decided.rules.refused(decided.variant.sm):
            findings += check_reach(decided, self.sass(decided))
        return [*findings, *check_is_read(wheel.spec for wheel in decided.project.bundled)]


def _report_decisions(decided: BuildPlan, reporter: Reporter, *, trial: bool) -> None:
    reporter.say(f"base     {decided.base}: {decided.base_reason}")
    reporter.say(f"origin   {decided.origin.value}: {decided.origin_reason}")
    contents = (
        f"profile {decided.profile.value}, host {decided.host_origin}" if decided.profile else "as released"
    )
    if plugin := decided.rules.plugin if decided.variant.is_plugin else None:
        contents += f"; plug-in {plugin.version.value} for hosts from {plugin.oldest_host.value} on"
    reporter.say(f"ort      {decided.ort_version}, {contents}")
    if decided.host is Host.SOURCE and decided.host_reason:
        reporter.say(f"host     compiled too: {decided.host_reason}")
    if decided.cuda_reason:
        reporter.say(f"cuda     {cost_of_cuda(decided)}")
    if decided.origin is Origin.SOURCE:
        for name, one in decided.on.dependencies.items() if trial else ():
            reporter.say(f"with     {name}: {one.public}")
    if decided.added:
        reporter.say(
            f"widen    {sm_names(decided.added)} added: ONNX Runtime's CMake narrows the set to its own GPUs"
        )


def cost_of_cuda(decided: BuildPlan) -> str:
    """Return why a plan is for another CUDA than that of ``cuda``, and which driver its packages need."""
    cuda = decided.project.cuda.version
    floor, _ = driver_window(decided.variant.sm, cuda)
    return f"{cuda}, whose packages need driver {floor} or newer: {decided.cuda_reason}"


def _require_bundled_cuda(decided: BuildPlan, needed: Sequence[str]) -> None:
    """Raise ``CompatibilityError`` if the wheel's provider needs another CUDA than the package would have."""
    if other := _another_cuda(decided.project, needed):
        cuda, (major, name) = decided.project.cuda, other
        raise CompatibilityError(
            f"variant {decided.variant.name}: {decided.ort_wheel.spec} is for CUDA {major}, and the package "
            f"would have CUDA {cuda.version} ({cuda.libraries['cudart'].spec})",
            cause=f"its CUDA provider needs {name}",
            advice=" ".join(_ways_to_cuda(major, decided)),
        )


def _another_cuda(project: Project, needed: Sequence[str]) -> tuple[str, str] | None:
    """Return the first of the needed libraries that is not of the project's CUDA, after its major version."""
    ours = project.cuda.version.partition(".")[0]
    majors = ((cuda_major(name), name) for name in needed)
    return next(((major, name) for major, name in majors if major not in (None, ours)), None)


def _ways_to_cuda(major: str, decided: BuildPlan) -> Iterator[str]:
    """Yield what to do about a wheel of another CUDA, each as a sentence."""
    variant, project = decided.variant, decided.project
    fitting = [
        name
        for name, other in project.variants.items()
        if other.toolkit == major and other.platform == variant.platform and {*variant.sm} <= {*other.sm}
    ]
    if fitting:
        yield f"Variant {fitting[0]} has CUDA {major} and this set: --variant {fitting[0]}."
    elif variant.platform != WINDOWS and variant.toolkit is None:
        yield f'Write a variant with cuda: "{major}" and this set (docs/variants.md).'
    if variant.is_official:
        yield f"Or name a version of onnxruntime-gpu for CUDA {project.cuda.version} in variants.yaml."
    else:
        yield f"Or compile {variant.name} for CUDA {project.cuda.version}: --origin source."


def _for_compiled_alone(options: PlanOptions) -> list[str]:
    """Return the flags among ``options`` that change nothing about a package that is a wheel repacked."""
    given = {
        "--origin source": options.origin is Origin.SOURCE,
        "--profile": options.profile is not None,
        "--host": options.host is not None,
        "--widen": options.widen,
        "--cuda": options.cuda is not None,
        "--source": options.source is not None,
    }
    return [flag for flag, is_given in given.items() if is_given]


def _released(project: Project, options: PlanOptions, base: str) -> str:
    return project.onnxruntime.version if options.mixed else project.bases[base].ort_version


def choose_base(
    project: Project, options: PlanOptions, engine: DockerEngine, pin: Pin | None = None
) -> tuple[str, str]:
    """Return the name of the first base whose system is available, and the reason.

    A system is available if it is an image that the engine has or can fetch, or if it is assembled from
    Debian's archive. With ``pin``, all parts of the base are pinned too. Raises ``ConfigError`` for an
    unknown base and for a part that exists nowhere. Raises ``ToolMissingError`` if no base is available; for
    a base that the options name, its own error.
    """
    require_base(project, options.base)
    missed: dict[str, BuilderError] = {}
    for name in project.bases if options.base == "auto" else (options.base,):
        try:
            reason = _how_to_have(project.bases[name].system, options, engine)
            if pin:
                pin(name)
        except (ToolMissingError, TransferError, IntegrityError) as error:
            if options.base == name:
                raise
            missed[name] = error
        else:
            lacking = (f"{other} lacks a part: {_why_not(why)}" for other, why in missed.items())
            return name, "; ".join(lacking) or reason
    details = [f"  {name} lacks a part: {error}" for name, error in missed.items()]
    raise ToolMissingError("no base of variants.yaml is available:", details=details)


def require_base(project: Project, base: str) -> None:
    """Raise ``ValidationError`` unless ``base`` is ``auto`` or one of the project's."""
    known = ("auto", *project.bases)
    if base not in known:
        raise ValidationError(
            f"--base {base!r} is none of {', '.join(known)}. {nearest(base, known)}".rstrip()
        )


def _why_not(error: BuilderError) -> str:
    return "no Docker engine answers" if isinstance(error, ToolMissingError) else error.headline.rstrip(".")


def _how_to_have(system: System, options: PlanOptions, engine: DockerEngine) -> str:
    if isinstance(system, SuiteSystem):
        return "asked for"
    image = system.image.spec
    if engine.has_image(image):
        return f"{image} is on this engine"
    if options.offline:
        raise TransferError(
            f"{image} is not on this engine", cause="--offline asks no registry", advice="Pull it first."
        )
    engine.resolve(image)
    return f"{image} can be pulled"


def _missing(variant: Variant, held: Sequence[Arch]) -> list[str]:
    """Return the names of the variant's architectures and capabilities that ``held`` does not serve."""
    numbers = {arch.number for arch in held}
    there = [arch for arch in variant.sm if arch.number in numbers]
    narrowed = lost(there, held) if variant.widen else ()
    absent = [arch for arch in variant.sm if arch not in there]
    return [*(f"sm_{arch}" for arch in absent), *(f"compute capability {device}" for device in narrowed)]


def coverage_to_come(decided: BuildPlan, sass: Sequence[Arch]) -> str:
    """Return a line with the GPUs that every unit of a package with ``sass`` will run on natively."""
    lacking = {device for wheel in decided.project.bundled for device in MISSING.get(wheel.spec, ())}
    units = planned_units(decided) if decided.origin is Origin.SOURCE else ()

    def is_native(device: Capability) -> bool:
        meant = (one.sass for one in units if one.meant_for(device.major * 10 + device.minor))
        return all(any(runs_sass(arch, device) for arch in some) for some in (sass, *meant))

    native = [device for device in CAPABILITIES if device not in lacking and is_native(device)]
    return (
        f"runs     natively on {where(native)}" if native else "runs     natively on no GPU that NVIDIA lists"
    )


def decide(project: Project, variant: Variant, options: PlanOptions, base: str, origin: Origin) -> BuildPlan:
    """Return the plan that follows from a base and an origin, without any check or reason."""
    compiled = origin is Origin.SOURCE
    version = project.bases[base].ort_version if compiled else _released(project, options, base)
    return BuildPlan(
        project=project,
        variant=variant,
        base=base,
        base_reason="",
        origin=origin,
        origin_reason="",
        profile=(options.profile or project.onnxruntime.profile) if compiled else None,
        host=_host(project, variant, options) if compiled else Host.WHEEL,
        ort_version=version,
        ort_wheel=ort_wheel(version),
    )


def _host(project: Project, variant: Variant, options: PlanOptions) -> Host | None:
    if not variant.is_plugin:
        return options.host or project.onnxruntime.host
    if options.host:
        raise ValidationError(
            f"--host {options.host.value} says where the host library comes from, and a plug-in has none",
            advice="Leave --host or --form plugin out.",
        )
    return None


def _lint(decided: BuildPlan) -> list[Finding]:
    """Return the warnings that need the chosen toolchain; ``variants.yaml`` was checked for all others.

    Raises ``CompatibilityError`` if there is an error among the findings.
    """
    if decided.origin is not Origin.SOURCE:
        return []
    findings = [
        *(*lint(toolkit_of(decided)), *_without_kernels(decided)),
        *(*_lost_units(decided), *_left_out_operators(decided), *_another_host(decided)),
    ]
    if failed := finding.errors(findings):
        raise CompatibilityError([str(one) for one in failed])
    return findings


def _lost_units(decided: BuildPlan) -> Iterator[Finding]:
    """Yield a warning for each group of units that no target of the set has, although other code needs it.

    Code for one architecture, which CMake's target is named by (``sm90``), is called on that one alone.
    """
    for group in compile_plan(decided).lost:
        if not re.search(r"\bsm\d", group.name):
            least = min(one.first for one in group.ranges)
            yield Finding(
                code=Code.C015,
                path=f"variants.{decided.variant.name}.sm",
                message=f"its CMake files compile no unit of {group.name} ({group.units}) for this set "
                f"({group.line}): what calls them may not link, or not load",
                wanted=f"a set with sm_{least} or newer, another version, or --profile lean",
                got=sm_names(decided.variant.sm),
                severity=Severity.WARNING,
            )


def _left_out_operators(decided: BuildPlan) -> Iterator[Finding]:
    """Yield C006 for each repair by which operators do not run on the oldest GPUs of the set."""
    for repair in decided.repairs if decided.profile is Profile.FULL else ():
        if repair.operators:
            weak = [arch for arch in decided.variant.sm if arch.number < repair.below]
            yield Finding(
                code=Code.C006,
                path=f"variants.{decided.variant.name}.sm",
                message=f"operators that do not run there: {repair.operators}. {repair.why} "
                f"({decided.rules.repairs[repair.name]})",
                wanted=f"sm_{repair.below} or newer for these",
                got=sm_names(weak),
                severity=Severity.WARNING,
            )


def _another_host(decided: BuildPlan) -> Iterator[Finding]:
    if decided.host is Host.WHEEL and decided.host_reason:
        yield Finding(
            code=Code.C018,
            path="onnxruntime.host",
            message=f"{decided.host_reason}: a provider may crash in a host library of another source",
            wanted="--host source",
            got="host wheel",
            severity=Severity.WARNING,
        )


def _without_kernels(decided: BuildPlan) -> Iterator[Finding]:
    if decided.profile is None:
        return
    missing, is_full = decided.cannot_run, decided.profile is Profile.FULL
    if consequence := consequence_of(missing, decided.host_origin):
        yield Finding(
            code=Code.C011,
            path=f"variants.{decided.variant.name}.form" if is_full else "onnxruntime.profile",
            message=f"operators without CUDA kernels in the package: {counted(missing)}. {consequence.means}",
            wanted="--form provider" if is_full else f"--profile full{consequence.otherwise}",
            got=f"profile {decided.profile.value}, host {decided.host_origin}",
            severity=Severity.WARNING,
        )
