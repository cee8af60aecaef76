"""A proof says how a package ran on a real card: the file that the client's command ``prove`` writes.

It names no person and no machine. Schema: docs/schemas/proof.schema.json, made of these types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Dict, Optional, Sequence, Tuple

FORMAT = 1


class _Closed:
    __pydantic_config__: ClassVar[Dict[str, object]] = {"extra": "forbid", "use_attribute_docstrings": True}


@dataclass(frozen=True)
class ModelResult(_Closed):
    """One model on the card and, with the same host library, on the CPU; null where it failed."""

    name: str
    sha256: str
    """Of the model's file."""
    nodes: int
    """Nodes after ONNX Runtime's optimisations."""
    cuda: int
    """Those of them on CUDA."""
    difference: Optional[float]
    """The largest absolute difference between outputs of card and CPU."""
    gpu_ms: Optional[float]
    """Median time of a run, in milliseconds."""
    cpu_ms: Optional[float]
    finding: Optional[str]
    """What is wrong, in words; null for right numbers."""


@dataclass(frozen=True)
class Proof(_Closed):
    """A run of the self-test's models on a real card, in the file's order."""

    format: int
    date: str
    card: str
    """The product's name, as the driver gives it."""
    capability: str
    driver: str
    package: str
    sha256: str
    """Of the package's archive."""
    host: str
    """ONNX Runtime's version, as the host library says it; empty where it did not answer."""
    models: Tuple[ModelResult, ...]


@dataclass(frozen=True)
class SampleModel:
    """A model to run; its file is ``NAME.onnx``."""

    name: str
    tolerance: float
    """The largest difference that is right."""
    inputs: Tuple[str, ...]
    """``NAME:TYPE:DIMS:``, as the smoke program takes it, and little-endian bytes in Base64."""
    outputs: Tuple[str, ...]


@dataclass(frozen=True)
class SampleSet:
    """The contents of ``models.json``, in the folder of the models that ``prove`` runs."""

    format: int
    models: Tuple[SampleModel, ...]


def largest_difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Optional[float]:
    """Return the largest absolute difference; ``None`` for other lengths and where one is no number."""
    apart = [abs(a - b) for one, other in zip(ours, theirs) for a, b in zip(one, other)]
    comparable = [*map(len, ours)] == [*map(len, theirs)] and all(map(math.isfinite, apart))
    return max(apart) if apart and comparable else None


def finding_of(cuda: int, difference: Optional[float], tolerance: float) -> Optional[str]:
    """Return what is wrong with a model that ran; ``None`` for right numbers."""
    if difference is None or difference > tolerance:
        return "the numbers differ"
    return None if cuda else "no node ran on the card"
