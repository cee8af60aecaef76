"""A GPU as its driver describes it, driver versions, platforms, and the settings of a session on a GPU.

The settings of an ONNX Runtime session follow from a GPU's compute capability and memory (``profile_of``).
Sources:

* ``fp16``: CUDA C++ Programming Guide 12.9, "Throughput of Native Arithmetic Instructions", row "16-bit
  floating-point add, multiply, multiply-add": not available on 5.0 and 5.2, 256 results per clock cycle and
  multiprocessor on 5.3, 2 on 6.1 against 128 in fp32, 128 or 256 on 6.0, 6.2 and from 7.0 on
* no ``int8``: ONNX Runtime's CUDA provider has no kernel for ``DynamicQuantizeLinear``, nor for
  ``MatMulInteger`` of its ``uint8``, which files in int8 consist of; these nodes would run on the CPU
* ``bf16`` and TF32: the same guide, "Compute Capability 8.x": tensor cores take both from 8.0 on
* memory limit, arena, search of algorithms, CUDA graphs: ONNX Runtime's page on its CUDA execution provider;
  graphs need inputs whose shapes never change, which only the application knows
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import FIRST_FP16

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
    version, limit = parse_driver(driver), parse_driver(ceiling)
    following = _NEXT_BRANCH.get(ceiling)
    return version >= following if following else version[: len(limit)] > limit


def platform_of(system: str, machine: str) -> str:
    """Return the platform, ``linux-x64``, of what ``platform.system()`` and ``platform.machine()`` return.

    An unknown pair is joined by a hyphen, in lower case.
    """
    key = (system.lower(), machine.lower())
    return _PLATFORMS.get(key, "-".join(key))


FP32, FP16 = "fp32", "fp16"

LOW, MEDIUM, HIGH = "low", "medium", "high"
"""Levels of precision: least memory and time; no measured loss of quality; the model's own number types."""

_SLOW_FP16 = Capability(6, 1)
_FIRST_BF16 = Capability(8, 0)

_LEFT_TO_OTHERS_PERCENT = 10
"""Percent of the memory that is left to CUDA's context and to other programs."""

_SMALL_MIB = 6144
"""Memory in MiB up to which the arena grows by the requested bytes, not to the next power of two."""

_BATCHES: Tuple[Tuple[int, int], ...] = ((14336, 128), (7168, 64), (3584, 32), (1792, 16))
"""Least memory in MiB, and the items of a first batch with it; a session halves a batch that is too big.

The limits are 7/8 of 16, 8, 4 and 2 GiB, because driver and desktop occupy some of a card's memory.
"""

_SMALLEST_BATCH = 8


@dataclass(frozen=True)
class DeviceProfile:
    """The settings for one GPU."""

    dtypes: Mapping[str, Tuple[str, ...]]
    """Number types of a model's files by level, the best first; ``fp32`` is always the last."""
    why: str
    """The reason why ``fp16`` is used or not."""
    bf16: bool
    tf32: bool
    batch: int
    """Items of the first batch."""
    memory_limit_mib: Optional[int]
    """Most MiB that the session may use; ``None`` for no limit, where the memory is unknown."""
    arena: str
    """The provider option ``arena_extend_strategy``."""
    cudnn_search: str
    """The provider option ``cudnn_conv_algo_search``."""
    cuda_graphs: bool

    def value(self) -> Dict[str, object]:
        """Return the profile for ``--json``."""
        return {**vars(self), "dtypes": {level: list(names) for level, names in self.dtypes.items()}}


def profile_of(capability: Capability, memory_mib: Optional[int]) -> DeviceProfile:
    """Return the settings for a GPU with ``memory_mib`` MiB for the session; ``None``: unknown memory."""
    fp16, why = _fp16(capability)
    medium = (FP16, FP32) if fp16 else (FP32,)
    limit = None if memory_mib is None else memory_mib * (100 - _LEFT_TO_OTHERS_PERCENT) // 100
    small = memory_mib is None or memory_mib <= _SMALL_MIB
    newest = capability >= _FIRST_BF16
    return DeviceProfile(
        dtypes={LOW: medium, MEDIUM: medium, HIGH: (FP32,)},
        why=why,
        bf16=newest,
        tf32=newest,
        batch=_batch(memory_mib),
        memory_limit_mib=limit,
        arena="kSameAsRequested" if small else "kNextPowerOfTwo",
        cudnn_search="HEURISTIC",
        cuda_graphs=False,
    )


def _fp16(capability: Capability) -> Tuple[bool, str]:
    if capability < FIRST_FP16:
        return False, f"compute capability {capability} has no arithmetic in fp16, which begins with 5.3"
    if capability == _SLOW_FP16:
        return False, "compute capability 6.1 computes fp16 at 1/64 of its rate in fp32"
    return True, f"compute capability {capability} computes fp16 at the rate of fp32 or faster"


def _batch(memory_mib: Optional[int]) -> int:
    return next((batch for floor, batch in _BATCHES if (memory_mib or 0) >= floor), _SMALLEST_BATCH)
