"""From a set of architectures to what a compiled provider holds: nvcc, a newer ptxas, and ORT's own CMake.

nvcc makes SASS for what it knows. nvcc 12.4 ends at sm_90: the ptxas of CUDA 12.9 assembles its PTX for
compute_90 into SASS for sm_100, 103, 120 and 121. All that a device function may use is in that PTX, only
Blackwell's own instructions are not (docs/decisions/0004).

From 1.23 on ORT's own CMake rewrites the list (``architecture_list``). Plain code for sm_100 runs on 10.0
and 10.3, and sm_100a, which ORT makes of it, on 10.0 alone; what ptxas makes stays plain. So the same set
serves other GPUs on another base, unless it is widened: the architecture of each capability that is lost,
which CMake leaves as it is, comes into the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from builder.findings.finding import Code, Finding, Severity
from builder.gpu.architectures import Arch, Capability
from builder.gpu.compatibility import runs_sass
from builder.gpu.cuda_toolkits import assembles, compilable
from builder.gpu.table import CAPABILITIES, MODELS
from builder.onnxruntime.architecture_list import Compiled, compiled, refused
from builder.onnxruntime.versions import sm_names
from builder.project.build_plan import BuildPlan
from builder.project.variants import Origin


@dataclass(frozen=True)
class Targets:
    """A set, divided."""

    compiled: tuple[Arch, ...]
    """nvcc makes SASS for these."""
    assembled: tuple[Arch, ...]
    """The newer ptxas makes SASS for these."""
    ptx: Arch | None
    """Whose PTX it is made from: the newest that nvcc knows. ``None`` where nothing is assembled."""


def divide(sm: Sequence[Arch], nvcc: str, ptxas: str | None) -> Targets:
    """Which tool makes which image; ``nvcc`` and ``ptxas`` are CUDA versions such as ``12.4``.

    What neither can make stays with nvcc: the support matrix refuses it before anything is compiled (C004).
    """
    late = () if ptxas is None else tuple(arch for arch in sm if assembles(nvcc, ptxas, arch))
    ptx = Arch(*divmod(compilable(nvcc)[-1], 10)) if late else None
    return Targets(compiled=tuple(arch for arch in sm if arch not in late), assembled=late, ptx=ptx)


def tools(plan: BuildPlan) -> tuple[str, str | None]:
    """The versions of nvcc on a plan's base, and of the newer ptxas beside it."""
    return plan.on.toolkit.version, plan.on.toolkit.ptxas


def made(sm: Sequence[Arch], plan: BuildPlan) -> Compiled:
    """What each unit for the whole list holds when a plan's base compiles ``sm``.

    ORT's CMake rewrites what nvcc compiles, and never sees what ptxas makes. Raises ``ValueError`` where it
    refuses an architecture (``refused``).
    """
    targets = divide(sm, *tools(plan))
    listed = compiled(targets.compiled, plan.ort_version)
    return Compiled(tuple(sorted({*listed.sass, *targets.assembled})), listed.ptx)


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
    cards = {model.device: model.cards for model in MODELS}
    return " and ".join(f"{device} ({cards[device]})" for device in devices)
