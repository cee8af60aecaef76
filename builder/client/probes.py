"""What a probe answers, and the words for how it went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional, Tuple

from builder.core.device import Device


class Outcome(Enum):
    """How a probe went."""

    FOUND = "found"
    NONE = "none"
    """It works and says there is nothing."""
    MISSING = "missing"
    """The library, program or file is not there."""
    FAILED = "failed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    """Not asked: an earlier probe settled it, or there is nothing to ask on this system."""


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
