"""The settings that a session on a GPU is opened with, by compute capability and memory.

Sources:

* ``fp16``: CUDA C++ Programming Guide 12.9, "Throughput of Native Arithmetic Instructions", row "16-bit
  floating-point add, multiply, multiply-add": not available on 5.0 and 5.2, 256 results per clock cycle and
  multiprocessor on 5.3, 2 on 6.1 against 128 in fp32, 128 or 256 on 6.0, 6.2 and from 7.0 on
* ``int8``: PTX ISA, ``dp4a``: sm_61 and newer
* ``bf16`` and TF32: the same guide, "Compute Capability 8.x": tensor cores take both from 8.0 on
* memory limit, arena, search of algorithms, CUDA graphs: ONNX Runtime's page on its CUDA execution provider;
  graphs need inputs whose shapes never change, which only the application knows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from builder.gpu.architectures import Capability

FP32, FP16, BF16, INT8 = "fp32", "fp16", "bf16", "int8"

LOW, MEDIUM, HIGH = "low", "medium", "high"
"""Levels: the least memory and time; what loses no quality that is measured; the model's own numbers."""

_SLOW_FP16 = Capability(6, 1)
_FIRST_FP16, _FIRST_INT8, _FIRST_BF16 = Capability(5, 3), Capability(6, 1), Capability(8, 0)

_LEFT_TO_OTHERS_PERCENT = 10
"""Of the memory, for CUDA's context and the other programs."""

_SMALL_MIB = 6144
"""Up to this much memory the arena grows by what is asked for, not to the next power of two."""

_BATCHES: Tuple[Tuple[int, int], ...] = ((14336, 128), (7168, 64), (3584, 32), (1792, 16))
"""Memory in MiB from which on a batch of this many items is begun with; a session halves it where it must.

7/8 of 16, 8, 4 and 2 GiB: of a card sold with so much, a driver and a desktop leave a little less free.
"""

_SMALLEST_BATCH = 8


@dataclass(frozen=True)
class DeviceProfile:
    """The settings for one GPU."""

    dtypes: Mapping[str, Tuple[str, ...]]
    """Level → the number types of a model's files, the best first; ``fp32`` is the last of each."""
    why: str
    """Why ``fp16`` is taken or not."""
    bf16: bool
    tf32: bool
    batch: int
    """Items."""
    memory_limit_mib: Optional[int]
    """``None``: no limit, as the memory is not known."""
    arena: str
    """``arena_extend_strategy``."""
    cudnn_search: str
    """``cudnn_conv_algo_search``."""
    cuda_graphs: bool

    def value(self) -> Dict[str, object]:
        """The profile for ``--json``."""
        return {**vars(self), "dtypes": {level: list(names) for level, names in self.dtypes.items()}}


def profile_of(capability: Capability, memory_mib: Optional[int]) -> DeviceProfile:
    """The settings for a GPU of which a session may take ``memory_mib`` MiB; ``None``: that is not known."""
    fp16, why = _fp16(capability)
    medium = (FP16, FP32) if fp16 else (FP32,)
    low = (INT8, *medium) if capability >= _FIRST_INT8 else medium
    limit = None if memory_mib is None else memory_mib * (100 - _LEFT_TO_OTHERS_PERCENT) // 100
    small = memory_mib is None or memory_mib <= _SMALL_MIB
    newest = capability >= _FIRST_BF16
    return DeviceProfile(
        dtypes={LOW: low, MEDIUM: medium, HIGH: (FP32,)},
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
    if capability < _FIRST_FP16:
        return False, f"compute capability {capability} has no arithmetic in fp16, which begins with 5.3"
    if capability == _SLOW_FP16:
        return False, "compute capability 6.1 computes fp16 at 1/64 of its rate in fp32"
    return True, f"compute capability {capability} computes fp16 at the rate of fp32 or faster"


def _batch(memory_mib: Optional[int]) -> int:
    return next((batch for floor, batch in _BATCHES if (memory_mib or 0) >= floor), _SMALLEST_BATCH)
