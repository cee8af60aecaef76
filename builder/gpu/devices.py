"""A GPU as its driver describes it, and driver versions.

Which product name stands for which compute capability, for drivers that cannot be asked.

Sources: NVIDIA's pages "CUDA GPU Compute Capability" and "Legacy CUDA GPU Compute Capability"
(developer.nvidia.com/cuda-gpus, /cuda-legacy-gpus) for the capability, pci.ids for the chip behind a name.
Left out, and so unknown, is every name that NVIDIA sold several chips under (GeForce GT 640, GT 730, GTX
860M) or for which the two sources disagree (GeForce 910M, Quadro M620, Quadro M3000M to M5000M).
"""

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
    spaced = " ".join(name.split())
    for capability, pattern in PRODUCTS:
        if re.fullmatch(pattern, spaced, re.IGNORECASE):
            return Capability.parse(capability)
    return None


def platform_of(system: str, machine: str) -> str:
    """``linux-x64`` from ``platform.system()`` and ``platform.machine()``; unknown ones just joined."""
    key = (system.lower(), machine.lower())
    return _PLATFORMS.get(key, "-".join(key))


_NAMES: Tuple[Tuple[str, str], ...] = (
    ("3.0", r"GeForce (GTX 6(45|50|60|70|80|90)( Ti( Boost)?)?|GTX 7[67]0( Ti)?|GT 740)"),
    ("3.0", r"GeForce (GT 640M LE|GT 6(40|45|50)M|GTX 6[68]0M|GTX 6(70|75|80)MX)"),
    ("3.0", r"GeForce (GT 7(45|50|55)M|GTX 7(60|65|70|80)M|GTX 880M)"),
    ("3.0", r"Quadro (410|K(420|600|2000D?|4000|4200|5000)|K(500|[1-5]000|[1-5]100)M)|NVS 510"),
    ("3.0", r"Tesla K10|GRID K(1|2|340|520)"),
    ("3.2", r"GK20A|(Tegra K|Jetson TK)1"),
    ("3.5", r"GeForce (GTX 780( Ti)?|GTX TITAN( Black| Z)?|920M)"),
    ("3.5", r"Quadro K(5200|6000|510M|610M)|Tesla K20([cms]|Xm?)?|Tesla K40([cdmst]|st)?"),
    ("3.7", r"Tesla K80"),
    (
        "5.0",
        r"GeForce (GTX 745|GTX 750( Ti)?|GTX 850M|GTX 9[56]0M|8(30|40|45)M|9[34]0MX?|920MX|945M|MX1[13]0)",
    ),
    ("5.0", r"Quadro (K620M?|K1200|K2200M?|M(500|600|1000|2000)M|M520|M1200)|Tesla M10|NVS 810"),
    ("5.2", r"GeForce (GTX 9[5678]0( Ti)?|GTX 9(65|70|80)M|GTX TITAN X)"),
    ("5.2", r"Quadro M(2000|2200|4000|5000|5500M?|6000)|(Tesla|GRID) M(4|6|40|60)"),
    ("5.3", r"GM20B|(Tegra X|Jetson TX)1|Jetson Nano"),
    ("6.0", r"(Tesla |GRID )?P100|Quadro GP100"),
    ("6.1", r"GeForce (GTX 10[5678]0( Ti)?|GT 10[13]0|MX(150|230|250|330|350))|TITAN (Xp|X( \(Pascal\))?)"),
    ("6.1", r"(Quadro )?P(400|500|520|600|620|[1-6]000|[2345]200)|(Tesla |GRID )?P(4|6|40)|P10[246]-\d{3}"),
    ("6.2", r"GP10B|(Tegra X|Jetson TX)2"),
    ("7.0", r"(Tesla |GRID )?V100S?|Quadro GV100|TITAN V( CEO Edition)?"),
    ("7.2", r"GV11B|(Jetson (AGX )?)?Xavier( NX)?"),
    ("7.5", r"GeForce (GTX 16[356]0( Ti| SUPER)?|RTX 20[678]0( Ti| SUPER)?|MX[45]50)|TITAN RTX"),
    (
        "7.5",
        r"Quadro RTX [34568]000|(Quadro )?T(400|500|550|600|1000|1200|2000)E?|(Tesla |GRID )?T(4G?|10|40)",
    ),
    ("8.0", r"(GRID )?A(30|100)X?|A800"),
    ("8.6", r"GeForce (RTX 30[5-9]0( Ti)?|RTX 2050|MX570( A)?)|(GRID )?A(2|10[GM]?|16|40)"),
    ("8.6", r"RTX A(400|500|[1-6]000|[45]500)"),
    ("8.7", r"(Jetson (AGX )?)?Orin( NX| Nano)?"),
    ("8.9", r"GeForce RTX 40[5-9]0( Ti)?( SUPER| D)?|L(2|4|20|40[GS]?)"),
    ("8.9", r"RTX (500|[1-6]000|3500|4000 SFF|4500|5880|2000E) Ada Generation"),
    ("9.0", r"H(20|100|200|800)|GH200"),
    ("10.0", r"G?B200"),
    ("10.3", r"G?B300"),
    ("12.0", r"GeForce RTX 50[5-9]0( Ti| D( V2)?)?"),
    ("12.0", r"RTX PRO (500|[1-6]000|4500)( 72GB)? Blackwell( Generation)?"),
    ("12.0", r"RTX PRO [1-6][05]00 Blackwell ((Max-Q )?Workstation|Server|SFF) Edition"),
    ("12.1", r"GB10"),
)

_FORM = (
    r"(?:[ -](?:PCIE?|SXM\d?|NVL|DGXS|FHHL|AC|HBM\d\w*|GDDR\dX?|\d{1,3} ?GB?|\d{1,3}[ABCQ]"
    r"|Laptop GPU|Embedded GPU|Mobile|(?:with )?Max-Q(?: Design)?|MIG \S+))*"
)
"""What may follow a name and leaves the chip the same: board, memory, vGPU profile, notebook, MIG slice."""

PRODUCTS: Tuple[Tuple[str, str], ...] = tuple(
    (capability, rf"(?:NVIDIA )?(?:{names}){_FORM}") for capability, names in _NAMES
)
"""Capability, and a pattern that the whole name must fit, in whatever case."""
