"""From a set of architectures to what a compiled provider holds: nvcc, a newer ptxas, and ORT's own CMake.

nvcc makes SASS for what it knows. nvcc 12.4 ends at sm_90: the ptxas of CUDA 12.9 assembles its PTX for
compute_90 into SASS for sm_100, 103, 120 and 121. All that a device function may use is in that PTX, only
Blackwell's own instructions are not (docs/decisions/0004).

Before 1.23 ORT hands CMAKE_CUDA_ARCHITECTURES to CMake as it is: ``90`` is SASS and PTX, ``90-real`` SASS,
``90-virtual`` PTX (CMake's documentation of CUDA_ARCHITECTURES). From 1.23 on its own CMake rewrites the list
first (``versions.REWRITES_ARCHES``). Plain code for sm_100 runs on 10.0 and 10.3, and sm_100a, which ORT
makes of it, on 10.0 alone; what ptxas makes stays plain. So the same set serves other GPUs on another base,
unless it is widened: the architecture of each capability that is lost, which CMake leaves as it is, comes
into the set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from builder.findings.finding import Code, Finding, Severity
from builder.gpu.architectures import Arch, Capability
from builder.gpu.compatibility import runs_sass
from builder.gpu.cuda_toolkits import assembles, compilable
from builder.gpu.table import CAPABILITIES, MODELS
from builder.onnxruntime.versions import REFUSES_FAMILIES, REWRITES_ARCHES, sm_names
from builder.project.build_plan import BuildPlan
from builder.project.variants import Origin

_ENTRY = re.compile(r"(?P<arch>\d{2,3}[af]?)(?:-(?P<kind>real|virtual))?")

_ACCELERATED = frozenset({90, 100, 101, 120})
"""The list ``ARCHITECTURES_WITH_ACCEL`` of ORT's ``cuda_configuration.cmake``."""


@dataclass(frozen=True)
class Compiled:
    """What each unit that is compiled for the whole list holds."""

    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.sass))
        return f"{text}, PTX {' '.join(map(str, self.ptx))}" if self.ptx else text


def cmake_list(sm: Sequence[Arch]) -> str:
    """The value of CMAKE_CUDA_ARCHITECTURES that asks for SASS of ``sm`` and nothing else."""
    return ";".join(f"{arch}-real" for arch in sm)


def compiled(sm: Sequence[Arch], version: str) -> Compiled:
    """What the provider of ORT ``version`` will hold when ``sm`` is asked for.

    Raises ``ValueError`` where ORT's CMake refuses an architecture (``refused`` names them).
    """
    return read_list(cmake_list(sm), version)


def read_list(text: str, version: str) -> Compiled:
    """What a value of CMAKE_CUDA_ARCHITECTURES comes to with ORT ``version``; ``ValueError`` if refused."""
    entries = [_entry(word) for word in text.split(";") if word]
    sass = {arch for arch, kind in entries if kind != "virtual"}
    if not REWRITES_ARCHES.holds(version):
        ptx = {arch for arch, kind in entries if kind != "real"}
        return Compiled(tuple(sorted(sass)), tuple(sorted(ptx)))
    stopped = refused((arch for arch, _ in entries), version)
    if stopped:
        raise ValueError(f"Unrecognized CUDA architecture: {stopped[0]}")
    virtual = [arch for arch, kind in entries if kind == "virtual"]
    return Compiled(tuple(sorted(set(map(_accelerated, sass)))), tuple(virtual[-1:]))


def refused(sm: Iterable[Arch], version: str) -> tuple[Arch, ...]:
    """The architectures at which ORT's own CMake stops."""
    return tuple(arch for arch in sm if arch.suffix == "f") if REFUSES_FAMILIES.holds(version) else ()


def rewritten(sm: Sequence[Arch], version: str) -> tuple[tuple[Arch, Arch], ...]:
    """Each architecture of ``sm`` that ORT makes another one of, and that other one."""
    if not REWRITES_ARCHES.holds(version):
        return ()
    pairs = ((arch, _accelerated(arch)) for arch in sm if arch.suffix != "f")
    return tuple((arch, becomes) for arch, becomes in pairs if arch != becomes)


def _entry(word: str) -> tuple[Arch, str]:
    """An architecture and ``real``, ``virtual`` or ``""``, which CMake takes as both."""
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(f"Unrecognized CUDA architecture: {word}")
    return Arch.parse(match["arch"]), match["kind"] or ""


def _accelerated(arch: Arch) -> Arch:
    """ORT drops the suffix it was given, then adds ``a`` where it has kernels for it: 103a becomes 103."""
    return Arch(arch.major, arch.minor, "a" if arch.number in _ACCELERATED else "")


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
    assembled = plan.project.bases.assembled
    return (
        (assembled.nvcc, assembled.ptxas) if plan.base == "assembled" else (plan.project.cuda.version, None)
    )


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
