"""Runs a model of one node through an installed ONNX Runtime and prints one JSON line. Runs in a child.

Arguments: the host library's path and the execution provider. The model adds two numbers. A session may fall
back on the CPU for a node without an error; here that is forbidden, so what runs, runs where it was asked to.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Dict, List

from builder.client.trials.ort_probe import LOG_ERRORS, PLACES, OrtError, Runtime, append

PLACES.update(
    {
        "CreateSessionFromArray": 8,
        "Run": 9,
        "CreateTensorWithDataAsOrtValue": 49,
        "GetTensorMutableData": 51,
        "CreateCpuMemoryInfo": 69,
        "AddSessionConfigEntry": 130,
    }
)

NO_FALLBACK = b"session.disable_cpu_ep_fallback"

FLOAT = 1
"""Of ``ONNXTensorElementDataType``."""

ARENA, DEFAULT_MEMORY = 1, 0
"""Of ``OrtAllocatorType`` and ``OrtMemType``."""

NUMBERS = (1.5, 2.25)
"""Exact in binary, so that their sum is."""


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return bytes([number << 3 | 2, len(content)]) + content


def integer(number: int, value: int) -> bytes:
    """A varint field below 128."""
    return bytes([number << 3, value])


def value_info(name: bytes) -> bytes:
    """A ``ValueInfoProto`` of one float."""
    shape = field(2, field(1, integer(1, 1)))
    return field(1, name) + field(2, field(1, integer(1, FLOAT) + shape))


def model() -> bytes:
    """A ``ModelProto``: IR version 8, opset 13, ``c = a + b``. Field numbers: onnx.proto."""
    node = field(1, b"a") + field(1, b"b") + field(2, b"c") + field(4, b"Add")
    ends = field(11, value_info(b"a")) + field(11, value_info(b"b")) + field(12, value_info(b"c"))
    graph = field(1, node) + field(2, b"add") + ends
    return integer(1, 8) + field(7, graph) + field(8, field(1, b"") + integer(2, 13))


def session(runtime: Runtime, provider: str) -> ctypes.c_void_p:
    """A session of the model that runs on ``provider`` or cannot be made."""
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    if provider != "cpu":
        append(runtime, options, provider)
        runtime.call("AddSessionConfigEntry", options, ctypes.c_char_p(NO_FALLBACK), ctypes.c_char_p(b"1"))
    content = model()
    return runtime.make("CreateSessionFromArray", env, content, ctypes.c_size_t(len(content)), options)


def tensors(runtime: Runtime, values: List[ctypes.c_float]) -> ctypes.Array[ctypes.c_void_p]:
    """One tensor of one number each, over the values' own memory."""
    memory = runtime.make("CreateCpuMemoryInfo", ctypes.c_int(ARENA), ctypes.c_int(DEFAULT_MEMORY))
    shape = (ctypes.c_int64 * 1)(1)
    size, rank, kind = ctypes.c_size_t(4), ctypes.c_size_t(1), ctypes.c_int(FLOAT)
    made = [
        runtime.make("CreateTensorWithDataAsOrtValue", memory, ctypes.byref(one), size, shape, rank, kind)
        for one in values
    ]
    return (ctypes.c_void_p * len(made))(*made)


def run(runtime: Runtime, provider: str) -> float:
    """What the model makes of ``NUMBERS``."""
    made = session(runtime, provider)
    values = [ctypes.c_float(number) for number in NUMBERS]
    inputs, outputs = tensors(runtime, values), (ctypes.c_void_p * 1)()
    names, wanted = (ctypes.c_char_p * 2)(b"a", b"b"), (ctypes.c_char_p * 1)(b"c")
    two, one = ctypes.c_size_t(2), ctypes.c_size_t(1)
    runtime.call("Run", made, ctypes.c_void_p(), names, inputs, two, wanted, one, outputs)
    data = runtime.make("GetTensorMutableData", ctypes.c_void_p(outputs[0]))
    return float(ctypes.cast(data, ctypes.POINTER(ctypes.c_float))[0])


def tried(host: str, provider: str) -> Dict[str, object]:
    """``{"sum": 3.75}`` or ``{"failed": why}``. ``ValueError``: a call succeeds and makes nothing."""
    try:
        return {"sum": run(Runtime(host), provider)}
    except (OSError, AttributeError, ValueError, OrtError) as error:
        return {"failed": str(error)}


def main() -> None:
    """Print the answer for the arguments."""
    print(json.dumps(tried(*sys.argv[1:])), flush=True)  # noqa: T201 the parent reads it
