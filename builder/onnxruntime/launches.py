"""What of a CUDA unit need not be compiled: the architectures that ORT's own dispatch never launches it on.

ORT's CMake compiles each unit for the whole list of architectures, and some units' host code then refuses
most of them: flash attention asks for 8.x or 9.0 before it launches anything. Compiled for another
architecture, such a kernel is bytes that nobody can run. The profile ``full`` leaves them out, and nothing
else.

Lines are those of 1.21.0's source, which was read whole; of other releases nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from builder.formats.versions import Span
from builder.gpu.architectures import Arch

_CONTRIB = "contrib_ops/cuda/"

_ATTENTION = f"{_CONTRIB}bert/"

_READ = Span(first=(1, 21, 0), last=(1, 21, 0))


@dataclass(frozen=True)
class Launch:
    """Units whose kernels are launched on a range of architectures only."""

    name: str
    path: str
    """What the paths of these units' sources below ``onnxruntime/`` begin with."""
    units: int
    """How many units that is, each of them one fatbin container."""
    first: int
    """The oldest device, by its capability without the point: ``80``."""
    last: int
    """The newest one."""
    source: str
    """Where ORT decides so."""
    option: str = ""
    """The CMake option without which ORT compiles none of it."""
    shared: Mapping[int, int] = field(default_factory=dict)
    """Architectures that share an older one's PTX besides those that all units share, by their numbers."""
    served: Mapping[int, int] = field(default_factory=dict)
    """Architectures whose devices run an older one's SASS where the set has that, by their numbers."""

    def launched(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Those of ``arches`` that the kernels are launched on."""
        return frozenset(arch for arch in arches if self.first <= arch.number <= self.last)

    def compiled(self, arches: Iterable[Arch]) -> frozenset[Arch]:
        """Those of ``arches`` that the units are compiled for: one where nothing is launched.

        A unit cannot be compiled for none, and its host code is linked.
        """
        whole = sorted(arches)
        plain = {arch.number for arch in whole if not arch.suffix}
        made = {
            arch for arch in self.launched(whole) if arch.suffix or self.served.get(arch.number) not in plain
        }
        return frozenset(made or whole[:1])


_MEMORY_EFFICIENT = f"{_ATTENTION}cutlass_fmha/memory_efficient_attention.cu line 13"

_FLASH_PTX: Mapping[int, int] = {90: 89}
"""nvcc 12.4's PTX for 80, 86, 89 and 90 is the same text but for ``.target``: compared for head size 32."""

_FLASH_SASS: Mapping[int, int] = {86: 80}
"""SASS for 8.0 runs on 8.6 (CUDA C++ Programming Guide, "Binary Compatibility"), made from the same PTX.
FlashAttention's own wheels have no other for 8.x: setup.py of Dao-AILab/flash-attention at 0029136."""

LAUNCHES: tuple[Launch, ...] = (
    Launch(
        *("flash attention", f"{_ATTENTION}flash_attention/flash_fwd_", 32, 80, 90),
        f"{_ATTENTION}flash_attention/flash_api.cc line 413",
        "onnxruntime_USE_FLASH_ATTENTION",
        _FLASH_PTX,
        _FLASH_SASS,
    ),
    Launch(
        *("lean attention", f"{_ATTENTION}lean_attention/lean_fwd_", 2, 80, 90),
        f"{_ATTENTION}lean_attention/lean_api.cc line 256",
        "onnxruntime_USE_LEAN_ATTENTION",
    ),
    Launch(
        *("memory-efficient attention for sm_50", f"{_ATTENTION}cutlass_fmha/fmha_sm50.cu", 1, 50, 69),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("memory-efficient attention for sm_70", f"{_ATTENTION}cutlass_fmha/fmha_sm70.cu", 1, 70, 74),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("memory-efficient attention for sm_75", f"{_ATTENTION}cutlass_fmha/fmha_sm75.cu", 1, 75, 79),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("memory-efficient attention for sm_80", f"{_ATTENTION}cutlass_fmha/fmha_sm80.cu", 1, 80, 999),
        _MEMORY_EFFICIENT,
    ),
    Launch(
        *("mixture of experts", f"{_CONTRIB}moe/ft_moe/moe_gemm_kernels_", 4, 70, 89),
        f"{_CONTRIB}moe/ft_moe/moe_gemm_kernels_template.h line 386: elsewhere it throws",
    ),
)

NO_DEVICE_CODE: tuple[str, ...] = (f"{_ATTENTION}cudnn_fmha/cudnn_flash_attention.cu",)
"""CUDA units without a kernel, by the path of their source: the C++ compiler takes them. This one calls
cuDNN's front end, a header of 10,000 lines that nvcc reads once more for each architecture (458 CPU s for
five, 4 GB)."""


_SHARED_PTX: Mapping[int, int] = {52: 50, 61: 60}
"""Architectures whose SASS is made from the PTX of an older one, by their numbers.

nvcc reads a unit and makes PTX once for both, then SASS for each (``code=[sm_50,sm_52]``; NVIDIA's manual of
nvcc, "Two-Staged Compilation"). In ORT 1.21.0, CUTLASS 3.5.1 and CUDA 12.4's headers no ``__CUDA_ARCH__`` is
compared with anything from 501 to 520; from 601 to 610 ask dp4a, which ORT calls in
``qordered_layer_norm_impl.cu`` alone, an operator that needs sm_75, and cuRAND's MRG32k3a, which ORT does not
use. CUB's block sizes for 5.0 and 6.0 then serve 5.2 and 6.1 too.
"""


def shared_ptx(sm: Iterable[Arch], version: str, launch: Launch | None = None) -> Mapping[Arch, Arch]:
    """The architectures of a set that share another's PTX, in all units or in those of ``launch``."""
    known = {arch.number: arch for arch in sm if not arch.suffix} if version in _READ else {}
    numbers = {**_SHARED_PTX, **(launch.shared if launch else {})}
    return {known[new]: known[old] for new, old in numbers.items() if new in known and old in known}


def launches(version: str) -> tuple[Launch, ...]:
    """What is known of an ORT version; nothing of those whose dispatch was not read."""
    return LAUNCHES if version in _READ else ()


def without_device_code(version: str) -> tuple[str, ...]:
    """The CUDA units of an ORT version that hold no kernel."""
    return NO_DEVICE_CODE if version in _READ else ()


def unused_options(arches: Iterable[Arch], version: str) -> frozenset[str]:
    """The CMake options of a full build whose code no architecture of the set would launch."""
    whole = tuple(arches)
    return frozenset(
        launch.option for launch in launches(version) if launch.option and not launch.launched(whole)
    )


def narrowed(arches: Iterable[Arch], version: str) -> tuple[tuple[Launch, frozenset[Arch]], ...]:
    """The units that are compiled for less than the whole set, and what they are compiled for."""
    whole = frozenset(arches)
    skipped = unused_options(whole, version)
    parts = ((launch, launch.compiled(whole)) for launch in launches(version) if launch.option not in skipped)
    return tuple((launch, part) for launch, part in parts if part != whole)
