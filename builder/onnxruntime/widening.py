"""What a set loses on its way through ORT's CMake, and what is added to it so that it does not.

Plain code for sm_100 runs on 10.0 and 10.3. From ORT 1.23 on its CMake makes sm_100a of it, which runs on
10.0 alone (``ortversions.REWRITES_ARCHES``); what ptxas makes on the assembled base stays plain. So the same
set serves other GPUs on another base, unless it is widened: for each capability that is lost its own
architecture, which CMake leaves as it is, comes into the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from builder.findings.finding import Code, Finding, Severity
from builder.gpu.architectures import Arch, Capability
from builder.gpu.compatibility import runs_sass
from builder.gpu.table import CAPABILITIES, MODELS
from builder.onnxruntime.toolchain import made, refused
from builder.project.plan import BuildPlan
from builder.project.variants import Origin


def lost(sm: Iterable[Arch], sass: Iterable[Arch]) -> tuple[Capability, ...]:
    """The capabilities that code for ``sm`` runs on, and ``sass``, which was made of it, does not."""
    asked, found = tuple(sm), tuple(sass)
    return tuple(device for device in CAPABILITIES if _serves(asked, device) and not _serves(found, device))


def proposed(plan: BuildPlan) -> tuple[Arch, ...]:
    """The architectures with which a compiled plan's package runs wherever plain code for its set does."""
    sm = plan.variant.sm
    if plan.origin is not Origin.SOURCE or refused(sm, plan.ort_version):
        return ()
    found: tuple[Arch, ...] = ()
    for device in CAPABILITIES:
        if device in lost(sm, made((*sm, *found), plan).sass):
            found = (*found, Arch(device.major, device.minor))
    return found


def widened(plan: BuildPlan) -> BuildPlan:
    """The plan with what its variant promises in its set; the same plan where nothing has to be added."""
    found = proposed(plan) if plan.variant.widen else ()
    sm = tuple(sorted({*plan.variant.sm, *found}))
    return replace(plan, variant=replace(plan.variant, sm=sm), added=found) if found else plan


def hold_reach(plan: BuildPlan, sass: Sequence[Arch]) -> Iterator[Finding]:
    """C012: the package will run on fewer GPUs than the set is good for; ``sass``: what it will hold."""
    devices = lost(plan.variant.sm, sass)
    if not devices:
        return
    key = f"variants.{plan.variant.name}"
    found = proposed(plan)
    by_hand = f", or {names(found)} in {key}.sm" if found else ", which compiles"
    yield Finding(
        code=Code.C012,
        path=f"{key}.sm",
        message=f"plain code for this set runs on {_cards(devices)} too, and what the package will hold does "
        "not run there natively",
        wanted=f"--widen, or {key}.widen: true{by_hand}",
        got=names(sass),
        severity=Severity.WARNING,
    )


def names(arches: Iterable[Arch]) -> str:
    """Architectures in words: ``sm_103, sm_121``."""
    return ", ".join(f"sm_{arch}" for arch in arches)


def _serves(sass: Iterable[Arch], device: Capability) -> bool:
    return any(runs_sass(arch, device) for arch in sass)


def _cards(devices: Sequence[Capability]) -> str:
    cards = {model.device: model.cards for model in MODELS}
    return " and ".join(f"{device} ({cards[device]})" for device in devices)
