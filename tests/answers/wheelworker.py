"""As ``worker``, on the official wheel's own Python API: ``wheelworker WHEEL``, its unpacked tree.

The truth from outside: its core is a second copy of the library, inside the Python module, and nothing of
``capi`` and ``values`` lies between it and the numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from builder.virtualcard.capi import ApiStatusError
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
"""The Python API's exceptions, one for each code of the C API."""
ODD_TYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int4", "uint4"}
)
"""What numpy has no type of its own for, and this API no way in and out."""


class Named(Protocol):
    """An input or output."""

    name: str


class Opened(Protocol):
    """``onnxruntime.InferenceSession``, as far as it is used."""

    def get_inputs(self) -> Sequence[Named]: ...
    def run(self, outputs: None, feed: dict[str, Value]) -> list[Value]: ...


class PythonSession:
    """Has ``capi.Session``'s ``run`` and ``close``."""

    def __init__(self, session: Opened) -> None:
        self._session = session

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        """The outputs. Raises ``ApiStatusError``, ``InexpressibleError``."""
        for value in inputs:
            _refuse_odd(value)
        names = [item.name for item in self._session.get_inputs()]
        feed = dict(zip(names, inputs, strict=False))
        try:
            return self._session.run(None, feed)
        except Exception as error:
            raise _translated(error) from error

    def close(self) -> None:
        """Nothing: Python gives it back."""


def _refuse_odd(value: Value) -> None:
    if isinstance(value, list):
        for item in value:
            _refuse_odd(item)
    elif value is not None and value.dtype.name in ODD_TYPES:
        raise InexpressibleError(f"{value.dtype.name} has no way into the Python API")


def _translated(error: Exception) -> Exception:
    kind = KINDS.get(type(error).__name__)
    if kind is not None:
        return ApiStatusError(kind, str(error))
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
