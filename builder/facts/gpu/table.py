"""Table of NVIDIA's GPUs: one row for each compute capability. A new GPU is added as a row of ``GPUS``.

All other lists of GPUs are computed from ``GPUS``: columns of reports, architectures of an nvcc, driver
floors, product names, embedded parts. Only ``virtualcard/resolver.c`` has, on purpose, a second table of the
GPUs that NVIDIA lists; a test compares the two.

Sources:

* capability and products: NVIDIA's pages "CUDA GPU Compute Capability" and "Legacy CUDA GPU Compute
  Capability" (developer.nvidia.com/cuda-gpus, /cuda-legacy-gpus); pci.ids for the chip behind a name
* first and last CUDA: the CUDA Toolkit release notes, and for 10.0 and newer the PTX ISA; ptxas 13.0 is the
  first that takes sm_88, ptxas 13.4 (PTX ISA 9.4) the first that takes sm_107
* drivers: the table of drivers in the release notes of CUDA 12.8 and 13.0
* renamed capabilities: the PTX ISA, "sm_101 renamed to sm_110 from PTX ISA version 9.0"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Iterable, Mapping, Optional, Tuple

from builder.facts.gpu.architectures import Capability

Version = Tuple[int, ...]

LAST_12 = (12, 9)

FLOOR_12_8 = "570.26"
"""The Linux driver of CUDA 12.8, the first that supports Blackwell."""

FLOOR_13 = "580.65.06"
"""The Linux driver of CUDA 13.0, the oldest for any CUDA 13."""

LAST_BRANCH_BELOW_TURING = "580"

_LAST_BRANCHES = {"Kepler": "470", **dict.fromkeys(("Maxwell", "Pascal", "Volta"), LAST_BRANCH_BELOW_TURING)}
"""The last driver branch of the generations for which CUDA 13 does not compile any more."""

FIRST_FP16 = Capability(5, 3)
"""The first capability with arithmetic in fp16. Source: CUDA C++ Programming Guide 12.9, "Throughput of
Native Arithmetic Instructions"."""

JETSON = "Jetson"


@dataclass(frozen=True)
class Gpu:
    """One compute capability: its products, and the CUDA toolkits and drivers that support it."""

    capability: Capability
    generation: str
    cards: str
    """The names of a few products, for messages."""
    module: str = ""
    """``Orin`` for a Jetson: an embedded part, which runs SASS of its own number only. Empty for cards."""
    first_cuda: Optional[Version] = None
    """First CUDA, from 11.0 on, that compiles for the capability; ``None`` where none does."""
    grace: bool = False
    """Whether the GPU is only sold on one chip with NVIDIA's ARM processor, like GB10 (unlike GB200's)."""
    listed: bool = True
    """Whether NVIDIA's list of CUDA GPUs from Maxwell on names the capability; each report covers it then."""
    renamed: Optional[int] = None
    """The number of the same part since CUDA 13; ``None`` where it was not renamed."""
    products: Tuple[str, ...] = ()
    """Regular expressions of product names, without ``NVIDIA`` and without the additions of ``_FORM``.

    Names that NVIDIA gave to several chips are left out (GeForce GT 640, GT 730, GTX 860M), and so are names
    for which the two sources disagree (GeForce 910M, Quadro M620, Quadro M3000M to M5000M).
    """

    @property
    def arm(self) -> bool:
        """Whether the GPU is in machines with an ARM processor only."""
        return bool(self.module or self.grace)

    @property
    def last_branch(self) -> Optional[str]:
        """Last driver branch that supports the capability; ``None`` where none is known."""
        return _LAST_BRANCHES.get(self.generation)

    @property
    def last_cuda(self) -> Optional[Version]:
        """Last CUDA that compiles for the capability; ``None`` where the newest CUDA still does."""
        return LAST_12 if self.last_branch or self.renamed else None

    @property
    def floor(self) -> str:
        """Oldest driver that supports the capability; empty where each driver for CUDA 12 does."""
        first = self.first_cuda or (0,)
        if first >= (13,):
            return FLOOR_13
        return FLOOR_12_8 if first >= (12, 8) else ""

    @property
    def number(self) -> int:
        """The number of the capability's architecture: ``86`` for 8.6."""
        return self.capability.number


