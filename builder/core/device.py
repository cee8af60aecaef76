"""A GPU as its driver describes it, and driver versions.

Source of the product table: NVIDIA's pages "CUDA GPU Compute Capability" and "Legacy CUDA GPU Compute
Capability" (developer.nvidia.com/cuda-gpus, /cuda-legacy-gpus).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Tuple

from builder.core.arch import Capability

_DRIVER = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,3}")
_VENDOR = re.compile(r"^(?:NVIDIA\s+)?(?:(?:GeForce|Quadro|Tesla)\s+)?", re.IGNORECASE)

_PRODUCTS: Tuple[Tuple[str, str], ...] = (
    (r"A100\b|A30\b", "8.0"),
    (r"RTX A\d{3,4}\b|RTX 30[5-9]0\b|A(2|10|16|40)\b", "8.6"),
    (r"RTX 20[678]0\b|GTX 16[56]0\b|TITAN RTX$|RTX [34568]000( with Max-Q Design)?$|T4\b", "7.5"),
    (r"T(400|500|550|600|1000|1200|2000)\b", "7.5"),
    (r"V100|GV100|TITAN V$", "7.0"),
    (r"P100|GP100", "6.0"),
    (r"GTX 10[5678]0\b|GT 1030\b|P(4|6|40|\d{3}|\d{4})\b|TITAN X(p| \(Pascal\))$|TITAN X$", "6.1"),
    (r"GTX TITAN X$|GTX 9[5678]0( Ti)?$|GTX 9(65|70|80)M|910M", "5.2"),
    (r"M(40|60|620|2000|2200|4000|5000|5500M|6000)\b", "5.2"),
    (r"GTX 750\b|GTX 8[56]0M|GTX 9[56]0M|9[34]0M|8[34]0M|K(620|1200|2200)M?\b|NVS 810", "5.0"),
    (r"M(500M|520|600M|1000M|1200|2000M|3000M|4000M|5000M)\b", "5.0"),
    (r"K80\b", "3.7"),
    (r"K(20|40)[a-z]?\b|K(5200|6000)\b|GTX 780\b|GTX TITAN( Z| Black)?$", "3.5"),
)
"""Name pattern and capability of products that the 470 driver branch knows: it cannot say ``compute_cap``."""

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


def above_ceiling(driver: str, ceiling: str) -> bool:
    """Whether ``driver`` is of a newer branch than ``ceiling``: 580.95.05 is within ``580``, 590.1 is not."""
    limit = parse_driver(ceiling)
    return parse_driver(driver)[: len(limit)] > limit


def capability_of_product(name: str) -> Optional[Capability]:
    """Capability by product name, for drivers that cannot be asked; ``None`` for an unknown product."""
    product = _VENDOR.sub("", name.strip())
    for pattern, capability in _PRODUCTS:
        if re.match(pattern, product, re.IGNORECASE):
            return Capability.parse(capability)
    return None


def platform_of(system: str, machine: str) -> str:
    """``linux-x64`` from ``platform.system()`` and ``platform.machine()``; unknown ones just joined."""
    key = (system.lower(), machine.lower())
    return _PLATFORMS.get(key, "-".join(key))
