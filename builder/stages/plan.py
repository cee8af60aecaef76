"""plan: decide everything about one variant before a byte is compiled.

Which base, which origin, which ORT version, which profile: each with its reason, so that the user reads why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from builder.core import checks
from builder.core.arch import Arch
from builder.core.catalogue import ort_wheel
from builder.core.checks import Code, Finding, Severity
from builder.core.missing_kernels import cannot_run, counted, shortcoming
from builder.core.ports import Engine, Reporter, Store
from builder.core.providers import CUDA
from builder.core.support import lint
from builder.core.variant import NO_BASE, BuildPlan, Host, Origin, Profile, Project, Variant
from builder.errors import CompatibilityError, ToolMissingError, TransferError

T = TypeVar("T")

PROVIDER_IN_WHEEL = Path("onnxruntime/capi/libonnxruntime_providers_cuda.so")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the command line asked for; ``None`` and ``"auto"`` leave it to ``variants.yaml``."""

    base: str = "auto"
    offline: bool = False
    """Ask no registry: NVIDIA's base only where its image is here already."""
    origin: Origin | None = None
    profile: Profile | None = None
    host: Host | None = None


@dataclass(frozen=True, kw_only=True)
class Choice(Generic[T]):
    """A decision and why."""

    value: T
    reason: str


def plan(
    project: Project,
    variant: Variant,
    wishes: Wishes,
    *,
    engine: Engine,
    store: Store,
    native_sm: Callable[[Path], Sequence[Arch]],
    reporter: Reporter,
) -> BuildPlan:
    """One decided variant. One without CUDA asks neither engine nor store: its wheel decides everything.

    ``native_sm`` reads which architectures a provider library holds SASS for in every container.
    Raises ``CompatibilityError`` for a set the chosen toolchain cannot build, ``TransferError`` for a base
    that was insisted on and cannot be reached.
    """
    if variant.provider != CUDA:
        decided = _repack(project, variant)
        _tell(decided, reporter)
        return decided
    base = choose_base(project, wishes, engine)
    origin = _choose_origin(project, variant, wishes, store, native_sm)
    decided = _decide(project, variant, wishes, base, origin)
    warnings = _lint(decided)
    _tell(decided, reporter)
    for warning in warnings:
        reporter.warn(str(warning))
    return decided


def _tell(decided: BuildPlan, reporter: Reporter) -> None:
    reporter.say(f"base     {decided.base}: {decided.base_reason}")
    reporter.say(f"origin   {decided.origin.value}: {decided.origin_reason}")
    made = f"profile {decided.profile.value}, host {decided.host.value}" if decided.profile else "as released"
    reporter.say(f"ort      {decided.ort_version}, {made}")


def _repack(project: Project, variant: Variant) -> BuildPlan:
    """The plan of a package without CUDA: its official wheel, as it is."""
    wheel = variant.wheel or ort_wheel(project.onnxruntime.version)
    return BuildPlan(
        project=project,
        variant=variant,
        base=NO_BASE,
        base_reason="nothing is compiled",
        origin=Origin.WHEEL,
        origin_reason=f"{wheel.requirement} holds the {variant.provider} provider for {variant.platform}",
        profile=None,
        host=Host.WHEEL,
        ort_version=wheel.requirement.rpartition("==")[2],
        ort_wheel=wheel,
    )


def choose_base(project: Project, wishes: Wishes, engine: Engine) -> Choice[str]:
    """``nvidia`` where its image is present or can be had, else ``assembled``.

    Raises ``TransferError`` or ``ToolMissingError`` when ``nvidia`` was insisted on and cannot be had.
    """
    image = project.bases.nvidia.image.spec
    if wishes.base == "assembled":
        return Choice(value="assembled", reason="asked for")
    try:
        return Choice(value="nvidia", reason=f"{image} {_how_to_have(image, wishes, engine)}")
    except ToolMissingError:
        if wishes.base == "nvidia":
            raise
        return Choice(value="assembled", reason="no Docker engine answers")
    except TransferError as error:
        if wishes.base == "nvidia":
            raise
        why = f"{image} is neither here nor pullable: {_root_cause(error)}"
        return Choice(value="assembled", reason=why)


def _how_to_have(image: str, wishes: Wishes, engine: Engine) -> str:
    if engine.has_image(image):
        return "is on this engine"
    if wishes.offline:
        raise TransferError(f"{image} is not on this engine: --offline asks no registry. Pull it first.")
    engine.resolve(image)
    return "can be pulled"


