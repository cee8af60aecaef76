"""Lists of architectures: what is asked for, what CMake is told, and what the compiled provider then holds.

Before 1.23 ORT hands CMAKE_CUDA_ARCHITECTURES to CMake as it is: ``90`` is SASS and PTX, ``90-real`` SASS,
``90-virtual`` PTX (CMake's documentation of CUDA_ARCHITECTURES). From 1.23 on its own CMake rewrites the list
first (``ortversions.REWRITES_ARCHES``).

How a base comes to native code for a set: by nvcc itself, or by a newer ptxas from nvcc's PTX.

nvcc 12.4 ends at sm_90. The ptxas of CUDA 12.9 assembles its PTX for compute_90 into SASS for sm_100, 103,
120 and 121: all that a device function may use is in that PTX, only Blackwell's own instructions are not
(docs/decisions/0004).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from builder.gpu.architectures import Arch
from builder.gpu.toolkits import assembles, compilable
from builder.onnxruntime.versions import ACCELERATES_110, REFUSES_FAMILIES, REWRITES_ARCHES, TAKES_FAMILIES
from builder.project.plan import BuildPlan

_ENTRY = re.compile(r"(?P<arch>\d{2,3}[af]?)(?:-(?P<kind>real|virtual))?")


@dataclass(frozen=True)
class Compiled:
    """What each unit that is compiled for the whole list holds."""

    sass: tuple[Arch, ...]
    ptx: tuple[Arch, ...]

    def __str__(self) -> str:
        text = " ".join(map(str, self.sass))
        return f"{text}, PTX {' '.join(map(str, self.ptx))}" if self.ptx else text


@dataclass(frozen=True)
class _Entry:
    arch: Arch
    kind: str
    """``real``, ``virtual`` or ``""``, which CMake takes as both."""


def cmake_list(sm: Sequence[Arch], version: str) -> str:
    """The value of CMAKE_CUDA_ARCHITECTURES that asks ORT ``version`` for SASS of ``sm`` and nothing else.

    Where ORT's CMake takes families, it knows them without ``-real`` only; PTX of the family comes along.
    """
    return ";".join(_spelled(arch, version) for arch in sm)


def compiled(sm: Sequence[Arch], version: str) -> Compiled:
    """What the provider of ORT ``version`` will hold when ``sm`` is asked for.

    Raises ``ValueError`` where ORT's CMake refuses an architecture (``refused`` names them).
    """
    return read_list(cmake_list(sm, version), version)


def read_list(text: str, version: str) -> Compiled:
    """What a value of CMAKE_CUDA_ARCHITECTURES comes to with ORT ``version``; ``ValueError`` if refused."""
    entries = [_entry(word) for word in text.split(";") if word]
    if not REWRITES_ARCHES.holds(version):
        return _as_cmake_does(entries)
    lost = [entry.arch for entry in entries if entry.arch.suffix == "f"] if _refuses(version) else []
    if lost:
        raise ValueError(f"Unrecognized CUDA architecture: {lost[0]}")
    return _as_ort_does(entries, version)


def refused(sm: Iterable[Arch], version: str) -> tuple[Arch, ...]:
    """The architectures at which ORT's own CMake stops."""
    return tuple(arch for arch in sm if arch.suffix == "f") if _refuses(version) else ()


def rewritten(sm: Sequence[Arch], version: str) -> tuple[tuple[Arch, Arch], ...]:
    """Each architecture of ``sm`` that ORT makes another one of, and that other one."""
    if not REWRITES_ARCHES.holds(version):
        return ()
    pairs = ((arch, _accelerated(arch, version)) for arch in sm if arch.suffix != "f")
    return tuple((asked, made) for asked, made in pairs if asked != made)


def _spelled(arch: Arch, version: str) -> str:
    return str(arch) if arch.suffix == "f" and TAKES_FAMILIES.holds(version) else f"{arch}-real"


def _refuses(version: str) -> bool:
    return REFUSES_FAMILIES.holds(version)


def _entry(word: str) -> _Entry:
    match = _ENTRY.fullmatch(word)
    if match is None:
        raise ValueError(f"Unrecognized CUDA architecture: {word}")
    return _Entry(Arch.parse(match["arch"]), match["kind"] or "")


def _as_cmake_does(entries: Sequence[_Entry]) -> Compiled:
    sass = {entry.arch for entry in entries if entry.kind != "virtual"}
    ptx = {entry.arch for entry in entries if entry.kind != "real"}
    return Compiled(tuple(sorted(sass)), tuple(sorted(ptx)))


def _as_ort_does(entries: Sequence[_Entry], version: str) -> Compiled:
    families = [entry.arch for entry in entries if entry.arch.suffix == "f" and not entry.kind]
    virtual = [entry.arch for entry in entries if entry.kind == "virtual"]
    sass = {_accelerated(arch, version) for arch in _real(entries)}
    return Compiled(tuple(sorted({*sass, *families})), tuple(sorted({*families, *virtual[-1:]})))


def _real(entries: Sequence[_Entry]) -> Iterator[Arch]:
    """What ORT takes for SASS of a single architecture: ``120f-real`` is 120 to it."""
    for entry in entries:
        if entry.kind == "real" or (not entry.kind and entry.arch.suffix != "f"):
            yield entry.arch


def _accelerated(arch: Arch, version: str) -> Arch:
    """ORT drops the suffix it was given, then adds ``a`` where it has kernels for it: 103a becomes 103."""
    return Arch(arch.major, arch.minor, "a" if arch.number in _with_suffix(version) else "")


def _with_suffix(version: str) -> frozenset[int]:
    """The list ``ARCHITECTURES_WITH_ACCEL`` of ``cuda_configuration.cmake``."""
    more: list[int] = [110] if ACCELERATES_110.holds(version) else []
    return frozenset({90, 100, 101, 120, *more})


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
    newest = compilable(nvcc)[-1]
    ptx = Arch(newest // 10, newest % 10) if late else None
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
    refuses an architecture (``archlist.refused``).
    """
    targets = divide(sm, *tools(plan))
    listed = compiled(targets.compiled, plan.ort_version)
    return Compiled(tuple(sorted({*listed.sass, *targets.assembled})), listed.ptx)