GPUS: Tuple[Gpu, ...] = (
    Gpu(
        Capability(3, 0),
        "Kepler",
        "",
        listed=False,
        products=(
            r"GeForce (GTX 6(45|50|60|70|80|90)( Ti( Boost)?)?|GTX 7[67]0( Ti)?|GT 740)",
            r"GeForce (GT 640M LE|GT 6(40|45|50)M|GTX 6[68]0M|GTX 6(70|75|80)MX)",
            r"GeForce (GT 7(45|50|55)M|GTX 7(60|65|70|80)M|GTX 880M)",
            r"Quadro (410|K(420|600|2000D?|4000|4200|5000)|K(500|[1-5]000|[1-5]100)M)|NVS 510",
            r"Tesla K10|GRID K(1|2|340|520)",
        ),
    ),
    Gpu(Capability(3, 2), "Kepler", "", listed=False, products=(r"GK20A|(Tegra K|Jetson TK)1",)),
    Gpu(
        Capability(3, 5),
        "Kepler",
        "",
        listed=False,
        products=(
            r"GeForce (GTX 780( Ti)?|GTX TITAN( Black| Z)?|920M)",
            r"Quadro K(5200|6000|510M|610M)|Tesla K20([cms]|Xm?)?|Tesla K40([cdmst]|st)?",
        ),
    ),
    Gpu(Capability(3, 7), "Kepler", "", listed=False, products=(r"Tesla K80",)),
    Gpu(
        Capability(5, 0),
        "Maxwell",
        "GeForce GTX 750, Quadro K2200 and M2000M",
        first_cuda=(11, 0),
        products=(
            r"GeForce (GTX 745|GTX 750( Ti)?|GTX 850M|GTX 9[56]0M|8(30|40|45)M)",
            r"GeForce (9[34]0MX?|920MX|945M|MX1[13]0)",
            r"Quadro (K620M?|K1200|K2200M?|M(500|600|1000|2000)M|M520|M1200)|Tesla M10|NVS 810",
        ),
    ),
    Gpu(
        Capability(5, 2),
        "Maxwell",
        "GeForce GTX 900, Tesla M40 and M60",
        first_cuda=(11, 0),
        products=(
            r"GeForce (GTX 9[5678]0( Ti)?|GTX 9(65|70|80)M|GTX TITAN X)",
            r"Quadro M(2000|2200|4000|5000|5500M?|6000)|(Tesla|GRID) M(4|6|40|60)",
        ),
    ),
    Gpu(
        Capability(5, 3),
        "Maxwell",
        "Jetson Nano and TX1",
        module="Nano",
        first_cuda=(11, 0),
        products=(r"GM20B|(Tegra X|Jetson TX)1|Jetson Nano",),
    ),
    Gpu(
        Capability(6, 0),
        "Pascal",
        "Tesla P100, Quadro GP100",
        first_cuda=(11, 0),
        products=(r"(Tesla |GRID )?P100|Quadro GP100",),
    ),
    Gpu(
        Capability(6, 1),
        "Pascal",
        "GeForce GTX 10, Tesla P4 and P40",
        first_cuda=(11, 0),
        products=(
            r"GeForce (GTX 10[5678]0( Ti)?|GT 10[13]0|MX(150|230|250|330|350))|TITAN (Xp|X( \(Pascal\))?)",
            r"(Quadro )?P(400|500|520|600|620|[1-6]000|[2345]200)|(Tesla |GRID )?P(4|6|40)|P10[246]-\d{3}",
        ),
    ),
    Gpu(
        Capability(6, 2),
        "Pascal",
        "Jetson TX2",
        module="TX2",
        first_cuda=(11, 0),
        products=(r"GP10B|(Tegra X|Jetson TX)2",),
    ),
    Gpu(
        Capability(7, 0),
        "Volta",
        "Tesla V100, Titan V",
        first_cuda=(11, 0),
        products=(r"(Tesla |GRID )?V100S?|Quadro GV100|TITAN V( CEO Edition)?",),
    ),
    Gpu(
        Capability(7, 2),
        "Volta",
        "Jetson Xavier",
        module="Xavier",
        first_cuda=(11, 0),
        products=(r"GV11B|(Jetson (AGX )?)?Xavier( NX)?",),
    ),
    Gpu(
        Capability(7, 5),
        "Turing",
        "GeForce RTX 20 and GTX 16, T4",
        first_cuda=(11, 0),
        products=(
            r"GeForce (GTX 16[356]0( Ti| SUPER)?|RTX 20[678]0( Ti| SUPER)?|MX[45]50)|TITAN RTX",
            r"Quadro RTX [34568]000",
            r"(Quadro )?T(400|500|550|600|1000|1200|2000)E?|(Tesla |GRID )?T(4G?|10|40)",
        ),
    ),
    Gpu(Capability(8, 0), "Ampere", "A100, A30", first_cuda=(11, 0), products=(r"(GRID )?A(30|100)X?|A800",)),
    Gpu(
        Capability(8, 6),
        "Ampere",
        "GeForce RTX 30, RTX A6000, A10 and A40",
        first_cuda=(11, 1),
        products=(
            r"GeForce (RTX 30[5-9]0( Ti)?|RTX 2050|MX570( A)?)|(GRID )?A(2|10[GM]?|16|40)",
            r"RTX A(400|500|[1-6]000|[45]500)",
        ),
    ),
    Gpu(
        Capability(8, 7),
        "Ampere",
        "Jetson Orin",
        module="Orin",
        first_cuda=(11, 4),
        products=(r"(Jetson (AGX )?)?Orin( NX| Nano)?",),
    ),
    Gpu(Capability(8, 8), "Ampere", "no product in NVIDIA's list", first_cuda=(13, 0), listed=False),
    Gpu(
        Capability(8, 9),
        "Ada",
        "GeForce RTX 40, L4 and L40",
        first_cuda=(11, 8),
        products=(
            r"GeForce RTX 40[5-9]0( Ti)?( SUPER| D)?|L(2|4|20|40[GS]?)",
            r"RTX (500|[1-6]000|3500|4000 SFF|4500|5880|2000E) Ada Generation",
        ),
    ),
    Gpu(
        Capability(9, 0),
        "Hopper",
        "H100, H200, GH200",
        first_cuda=(11, 8),
        products=(r"H(20|100|200|800)|GH200",),
    ),
    Gpu(Capability(10, 0), "Blackwell", "B200, GB200", first_cuda=(12, 8), products=(r"G?B200",)),
    Gpu(
        Capability(10, 1),
        "Blackwell",
        "Jetson Thor",
        module="Thor",
        first_cuda=(12, 8),
        listed=False,
        renamed=110,
    ),
    Gpu(Capability(10, 3), "Blackwell", "B300, GB300", first_cuda=(12, 9), products=(r"G?B300",)),
    Gpu(Capability(10, 7), "Rubin", "no product in NVIDIA's list", first_cuda=(13, 4), listed=False),
    Gpu(Capability(11, 0), "Blackwell", "Jetson Thor", module="Thor", first_cuda=(13, 0)),
    Gpu(
        Capability(12, 0),
        "Blackwell",
        "GeForce RTX 50, RTX PRO Blackwell",
        first_cuda=(12, 8),
        products=(
            r"GeForce RTX 50[5-9]0( Ti| D( V2)?)?",
            r"RTX PRO (500|[1-6]000|4500)( 72GB)? Blackwell( Generation)?",
            r"RTX PRO [1-6][05]00 Blackwell ((Max-Q )?Workstation|Server|SFF) Edition",
        ),
    ),
    Gpu(
        Capability(12, 1),
        "Blackwell",
        "GB10 (DGX Spark)",
        grace=True,
        first_cuda=(12, 9),
        products=(r"GB10",),
    ),
)
"""Every GPU from Kepler on, by capability."""

