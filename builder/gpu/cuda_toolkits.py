"""Rules for the architectures that a CUDA toolkit compiles for, and the drivers that its code needs.

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
"""The oldest Linux driver for any CUDA 12."""

FLOOR_ZSTD = "550.54.14"
"""The Linux driver of CUDA 12.4, the first that reads images packed with zstd."""


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
"""Versions of the PTX ISA, the Linux driver of the first CUDA with each version, and that CUDA's version."""


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
"""Windows drivers by the Linux driver of the same CUDA. Release notes of CUDA 13 name no Windows driver.

For any CUDA 12 the release notes require 528.33 of CUDA 12.0 Update 1 (those of 12.0 and 12.2: 527.41). No
release notes name 565.90; it is the first driver that reports CUDA 12.7.
"""


def windows_floor(floor: str) -> str:
    """Return the oldest Windows driver that corresponds to the Linux driver ``floor``.

    That is the branch, ``580`` of ``580.65.06``, for a driver that ``_ON_WINDOWS`` does not name: a branch
    has the same number on both systems.
    """
    return _ON_WINDOWS.get(floor, floor.partition(".")[0])


def ptx_floor(isa: Version) -> Optional[str]:
    """Return the oldest Linux driver for CUDA 12 or newer that compiles PTX of version ``isa``.

    ``None`` for a version that is newer than all known ones.
    """
    return next((floor for known, floor, _ in _PTX_FLOORS if isa <= known), None)


def cuda_of_driver(driver: str) -> Version:
    """Return the newest known CUDA version that a Linux driver supports, 12.0 at least."""
    known = [cuda for _, floor, cuda in _PTX_FLOORS if version_of(floor) <= version_of(driver)]
    return known[-1] if known else (12, 0)


def driver_window(
    sass: Iterable[Arch], cuda: str, *, isa: Optional[Version] = None, compressed: bool = False
) -> Tuple[str, Optional[str]]:
    """Return the driver floor and the driver ceiling of a package (``None``: no last branch is known).

    ``sass``: the architectures of the provider's SASS. ``cuda``: the version of its CUDA. ``isa``: the ISA
    version of PTX that a promised GPU needs, if any. ``compressed``: whether images for GPUs before Blackwell
    are packed with zstd. A driver compiles PTX of its own CUDA version and older. The ceiling is ``None``
    unless all GPUs of ``sass`` have one.
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
    """Return the numbers of the architectures that an nvcc of this version compiles for."""
    version = version_of(nvcc)[:2]
    return tuple(gpu.number for gpu in COMPILED if _reaches(gpu, version))


def version_of(text: str) -> Version:
    """Return the numbers of a version: ``(12, 9)`` of ``12.9``."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def dotted(version: Version) -> str:
    """Return a version as text: ``12.9``."""
    return ".".join(map(str, version))


def first_cuda(arch: Arch) -> Optional[Version]:
    """Return the first CUDA that compiles for ``arch``; ``None`` for an unknown architecture."""
    first = next((gpu.first_cuda for gpu in COMPILED if gpu.number == arch.number), None)
    return None if first is None else max(first, SUFFIXES[arch.suffix].first_cuda)


def last_cuda(arch: Arch) -> Optional[Version]:
    """Return the last CUDA that compiles for ``arch``; ``None`` where the newest CUDA still does."""
    return next((gpu.last_cuda for gpu in COMPILED if gpu.number == arch.number), None)


def is_made(nvcc: str, ptxas: Optional[str], arch: Arch) -> bool:
    """Return whether nvcc, or a newer ptxas from nvcc's PTX, makes SASS for ``arch``."""
    return compiles(nvcc, arch) or (ptxas is not None and assembles(nvcc, ptxas, arch))


def assembles(nvcc: str, ptxas: str, arch: Arch) -> bool:
    """Return whether a ``ptxas`` newer than ``nvcc`` makes SASS for ``arch`` from nvcc's newest PTX.

    Such PTX has no instruction that needs a suffix. ``False`` for an nvcc older than 11.0.
    """
    known = compilable(nvcc)
    newer = bool(known) and arch.number > known[-1] and not arch.suffix
    return newer and compiles(ptxas, arch)


def compiles(nvcc: str, arch: Arch) -> bool:
    """Return whether a toolkit of this version makes SASS for an architecture."""
    first = first_cuda(arch)
    return arch.number in compilable(nvcc) and first is not None and first <= version_of(nvcc)


def _reaches(gpu: Gpu, version: Version) -> bool:
    first, last = gpu.first_cuda, gpu.last_cuda
    return first is not None and first <= version and (last is None or version <= last)
