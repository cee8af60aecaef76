"""What runs on what: device code on devices and drivers, and the toolkits that compile it.

Sources for devices: NVIDIA's Blackwell Compatibility Guide 13.0 and "CUDA 12.9 family-specific features";
``DEVICE_REQUIREMENT`` in PyTorch's ``torch/cuda/__init__.py`` for the embedded parts, which break the rule
"same major, minor at least". Sources for toolkits and drivers: the CUDA Toolkit release notes 12.0 to 13.4
(docs.nvidia.com/cuda/cuda-toolkit-release-notes), their tables "CUDA Toolkit and Corresponding Driver
Versions" and "Minimum Required Driver Version for CUDA Minor Version Compatibility", in copies of 2026-11-23;
the PTX ISA, "Release History".
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, NamedTuple, Optional, Tuple

from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.table import (
    COMPILED,
    EMBEDDED,
    FLOOR_12_8,
    FLOOR_13,
    GPUS,
    LAST_12,
    SUFFIXES,
    Gpu,
    Version,
)


def runs_sass(code: Arch, device: Capability) -> bool:
    """Return whether SASS for ``code`` runs on ``device``.

    Plain SASS runs on devices of the same major version with the same or a higher minor one. SASS with ``f``
    runs on its family, which is the same set, and SASS with ``a`` on its own capability only. An embedded
    part runs only SASS of its own number, or of the part's number before it was renamed.
    """
    if code.number in EMBEDDED or device.number in EMBEDDED:
        return device.number in EMBEDDED.get(code.number, ())
    if code.suffix == "a":
        return code.number == device.number
    return code.major == device.major and code.minor <= device.minor


def jits_ptx(code: Arch, device: Capability) -> bool:
    """Return whether a driver can compile PTX of ``code`` for ``device``.

    Plain PTX can be compiled for the same or any newer capability, PTX with a suffix where such SASS runs.
    """
    if code.suffix:
        return runs_sass(code, device)
    return (code.major, code.minor) <= (device.major, device.minor)


_FIRST_SUFFIX = 9
"""Major version of the first architecture that may have a suffix (PTX ISA); older SASS has none."""

NATIVE, JIT, PARTIAL, NONE = SUPPORT = ("native", "jit", "partial", "none")
"""The ways in which device code runs on a GPU, best first."""


def implied(known: Mapping[Capability, str], device: Capability) -> str:
    """Return the support that the devices in ``known`` imply for a device that is not among them.

    ``known``: one of ``SUPPORT`` by capability. SASS without a suffix also runs
    on higher minor versions. PTX that runs on several major versions has no suffix, so a driver compiles it
    for newer devices too.
    """
    cards = sorted(capability for capability in known if capability.number not in EMBEDDED)
    older = [card for card in cards if card < device]
    if device.number in EMBEDDED or not older:
        return NONE
    alike = [capability for capability in older if capability.major == device.major < _FIRST_SUFFIX]
    if any(known[capability] == NATIVE for capability in alike):
        return NATIVE
    nearest = older[-1]
    plain = any(known[capability] == JIT and capability.major != nearest.major for capability in cards)
    return JIT if known[nearest] == JIT and plain else NONE


NVCCS = ("12.4", "12.8", "12.9", "13.0")

FLOOR_12 = "525.60.13"
"""The oldest Linux driver for any CUDA 12."""

FLOOR_ZSTD = "550.54.14"
"""The Linux driver of CUDA 12.4, the first that reads images packed with zstd."""


class CudaDriver(NamedTuple):
    """A CUDA release, the newest PTX that it knows, and its drivers."""

    cuda: Version
    isa: Version
    """Version of the PTX ISA."""
    linux: str
    windows: str = ""
    """The oldest Windows driver; empty for CUDA 13, whose release notes name none."""


_DRIVERS = (
    CudaDriver((12, 0), (8, 0), FLOOR_12, "528.33"),
    CudaDriver((12, 1), (8, 1), "530.30.02", "531.14"),
    CudaDriver((12, 2), (8, 2), "535.54.03", "536.25"),
    CudaDriver((12, 3), (8, 3), "545.23.06", "545.84"),
    CudaDriver((12, 4), (8, 4), FLOOR_ZSTD, "551.61"),
    CudaDriver((12, 5), (8, 5), "555.42.02", "555.85"),
    CudaDriver((12, 7), (8, 6), "565.57.01", "565.90"),
    CudaDriver((12, 8), (8, 7), FLOOR_12_8, "570.65"),
    CudaDriver(LAST_12, (8, 8), "575.51.03", "576.02"),
    CudaDriver((13, 0), (9, 0), FLOOR_13),
    CudaDriver((13, 1), (9, 1), "590.44.01"),
)
"""The first CUDA with each version of the PTX ISA, oldest first.

For any CUDA 12 the release notes require Windows driver 528.33 of CUDA 12.0 Update 1 (those of 12.0 and 12.2:
527.41). No release notes name 565.90; it is the first driver that reports CUDA 12.7.
"""


def windows_floor(floor: str) -> str:
    """Return the oldest Windows driver that corresponds to the Linux driver ``floor``.

    That is the branch, ``580`` of ``580.65.06``, for a driver that ``_DRIVERS`` does not name: a branch has
    the same number on both systems.
    """
    known = (driver.windows for driver in _DRIVERS if driver.linux == floor)
    return next(known, "") or floor.partition(".")[0]


def ptx_floor(isa: Version) -> Optional[str]:
    """Return the oldest Linux driver for CUDA 12 or newer that compiles PTX of version ``isa``.

    ``None`` for a version that is newer than all known ones.
    """
    return next((driver.linux for driver in _DRIVERS if isa <= driver.isa), None)


def cuda_of_driver(driver: str) -> Version:
    """Return the newest known CUDA version that a Linux driver supports, 12.0 at least."""
    known = [branch.cuda for branch in _DRIVERS if version_of(branch.linux) <= version_of(driver)]
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
        floors.append(ptx_floor(isa) or _DRIVERS[-1].linux)
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