BY_CAPABILITY: Mapping[Capability, Gpu] = {gpu.capability: gpu for gpu in GPUS}


@dataclass(frozen=True)
class Generation:
    """Successive capabilities of one generation."""

    name: str
    gpus: Tuple[Gpu, ...]


def by_generation(gpus: Iterable[Gpu]) -> Tuple[Generation, ...]:
    """Return ``gpus`` in their order, with successive ones of a generation grouped."""
    return tuple(
        Generation(name, tuple(group)) for name, group in groupby(gpus, key=lambda gpu: gpu.generation)
    )


LISTED_GPUS: Tuple[Gpu, ...] = tuple(gpu for gpu in GPUS if gpu.listed)
"""The GPUs that NVIDIA lists, which every report covers, oldest first."""

CAPABILITIES: Tuple[Capability, ...] = tuple(gpu.capability for gpu in LISTED_GPUS)
"""The capabilities of ``LISTED_GPUS``."""

COMPILED: Tuple[Gpu, ...] = tuple(gpu for gpu in GPUS if gpu.first_cuda is not None)
"""The GPUs that a CUDA from 11.0 on compiles for."""

KNOWN_SM: Tuple[int, ...] = tuple(gpu.number for gpu in COMPILED)
"""The architecture numbers of ``COMPILED``; there is no sm_91."""

