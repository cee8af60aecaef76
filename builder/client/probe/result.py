"""What a probe of the machine found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from builder.findings.observed import Outcome
from builder.gpu.devices import Device

NAMELESS = "NVIDIA GPU"
"""The name of a GPU whose name the driver does not say."""


@dataclass(frozen=True)
class Probe:
    """One question to the machine and what came back, kept for the user to read."""

    name: str
    outcome: Outcome
    detail: str
    devices: Tuple[Device, ...] = ()
    """All it lists, those that ``CUDA_VISIBLE_DEVICES`` hides too where the probe does not respect it."""
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """The newest CUDA that the driver serves, ``12.9``."""
    code: Optional[int] = None
    """The number a library or nvidia-smi failed with: 803 of libcuda, 18 of NVML."""
    error: Optional[str] = None
    """That number's name as the library spells it, or the signal a probe died of."""
