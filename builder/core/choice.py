"""What a machine should run, and why nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from builder.core.device import Device
from builder.core.index import IndexPackage


@dataclass(frozen=True)
class Rejection:
    """A package that was not chosen and why, in one sentence."""

    package: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """What to run. ``package`` is ``None`` where the index has nothing for this system, GPU or not."""

    package: Optional[IndexPackage]
    device: Optional[Device]
    """The GPU it is for: of those the package runs on, the one with the most memory. ``None``: no GPU."""
    support: Optional[str]
    """How the package's code runs on ``device``: ``native`` or ``jit``; ``None`` without one."""
    reasons: Tuple[Rejection, ...]
    """One for each other package, sorted by its name."""
    summary: str
    """What was chosen and why; without a GPU also what would change it, after ``CPU:``, ``DirectML:`` or
    ``CoreML:``."""
    others: Tuple[Device, ...] = ()
    """The machine's other GPUs, by their number."""
    visible: Optional[str] = None
    """``CUDA_VISIBLE_DEVICES`` that leaves only GPUs this package runs on, the one with the most memory
    first; ``None`` where nothing has to be hidden, or where ``notes`` say why no line can be given."""
    notes: Tuple[str, ...] = ()
    """What the user has to know or do besides, a sentence or two each."""

    @property
    def on_gpu(self) -> bool:
        """Whether the package will run on an NVIDIA GPU of this machine."""
        return self.package is not None and self.device is not None
