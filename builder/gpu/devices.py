"""A GPU as its driver describes it, driver versions, and the platforms that packages are made for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Tuple

from builder.gpu.architectures import Capability

_DRIVER = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,3}")

_PLATFORMS = {
    ("linux", "x86_64"): "linux-x64",
    ("linux", "aarch64"): "linux-arm64",
    ("windows", "amd64"): "win-x64",
    ("darwin", "arm64"): "macos-arm64",
    ("darwin", "x86_64"): "macos-x64",
}


@dataclass(frozen=True)
class Device:
    """One GPU. What the driver did not say is ``None`` (or ``""`` for ``uuid``)."""

    index: int
    """Its number with the probe that found it: CUDA's order with libcuda, PCI order with nvidia-smi."""
    uuid: str
    """``GPU-…`` or ``MIG-…``; the only name that means the same everywhere."""
    name: str
    capability: Optional[Capability]
    memory_mib: Optional[int]
    driver: Optional[str]
    mig: Optional[Tuple[str, ...]] = None
    """``MIG-…`` names of its instances; ``None`` where MIG is off or nothing was said of it."""
    free_mib: Optional[int] = None
    """The part of ``memory_mib`` that no program had when NVML was asked."""

    def __str__(self) -> str:
        capability = f"compute capability {self.capability}" if self.capability else "capability unknown"
        memory = f", {self.memory_mib} MiB" if self.memory_mib is not None else ""
        return f"{self.name} ({capability}{memory})"


def parse_driver(text: str) -> Tuple[int, ...]:
    """``"525.60.13"`` as ``(525, 60, 13)``; ``ValueError`` on anything else."""
    if _DRIVER.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a driver version like 525.60.13")
    return tuple(int(part) for part in text.strip().split("."))


def below_floor(driver: str, floor: str) -> bool:
    """Whether ``driver`` is older than ``floor``. A shorter version counts as its branch's first release."""
    return parse_driver(driver) < parse_driver(floor)


_NEXT_BRANCH = {"470": (495,), "580": (590,)}
"""The branch after each that is the last for some GPUs. Drivers for Windows count on in between, and WSL has
their numbers: nvidia-smi 580.105.07 says driver 581.80 there.
"""


def above_ceiling(driver: str, ceiling: str) -> bool:
    """Whether ``driver`` is of a newer branch than ``ceiling``: 580.95.05 and 581.80 are within ``580``."""
    found, limit = parse_driver(driver), parse_driver(ceiling)
    following = _NEXT_BRANCH.get(ceiling)
    return found >= following if following else found[: len(limit)] > limit


def platform_of(system: str, machine: str) -> str:
    """``linux-x64`` from ``platform.system()`` and ``platform.machine()``; unknown ones just joined."""
    key = (system.lower(), machine.lower())
    return _PLATFORMS.get(key, "-".join(key))
