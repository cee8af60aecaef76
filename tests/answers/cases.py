"""Reader of onnx's backend tests in its wheel: models, inputs, and outputs expected by onnx's authors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from builder.config.inputs import Input
from tests.answers.values import DTYPES, Array, Value

ONNX_WHEEL = Input.wheel("onnx==1.17.0")
"""Release of onnx that ONNX Runtime 1.21 implements (its cmake/deps.txt); newer tests need newer opsets."""

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""Kinds of tests with all data in the wheel; tests of the kind "real" download their models."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The inputs and expected outputs of a folder ``test_data_set_*``."""

    inputs: Sequence[Value]
    expected: Sequence[Value]


def find_cases(wheel: Path) -> list[Path]:
    """Return the folders of all tests below an unpacked wheel, sorted."""
    data = wheel / "onnx/backend/test/data"
    found = sorted(model.parent for kind in KINDS for model in (data / kind).glob("*/model.onnx"))
    assert found, f"no tests below {data}"
    return found


def samples(case: Path) -> Iterator[Sample]:
    """Yield every data set of a test."""
    graph = onnx.load(case / "model.onnx", load_external_data=False).graph
    for folder in sorted(case.glob("test_data_set_*")):
        yield Sample(
            inputs=_read(folder, "input", graph.input),
            expected=_read(folder, "output", graph.output),
        )


def _read(folder: Path, side: str, declared: Sequence[onnx.ValueInfoProto]) -> list[Value]:
    count = len(list(folder.glob(f"{side}_*.pb")))
    return [_value((folder / f"{side}_{at}.pb").read_bytes(), declared[at].type) for at in range(count)]


def _value(data: bytes, declared: onnx.TypeProto) -> Value:
    """Return the value in a file, which has no type of its own: the model declares the type."""
    if declared.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if declared.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return _typed(numpy_helper.to_array(onnx.TensorProto.FromString(data)), declared.tensor_type.elem_type)


def _typed(array: Array, declared: int) -> Array:
    """Return the array with its declared type: onnx 1.17.0 wrote bfloat16 as uint16."""
    if declared == onnx.TensorProto.BFLOAT16 and array.dtype == np.uint16:
        return array.view(DTYPES[declared])
    return array
