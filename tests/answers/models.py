"""The models whose nodes are placed: silero, magika and MiniLM, each with an input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from builder.pipeline.selftest import Tensor
from builder.project.inputs import SELFTEST_MODEL
from tests.answers import pairs
from tests.answers.values import Array

_DTYPES = {"f32": np.float32, "i32": np.int32, "i64": np.int64}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model and what to feed it by name."""

    name: str
    path: Path
    feed: Mapping[str, Array]
    tolerance: float = 1e-3
    """Largest absolute difference allowed between a GPU and the CPU; outputs lie in -1 … 1."""
    runs_blind: bool = True
    """Whether it runs to its end when no kernel computes anything."""


@cache
def models() -> tuple[Model, ...]:
    """The self-test's, and silero at 16 kHz alone: its own branches follow from what a kernel says."""
    trials = {trial.name: trial for trial in pairs.shop().trials(pairs.store())}
    feeds = {name: {item.name: _array(item) for item in trial.inputs} for name, trial in trials.items()}
    at_16k = pairs.store().unpack(SELFTEST_MODEL) / "silero_vad/data/silero_vad_16k_op15.onnx"
    both = trials["silero_vad"].model
    return (
        Model(name="silero", path=both, feed=feeds["silero_vad"], runs_blind=False),
        Model(name="silero-16k", path=at_16k, feed=feeds["silero_vad"]),
        *(Model(name=name, path=trials[name].model, feed=feeds[name]) for name in ("magika", "minilm")),
    )


def _array(item: Tensor) -> Array:
    return np.frombuffer(item.data, _DTYPES[item.type]).reshape(item.dims)
