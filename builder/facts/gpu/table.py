"""Table of NVIDIA's GPUs: ``table.json`` has one row for each compute capability. A new GPU is added there.

All other lists of GPUs are computed from ``GPUS``: columns of reports, architectures of an nvcc, driver
floors, product names, embedded parts. Only ``virtualcard/resolver.c`` has, on purpose, a second table of the
GPUs that NVIDIA lists; a test compares the two.

Sources:

* capability and products: NVIDIA's pages "CUDA GPU Compute Capability" and "Legacy CUDA GPU Compute
  Capability" (developer.nvidia.com/cuda-gpus, /cuda-legacy-gpus); pci.ids for the chip behind a name
* first and last CUDA: the CUDA Toolkit release notes, and for 10.0 and newer the PTX ISA; ptxas 13.0 is the
  first that takes sm_88, ptxas 13.4 (PTX ISA 9.4) the first that takes sm_107
* renamed capabilities: the PTX ISA, "sm_101 renamed to sm_110 from PTX ISA version 9.0"
"""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass
from itertools import groupby
from typing import Iterable, Iterator, Mapping, Optional, Tuple

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.drivers import Version, toolkit_floor

LAST_12 = (12, 9)

_BLACKWELLS = (12, 8)
"""The first CUDA with GPUs that its own driver knows and older drivers for CUDA 12 do not."""

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
        return toolkit_floor(first) or "" if first >= _BLACKWELLS else ""

    @property
    def number(self) -> int:
        """The number of the capability's architecture: ``86`` for 8.6."""
        return self.capability.number


def _read() -> Iterator[Gpu]:
    for row in json.loads(pkgutil.get_data(__name__, "table.json") or b""):
        first = row.get("first_cuda")
        read = {
            "capability": Capability.parse(row["capability"]),
            "first_cuda": tuple(map(int, first.split("."))) if first else None,
            "products": tuple(row.get("products", ())),
        }
        yield Gpu(**{**row, **read})


GPUS: Tuple[Gpu, ...] = tuple(_read())
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