DEVICES: Tuple[Capability, ...] = tuple(gpu.capability for gpu in COMPILED if gpu.renamed is None)
"""The capabilities of ``COMPILED`` under their current numbers, also those that NVIDIA does not list."""

GENERATION_NUMBERS: Mapping[str, Tuple[int, ...]] = {
    name: tuple(gpu.number for gpu in COMPILED if gpu.generation == name)
    for name in dict.fromkeys(gpu.generation for gpu in COMPILED)
}
"""Architecture numbers of ``COMPILED`` by generation, oldest first."""

RENAMED: Mapping[int, int] = {gpu.number: gpu.renamed for gpu in GPUS if gpu.renamed is not None}
"""New numbers of the parts that CUDA 13 renamed, by their old numbers."""

EMBEDDED: Mapping[int, Tuple[int, ...]] = {
    gpu.number: (gpu.number,) if gpu.renamed is None else (gpu.number, gpu.renamed)
    for gpu in GPUS
    if gpu.module
}
"""Numbers of the devices that run an embedded part's SASS, by the part's number."""


@dataclass(frozen=True)
class Suffix:
    """The first architecture and the first CUDA with a suffix of architectures."""

    number: int
    """Lowest architecture number that may have the suffix."""
    first_cuda: Version


SUFFIXES: Mapping[str, Suffix] = {"": Suffix(0, (0,)), "a": Suffix(90, (12, 0)), "f": Suffix(100, (12, 9))}
"""Suffixes by their text. Source: the PTX ISA: ``a`` since 8.0 (CUDA 12.0), ``f`` since 8.8 (CUDA 12.9)."""

_FORM = (
    r"(?:[ -](?:PCIE?|SXM\d?|NVL|DGXS|FHHL|AC|HBM\d\w*|GDDR\dX?|\d{1,3} ?GB?|\d{1,3}[ABCQ]"
    r"|Laptop GPU|Embedded GPU|Mobile|(?:with )?Max-Q(?: Design)?|MIG \S+))*"
)
"""Pattern of additions to a name of the same chip: board, memory, vGPU profile, notebook, MIG slice."""

PRODUCTS: Mapping[Capability, str] = {
    gpu.capability: rf"(?:NVIDIA )?(?:{'|'.join(gpu.products)}){_FORM}" for gpu in GPUS if gpu.products
}
"""Patterns, by capability, that a whole product name must match, regardless of case."""


def capability_of_product(name: str) -> Optional[Capability]:
    """Return the capability of a product by its name; ``None`` for an unknown product.

    It is for drivers that do not report the capability.
    """
    spaced = " ".join(name.split())
    for capability, pattern in PRODUCTS.items():
        if re.fullmatch(pattern, spaced, re.IGNORECASE):
            return capability
    return None
