"""The stock onnxruntime CPU wheel of this environment: what a model's answer should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from builder.pipeline.selftest_models import Tensor

_DTYPES = {"f32": np.float32, "i32": np.int32, "i64": np.int64}


def stock_outputs(model: Path, inputs: Sequence[Tensor]) -> Mapping[str, list[float]]:
    """The outputs of ``model`` on the stock CPU provider: output name to its numbers, flattened."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    feed = {item.name: np.frombuffer(item.data, _DTYPES[item.type]).reshape(item.dims) for item in inputs}
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, feed)
    return {name: np.asarray(value).ravel().tolist() for name, value in zip(names, values, strict=True)}