def _root_cause(error: TransferError) -> str:
    """Of ``what: who said so: why. Advice.`` only the why: the line is read on every build."""
    sentence = str(error).split("\n", maxsplit=1)[0].split(". ")[0]
    return sentence.rsplit(": ", maxsplit=1)[-1].rstrip(".")


def _choose_origin(
    project: Project,
    variant: Variant,
    wishes: Wishes,
    store: Store,
    native_sm: Callable[[Path], Sequence[Arch]],
) -> Choice[Origin]:
    wish = wishes.origin or project.onnxruntime.origin
    if wish is Origin.SOURCE:
        return Choice(value=Origin.SOURCE, reason="asked for")
    if wish is Origin.AUTO and wishes.profile not in (None, Profile.FULL):
        return Choice(value=Origin.SOURCE, reason=f"profile {wishes.profile.value} was asked for")
    if wish is Origin.AUTO and wishes.host is Host.SOURCE:
        return Choice(value=Origin.SOURCE, reason="host source was asked for")
    wheel = ort_wheel(project.onnxruntime.version)
    held = {arch.number for arch in native_sm(store.unpack(wheel) / PROVIDER_IN_WHEEL)}
    missing = [f"sm_{arch}" for arch in variant.sm if arch.number not in held]
    if not missing:
        return Choice(
            value=Origin.WHEEL, reason=f"{wheel.spec} holds native code for all of {_names(variant)}"
        )
    lacks = f"{wheel.spec} lacks native code for {', '.join(missing)}"
    if wish is Origin.WHEEL:
        raise CompatibilityError(
            f"variant {variant.name}: --origin wheel is impossible: {lacks}. It holds "
            f"{', '.join(f'sm_{number}' for number in sorted(held))}. Use --origin source (or auto)."
        )
    return Choice(value=Origin.SOURCE, reason=lacks)


def _names(variant: Variant) -> str:
    return ", ".join(f"sm_{arch}" for arch in variant.sm)


def _decide(
    project: Project, variant: Variant, wishes: Wishes, base: Choice[str], origin: Choice[Origin]
) -> BuildPlan:
    compiled = origin.value is Origin.SOURCE
    version = _source_version(project, base.value) if compiled else project.onnxruntime.version
    return BuildPlan(
        project=project,
        variant=variant,
        base=base.value,
        base_reason=base.reason,
        origin=origin.value,
        origin_reason=origin.reason,
        profile=(wishes.profile or project.onnxruntime.profile) if compiled else None,
        host=(wishes.host or project.onnxruntime.host) if compiled else Host.WHEEL,
        ort_version=version,
        ort_wheel=ort_wheel(version),
    )


def _source_version(project: Project, base: str) -> str:
    bases = project.bases
    return bases.nvidia.ort_version if base == "nvidia" else bases.assembled.ort_version


def _lint(decided: BuildPlan) -> list[Finding]:
    """Warnings. The toolchain's reach is known only now; the rest was linted with ``variants.yaml``."""
    if decided.origin is not Origin.SOURCE:
        return []
    project = decided.project
    assembled = project.bases.assembled
    findings = lint(
        variant=decided.variant.name,
        sm=decided.variant.sm,
        cuda=project.cuda.version,
        cudnn=project.cudnn.version,
        ort=decided.ort_version,
        nvcc=assembled.nvcc if decided.base == "assembled" else project.cuda.version,
        ptxas=assembled.ptxas if decided.base == "assembled" else None,
    )
    findings += _lacking(decided)
    failed = checks.errors(findings)
    if failed:
        raise CompatibilityError([str(finding) for finding in failed])
    return findings


def _lacking(decided: BuildPlan) -> list[Finding]:
    """C011: what a package of less than the full profile will not run."""
    if decided.profile is None:
        return []
    missing = cannot_run(decided.profile.value, decided.ort_version)
    found = shortcoming(missing, decided.host.value)
    if found is None:
        return []
    return [
        Finding(
            code=Code.C011,
            path="onnxruntime.profile",
            message=f"operators without CUDA kernels in the package: {counted(missing)}. {found.means}",
            wanted=f"--profile full. Of who installs the package: {found.do}",
            got=f"profile {decided.profile.value}, host {decided.host.value}",
            severity=Severity.WARNING,
        )
    ]
