"""CUDA toolkits by what they compile for, and the driver versions that code made with them needs.

Sources: the CUDA Toolkit release notes 12.8 to 13.0 and the table of drivers in them, the PTX ISA.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Mapping, Optional, Tuple

from builder.gpu.architectures import Arch

Version = Tuple[int, ...]

LAST_12 = (12, 9)
TURING, BLACKWELL = 75, 100


@dataclass(frozen=True)
class Reach:
    """From which CUDA on an architecture can be compiled, and up to which; ``last`` is inclusive."""

    number: int
    first: Version
    last: Optional[Version] = None


REACH = (
    *(Reach(number, (11, 0), LAST_12) for number in (50, 52, 53, 60, 61, 62, 70, 72)),
    *(Reach(number, (11, 0)) for number in (75, 80)),
    *(Reach(number, (11, 1)) for number in (86,)),
    *(Reach(number, (11, 4)) for number in (87,)),
    *(Reach(number, (11, 8)) for number in (89, 90)),
    *(Reach(number, (12, 8)) for number in (100, 120)),
    Reach(101, (12, 8), LAST_12),
    *(Reach(number, (12, 9)) for number in (103, 121)),
    Reach(110, (13, 0)),
)
"""Source: the CUDA release notes."""

RENAMED = {101: 110}
"""Since CUDA 13. Source: the PTX ISA, "sm_101 renamed to sm_110 from PTX ISA version 9.0"."""

KNOWN_SM: Tuple[int, ...] = tuple(sorted(reach.number for reach in REACH))
"""Every architecture from Maxwell on; there is no sm_91."""

NVCCS = ("12.4", "12.8", "12.9", "13.0")

FIRST_WITH: Mapping[str, Version] = {"": (0,), "a": (12, 0), "f": (12, 9)}
"""First CUDA with a suffix. Source: the PTX ISA: sm_90a came with 8.0, the families with 8.8."""

FLOOR_12 = "525.60.13"
FLOOR_ZSTD = "550.54.14"
FLOOR_BLACKWELL = "570.26"
FLOOR_13 = "580.65.06"
LAST_BRANCH_BELOW_75 = "580"


def driver_window(
    sass: Iterable[Arch], cuda: str, *, jit: bool = False, compressed: bool = False
) -> Tuple[str, Optional[str]]:
    """Oldest driver version, and the last driver branch that still knows these GPUs (``None``: no end known).

    ``sass``: the architectures of the provider's SASS. ``jit``: a promised GPU runs PTX only.
    ``compressed``: images for GPUs before Blackwell are packed with zstd. A driver compiles PTX of its own
    CUDA version and older. Not settled: PTX of 12.9 may need 575, as NVIDIA's rule has it; its matrix names
    570.26 for 12.8 and 12.9 together, and so do we.
    """
    numbers = {arch.number for arch in sass}
    if version_of(cuda) >= (13,):
        floor = FLOOR_13
    elif any(number >= BLACKWELL for number in numbers) or (jit and version_of(cuda) >= (12, 8)):
        floor = FLOOR_BLACKWELL
    else:
        floor = FLOOR_ZSTD if compressed else FLOOR_12
    only_old = bool(numbers) and all(number < TURING for number in numbers)
    return floor, LAST_BRANCH_BELOW_75 if only_old else None


def compilable(nvcc: str) -> Tuple[int, ...]:
    """The architectures an nvcc of this version can compile."""
    version = version_of(nvcc)[:2]
    return tuple(
        reach.number
        for reach in sorted(REACH, key=lambda reach: reach.number)
        if reach.first <= version and (reach.last is None or version <= reach.last)
    )


def version_of(text: str) -> Version:
    """The numbers of a version: ``(12, 9)`` of ``12.9``."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def dotted(version: Version) -> str:
    """A version as text: ``12.9``."""
    return ".".join(map(str, version))


def first_cuda(arch: Arch) -> Optional[Version]:
    """First CUDA that compiles for ``arch``; ``None`` when it is not one we know."""
    first = next((reach.first for reach in REACH if reach.number == arch.number), None)
    return None if first is None else max(first, FIRST_WITH[arch.suffix])


def last_cuda(arch: Arch) -> Optional[Version]:
    """Last CUDA that compiles for ``arch``; ``None`` while it is still served."""
    return next((reach.last for reach in REACH if reach.number == arch.number), None)


def is_made(nvcc: str, ptxas: Optional[str], arch: Arch) -> bool:
    """Whether nvcc, or a newer ptxas from its PTX, makes SASS for ``arch``."""
    return compiles(nvcc, arch) or (ptxas is not None and assembles(nvcc, ptxas, arch))


def assembles(nvcc: str, ptxas: str, arch: Arch) -> bool:
    """Whether a ``ptxas`` newer than ``nvcc`` makes SASS for ``arch`` from its newest PTX.

    Such PTX holds no instruction that needs a suffix.
    """
    newer = arch.number > compilable(nvcc)[-1] and not arch.suffix
    return newer and compiles(ptxas, arch)


def compiles(nvcc: str, arch: Arch) -> bool:
    """Whether a toolkit of this version makes SASS for an architecture."""
    first = first_cuda(arch)
    return arch.number in compilable(nvcc) and first is not None and first <= version_of(nvcc)[:2]
