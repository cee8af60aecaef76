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
    """One GPU, as its driver describes it. Unknown values are ``None``, an unknown ``uuid`` is ``""``."""

    index: int
    """The GPU's number in the order of the probe that found it: CUDA's for libcuda, PCI's for nvidia-smi."""
    uuid: str
    """``GPU-…`` or ``MIG-…``; unlike ``index``, the same for all probes."""
    name: str
    capability: Optional[Capability]
    memory_mib: Optional[int]
    driver: Optional[str]
    mig: Optional[Tuple[str, ...]] = None
    """``MIG-…`` names of the GPU's instances; ``None`` where MIG is off or its state unknown."""
    free_mib: Optional[int] = None
    """Free MiB of ``memory_mib`` when NVML was read."""

    def __str__(self) -> str:
        capability = f"compute capability {self.capability}" if self.capability else "capability unknown"
        memory = f", {self.memory_mib} MiB" if self.memory_mib is not None else ""
        return f"{self.name} ({capability}{memory})"


def parse_driver(text: str) -> Tuple[int, ...]:
    """Return ``(525, 60, 13)`` of ``"525.60.13"``. Raises ``ValueError`` for text that is no version."""
    if _DRIVER.fullmatch(text.strip()) is None:
        raise ValueError(f"{text!r} is not a driver version like 525.60.13")
    return tuple(int(part) for part in text.strip().split("."))


def below_floor(driver: str, floor: str) -> bool:
    """Return whether ``driver`` is older than ``floor``. A version's missing numbers count as the lowest."""
    return parse_driver(driver) < parse_driver(floor)


_NEXT_BRANCH = {"470": (495,), "580": (590,)}
"""The next branch after each branch that is the last for some GPUs. Windows drivers of a branch have numbers
in between, and WSL shows them: nvidia-smi 580.105.07 reports driver 581.80 there.
"""


def above_ceiling(driver: str, ceiling: str) -> bool:
    """Return whether ``driver`` is of a newer branch than ``ceiling``; 581.80 is not newer than ``580``."""
    found, limit = parse_driver(driver), parse_driver(ceiling)
    following = _NEXT_BRANCH.get(ceiling)
    return found >= following if following else found[: len(limit)] > limit


def platform_of(system: str, machine: str) -> str:
    """Return the platform, ``linux-x64``, of what ``platform.system()`` and ``platform.machine()`` return.

    An unknown pair is joined by a hyphen, in lower case.
    """
    key = (system.lower(), machine.lower())
    return _PLATFORMS.get(key, "-".join(key))
