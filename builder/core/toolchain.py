"""How a base comes to native code for a set: by nvcc itself, or by a newer ptxas from nvcc's PTX.

nvcc 12.4 ends at sm_90. The ptxas of CUDA 12.9 assembles its PTX for compute_90 into SASS for sm_100, 103,
120 and 121: all that a device function may use is in that PTX, only Blackwell's own instructions are not
(docs/decisions/0004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from builder.core.arch import Arch
from builder.core.archlist import Compiled, compiled
from builder.core.support import assembles, compilable
from builder.core.variant import BuildPlan


@dataclass(frozen=True)
class Targets:
    """A set, divided."""

    compiled: Tuple[Arch, ...]
    """nvcc makes SASS for these."""
    assembled: Tuple[Arch, ...]
    """The newer ptxas makes SASS for these."""
    ptx: Optional[Arch]
    """Whose PTX it is made from: the newest that nvcc knows. ``None`` where nothing is assembled."""


def divide(sm: Sequence[Arch], nvcc: str, ptxas: Optional[str]) -> Targets:
    """Which tool makes which image; ``nvcc`` and ``ptxas`` are CUDA versions such as ``12.4``.

    What neither can make stays with nvcc: the support matrix refuses it before anything is compiled (C004).
    """
    late = () if ptxas is None else tuple(arch for arch in sm if assembles(nvcc, ptxas, arch))
    newest = compilable(nvcc)[-1]
    ptx = Arch(newest // 10, newest % 10) if late else None
    return Targets(compiled=tuple(arch for arch in sm if arch not in late), assembled=late, ptx=ptx)


def tools(plan: BuildPlan) -> Tuple[str, Optional[str]]:
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
