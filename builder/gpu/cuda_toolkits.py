"""What a CUDA toolkit compiles for, and the driver versions that code made with it needs.

Sources: the CUDA Toolkit release notes 12.0 to 13.4 (docs.nvidia.com/cuda/cuda-toolkit-release-notes), their
tables "CUDA Toolkit and Corresponding Driver Versions" and "Minimum Required Driver Version for CUDA Minor
Version Compatibility", in copies of 2026-11-23; the PTX ISA, "Release History".
"""

from __future__ import annotations

import re
from typing import Iterable, Optional, Tuple

from builder.gpu.architectures import Arch
from builder.gpu.table import COMPILED, FLOOR_12_8, FLOOR_13, GPUS, LAST_12, SUFFIXES, Gpu, Version

NVCCS = ("12.4", "12.8", "12.9", "13.0")

FLOOR_12 = "525.60.13"
"""The oldest driver for any CUDA 12."""

FLOOR_ZSTD = "550.54.14"
"""The driver of CUDA 12.4, the first that reads images packed with zstd."""


_PTX_FLOORS: Tuple[Tuple[Version, str, Version], ...] = (
    ((8, 0), FLOOR_12, (12, 0)),
    ((8, 1), "530.30.02", (12, 1)),
    ((8, 2), "535.54.03", (12, 2)),
    ((8, 3), "545.23.06", (12, 3)),
    ((8, 4), FLOOR_ZSTD, (12, 4)),
    ((8, 5), "555.42.02", (12, 5)),
    ((8, 6), "565.57.01", (12, 7)),
    ((8, 7), FLOOR_12_8, (12, 8)),
    ((8, 8), "575.51.03", LAST_12),
    ((9, 0), FLOOR_13, (13, 0)),
    ((9, 1), "590.44.01", (13, 1)),
)
"""Versions of the PTX ISA, the driver of the first CUDA that has it, and that CUDA."""


_ON_WINDOWS = {
    FLOOR_12: "528.33",
    "530.30.02": "531.14",
    "535.54.03": "536.25",
    "545.23.06": "545.84",
    FLOOR_ZSTD: "551.61",
    "555.42.02": "555.85",
    "565.57.01": "565.90",
    FLOOR_12_8: "570.65",
    "575.51.03": "576.02",
}
"""The driver for Windows that came with the same CUDA. CUDA 13 names none; branches have the same numbers.

For any CUDA 12 the release notes ask for 528.33 of CUDA 12.0 Update 1 (those of 12.0 and 12.2 for 527.41);
no release notes name 565.90, the first that says it serves CUDA 12.7.
"""


def windows_floor(floor: str) -> str:
    """The oldest driver for Windows that does what Linux's driver of this version does."""
    return _ON_WINDOWS.get(floor, floor.partition(".")[0])


def ptx_floor(isa: Version) -> Optional[str]:
    """Oldest driver version that compiles PTX of this version; ``None`` for a newer one than we know."""
    return next((floor for known, floor, _ in _PTX_FLOORS if isa <= known), None)


def cuda_of_driver(driver: str) -> Version:
    """The CUDA version that a driver says it serves, as far as we know: at least 12.0."""
    known = [cuda for _, floor, cuda in _PTX_FLOORS if version_of(floor) <= version_of(driver)]
    return known[-1] if known else (12, 0)


def driver_window(
    sass: Iterable[Arch], cuda: str, *, isa: Optional[Version] = None, compressed: bool = False
) -> Tuple[str, Optional[str]]:
    """Oldest driver version, and the last driver branch that still knows these GPUs (``None``: no end known).

    ``sass``: the architectures of the provider's SASS. ``isa``: of the PTX that a promised GPU needs.
    ``compressed``: images for GPUs before Blackwell are packed with zstd. A driver compiles PTX of its own
    CUDA version and older.
    """
    numbers = {arch.number for arch in sass}
    gpus = [gpu for gpu in GPUS if gpu.number in numbers]
    floors = [FLOOR_ZSTD if compressed else FLOOR_12, *(gpu.floor for gpu in gpus)]
    if version_of(cuda) >= (13,):
        floors.append(FLOOR_13)
    if isa is not None:
        floors.append(ptx_floor(isa) or _PTX_FLOORS[-1][1])
    branches = [gpu.last_branch for gpu in gpus if gpu.last_branch is not None]
    only_old = bool(gpus) and len(branches) == len(gpus)
    return max(floors, key=version_of), max(branches, key=int) if only_old else None


def compilable(nvcc: str) -> Tuple[int, ...]:
    """The architectures an nvcc of this version can compile."""
    version = version_of(nvcc)[:2]
    return tuple(gpu.number for gpu in COMPILED if _reaches(gpu, version))


def version_of(text: str) -> Version:
    """The numbers of a version: ``(12, 9)`` of ``12.9``."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def dotted(version: Version) -> str:
    """A version as text: ``12.9``."""
    return ".".join(map(str, version))


def first_cuda(arch: Arch) -> Optional[Version]:
    """First CUDA that compiles for ``arch``; ``None`` when it is not one we know."""
    first = next((gpu.first_cuda for gpu in COMPILED if gpu.number == arch.number), None)
    return None if first is None else max(first, SUFFIXES[arch.suffix].first_cuda)


def last_cuda(arch: Arch) -> Optional[Version]:
    """Last CUDA that compiles for ``arch``; ``None`` while it is still served."""
    return next((gpu.last_cuda for gpu in COMPILED if gpu.number == arch.number), None)


def is_made(nvcc: str, ptxas: Optional[str], arch: Arch) -> bool:
    """Whether nvcc, or a newer ptxas from its PTX, makes SASS for ``arch``."""
    return compiles(nvcc, arch) or (ptxas is not None and assembles(nvcc, ptxas, arch))


def assembles(nvcc: str, ptxas: str, arch: Arch) -> bool:
    """Whether a ``ptxas`` newer than ``nvcc`` makes SASS for ``arch`` from its newest PTX.

    Such PTX holds no instruction that needs a suffix. Of an nvcc older than 11.0 nothing is known.
    """
    known = compilable(nvcc)
    newer = bool(known) and arch.number > known[-1] and not arch.suffix
    return newer and compiles(ptxas, arch)


def compiles(nvcc: str, arch: Arch) -> bool:
    """Whether a toolkit of this version makes SASS for an architecture."""
    first = first_cuda(arch)
    return arch.number in compilable(nvcc) and first is not None and first <= version_of(nvcc)


def _reaches(gpu: Gpu, version: Version) -> bool:
    first, last = gpu.first_cuda, gpu.last_cuda
    return first is not None and first <= version and (last is None or version <= last)
