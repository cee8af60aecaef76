"""Run of tests like ``worker``, by the official wheel's Python API: ``wheelworker WHEEL``, an unpacked wheel.

This API is an independent reference: the Python module has its own copy of ONNX Runtime and uses neither
``capi`` nor ``values``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from builder.formats.ort_api import OrtStatusError
from tests.answers.values import InexpressibleError, Value
from tests.answers.worker import report

KINDS = {
    "Fail": "FAIL",
    "InvalidArgument": "INVALID_ARGUMENT",
    "NoSuchFile": "NO_SUCHFILE",
    "NoModel": "NO_MODEL",
    "EngineError": "ENGINE_ERROR",
    "RuntimeException": "RUNTIME_EXCEPTION",
    "InvalidProtobuf": "INVALID_PROTOBUF",
    "ModelLoaded": "MODEL_LOADED",
    "NotImplemented": "NOT_IMPLEMENTED",
    "InvalidGraph": "INVALID_GRAPH",
    "EPFail": "EP_FAIL",
}
"""Error codes of the C API by the exception of the Python API."""
ODD_TYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int4", "uint4"}
)
"""Types that numpy lacks and the Python API cannot take or return."""


class Named(Protocol):
    """An input or output of a session."""

    name: str


class Opened(Protocol):
    """The part of ``onnxruntime.InferenceSession`` that this module uses."""

    def get_inputs(self) -> Sequence[Named]: ...
    def run(self, outputs: None, feed: dict[str, Value]) -> list[Value]: ...


class PythonSession:
    """A session of the Python API with the interface ``Runs``."""

    def __init__(self, session: Opened) -> None:
        self._session = session

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        """Run the model and return its outputs. Raises ``OrtStatusError``, ``InexpressibleError``."""
        for value in inputs:
            _refuse_odd(value)
        names = [item.name for item in self._session.get_inputs()]
        feed = dict(zip(names, inputs, strict=False))
        try:
            return self._session.run(None, feed)
        except Exception as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Do nothing, as Python releases the session."""


def _refuse_odd(value: Value) -> None:
    if isinstance(value, list):
        for item in value:
            _refuse_odd(item)
    elif value is not None and value.dtype.name in ODD_TYPES:
        raise InexpressibleError(f"{value.dtype.name} has no way into the Python API")


def _translated(error: Exception) -> Exception:
    kind = KINDS.get(type(error).__name__)
    if kind is not None:
        return OrtStatusError(kind, str(error))
    if "numpy" in str(error).lower() or "Unable to convert" in str(error):
        return InexpressibleError("the outputs have no way out of the Python API")
    return error


def _opened(model: Path) -> PythonSession:
    import onnxruntime  # noqa: PLC0415 -- the wheel's, found through the path that main has set

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return PythonSession(
            onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        )
    except Exception as error:
        raise _translated(error) from error


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    report(_opened)
