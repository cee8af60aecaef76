"""What runs on what: device code on devices and drivers, and the toolkits that compile it.

Sources for devices: NVIDIA's Blackwell Compatibility Guide 13.0 and "CUDA 12.9 family-specific features";
``DEVICE_REQUIREMENT`` in PyTorch's ``torch/cuda/__init__.py`` for the embedded parts, which break the rule
"same major, minor at least". ``drivers.py`` has those for drivers.
"""

from __future__ import annotations

import re
from typing import Iterable, Mapping, Optional, Tuple

from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.drivers import DRIVERS, FLOOR_12, FLOOR_13, FLOOR_ZSTD, Version, ptx_floor
from builder.facts.gpu.table import (
    COMPILED,
    EMBEDDED,
    GPUS,
    SUFFIXES,
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


def cuda_of_driver(driver: str) -> Version:
    """Return the newest known CUDA version that a Linux driver supports, 12.0 at least."""
    known = [branch.cuda for branch in DRIVERS if version_of(branch.linux) <= version_of(driver)]
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
        floors.append(ptx_floor(isa) or DRIVERS[-1].linux)
    branches = [gpu.last_branch for gpu in gpus if gpu.last_branch is not None]
    only_old = bool(gpus) and len(branches) == len(gpus)
    return max(floors, key=version_of), max(branches, key=int) if only_old else None


def compilable(nvcc: str) -> Tuple[int, ...]:
    """Return the numbers of the architectures that an nvcc of this version compiles for."""
    version = version_of(nvcc)[:2]
    return tuple(
        gpu.number for gpu in COMPILED if (gpu.first_cuda or version) <= version <= (gpu.last_cuda or version)
    )


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
