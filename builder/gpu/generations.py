"""Generations of NVIDIA's GPUs: which compute capability is which cards.

Source: NVIDIA's pages "CUDA GPU Compute Capability" and "Legacy CUDA GPU Compute Capability"
(developer.nvidia.com/cuda-gpus, /cuda-legacy-gpus).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Mapping, Tuple

from builder.gpu.architectures import Capability

JETSON = "Jetson"


@dataclass(frozen=True)
class Model:
    """What has one compute capability."""

    device: Capability
    generation: str
    cards: str
    """A few of its products, for people who know theirs by name."""
    module: str
    """``Orin`` for a Jetson, whose code is its own; empty for cards."""


@dataclass(frozen=True)
class Generation:
    """Neighbouring capabilities of one name."""

    name: str
    models: Tuple[Model, ...]


_TABLE = (
    ("5.0", "Maxwell", "GeForce GTX 750, Quadro K2200 and M2000M", ""),
    ("5.2", "Maxwell", "GeForce GTX 900, Tesla M40 and M60", ""),
    ("5.3", "Maxwell", "Jetson Nano and TX1", "Nano"),
    ("6.0", "Pascal", "Tesla P100, Quadro GP100", ""),
    ("6.1", "Pascal", "GeForce GTX 10, Tesla P4 and P40", ""),
    ("6.2", "Pascal", "Jetson TX2", "TX2"),
    ("7.0", "Volta", "Tesla V100, Titan V", ""),
    ("7.2", "Volta", "Jetson Xavier", "Xavier"),
    ("7.5", "Turing", "GeForce RTX 20 and GTX 16, T4", ""),
    ("8.0", "Ampere", "A100, A30", ""),
    ("8.6", "Ampere", "GeForce RTX 30, RTX A6000, A10 and A40", ""),
    ("8.7", "Ampere", "Jetson Orin", "Orin"),
    ("8.9", "Ada", "GeForce RTX 40, L4 and L40", ""),
    ("9.0", "Hopper", "H100, H200, GH200", ""),
    ("10.0", "Blackwell", "B200, GB200", ""),
    ("10.3", "Blackwell", "B300, GB300", ""),
    ("11.0", "Blackwell", "Jetson Thor", "Thor"),
    ("12.0", "Blackwell", "GeForce RTX 50, RTX PRO Blackwell", ""),
    ("12.1", "Blackwell", "GB10 (DGX Spark)", ""),
)

MODELS: Tuple[Model, ...] = tuple(
    Model(Capability.parse(device), generation, cards, module) for device, generation, cards, module in _TABLE
)
"""One for each of ``coverage.CAPABILITIES``, in that order."""

GENERATIONS: Tuple[Generation, ...] = tuple(
    Generation(name, tuple(models)) for name, models in groupby(MODELS, key=lambda model: model.generation)
)
"""The same by generation, oldest first."""

GENERATION_NUMBERS: Mapping[str, Tuple[int, ...]] = {
    "Maxwell": (50, 52, 53),
    "Pascal": (60, 61, 62),
    "Volta": (70, 72),
    "Turing": (75,),
    "Ampere": (80, 86, 87, 88),
    "Ada": (89,),
    "Hopper": (90,),
    "Blackwell": (100, 101, 103, 110, 120, 121),
}
"""GPU generations by the numbers of their architectures, oldest first. Source: NVIDIA's page "CUDA GPU
Compute Capability" and its legacy counterpart; ``nvcc --help`` of 12.9 and 13.0 for the embedded parts."""

CAPABILITIES: Tuple[Capability, ...] = tuple(
    Capability.parse(text)
    for text in (
        *("5.0", "5.2", "5.3", "6.0", "6.1", "6.2", "7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0"),
        *("10.0", "10.3", "11.0", "12.0", "12.1"),
    )
)
"""Every compute capability from Maxwell to Blackwell. Source: NVIDIA's list of CUDA GPUs."""
