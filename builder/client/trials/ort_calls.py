"""This program calls ONNX Runtime's C API and prints the result as a line of JSON.

It runs in a child process, because a library that does not fit may crash.

Arguments: the action, the path of the host library, the execution provider, and for ``open`` a model.
``load`` loads the libraries of the provider, ``open`` makes a session for a model, ``compute`` runs a session
of one node, which adds two numbers.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import pkgutil
import sys
from typing import Dict, List, Optional

from builder.client.probe.loaded import loaded_libraries
from builder.formats.ort_api import OrtApi, OrtStatusError

NAMED = {"directml": b"DML", "coreml": b"CoreML"}
"""Execution providers that are enabled by ONNX Runtime's own name."""

LOG_ALL, LOG_ERRORS = 0, 3
"""Values of ``OrtLoggingLevel``. Only the log, on stderr, has the reason for which a provider's library does
not load."""

NO_FALLBACK = b"session.disable_cpu_ep_fallback"

FLOAT = 1
"""The value for float in ``ONNXTensorElementDataType``."""

ARENA, DEFAULT_MEMORY = 1, 0
"""Values of ``OrtAllocatorType`` and ``OrtMemType``."""

NUMBERS = (1.5, 2.25)
"""Two numbers that are exact in binary, as their sum is."""


def append(runtime: OrtApi, options: ctypes.c_void_p, provider: str) -> None:
    """Add the provider to the session options.

    For ``cuda`` this loads the provider library and its dependencies, and uses no GPU yet.
    """
    if provider == "cuda":
        runtime.append_cuda(options)
    elif provider in NAMED:
        name = ctypes.c_char_p(NAMED[provider])
        none = ctypes.c_void_p()
        runtime.call("SessionOptionsAppendExecutionProvider", options, name, none, none, ctypes.c_size_t(0))


def ort_path(path: str) -> object:
    """Return a path as ``ORTCHAR_T*``."""
    return ctypes.c_wchar_p(path) if os.name == "nt" else ctypes.c_char_p(os.fsencode(path))


def gpu_memory_used(host: str) -> Optional[int]:
    """Return the used bytes of the GPU's memory, as the CUDA runtime beside ``host`` gives them.

    ``None`` where there is not exactly one CUDA runtime, or it fails.
    """
    try:
        name = "cudart64_*.dll" if sys.platform == "win32" else "libcudart.so.*"
        (library,) = glob.glob(os.path.join(glob.escape(os.path.dirname(host)), name))  # noqa: PTH118, PTH120, PTH207 one import less
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = ctypes.CDLL(library).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    except (OSError, ValueError, AttributeError):
        return None
    return total.value - free.value if code == 0 else None


def opened(runtime: OrtApi, host: str, provider: str, model: str) -> Optional[int]:
    """Open and close a session, and return the bytes of GPU memory that it took.

    ``None`` where the provider is not ``cuda`` or the memory is unknown. ONNX Runtime's log on stderr names
    the provider of each node.
    """
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    runtime.call("SetSessionLogSeverityLevel", options, ctypes.c_int(LOG_ALL))
    cuda = provider == "cuda"
    before = gpu_memory_used(host) if cuda else None
    append(runtime, options, provider)
    session = runtime.make("CreateSession", env, ort_path(model), options)
    after = gpu_memory_used(host) if cuda else None
    runtime.release("ReleaseSession", session)
    runtime.release("ReleaseSessionOptions", options)
    runtime.release("ReleaseEnv", env)
    return after - before if after is not None and before is not None else None


def loaded(runtime: OrtApi, provider: str) -> None:
    """Load the provider's libraries."""
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    append(runtime, options, provider)
    runtime.release("ReleaseSessionOptions", options)
    runtime.release("ReleaseEnv", env)


def model() -> bytes:
    """Return a model with one node: IR version 8, opset 13, ``c = a + b``."""
    return pkgutil.get_data(__name__, "add.onnx") or b""


def session(runtime: OrtApi, provider: str) -> ctypes.c_void_p:
    """Return a session of the model on ``provider``.

    It cannot be made where a node would run on the CPU instead. Raises ``OrtStatusError``.
    """
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    if provider != "cpu":
        append(runtime, options, provider)
        runtime.call("AddSessionConfigEntry", options, ctypes.c_char_p(NO_FALLBACK), ctypes.c_char_p(b"1"))
    content = model()
    return runtime.make("CreateSessionFromArray", env, content, ctypes.c_size_t(len(content)), options)


def tensors(runtime: OrtApi, values: List[ctypes.c_float]) -> ctypes.Array[ctypes.c_void_p]:
    """Return one tensor of one number for each of ``values``, in the values' own memory."""
    memory = runtime.make("CreateCpuMemoryInfo", ctypes.c_int(ARENA), ctypes.c_int(DEFAULT_MEMORY))
    shape = (ctypes.c_int64 * 1)(1)
    size, rank, kind = ctypes.c_size_t(4), ctypes.c_size_t(1), ctypes.c_int(FLOAT)
    made = [
        runtime.make("CreateTensorWithDataAsOrtValue", memory, ctypes.byref(value), size, shape, rank, kind)
        for value in values
    ]
    return (ctypes.c_void_p * len(made))(*made)


def compute(runtime: OrtApi, provider: str) -> float:
    """Return the sum of ``NUMBERS`` that the model computes."""
    made = session(runtime, provider)
    values = [ctypes.c_float(number) for number in NUMBERS]
    inputs, outputs = tensors(runtime, values), (ctypes.c_void_p * 1)()
    names, wanted = (ctypes.c_char_p * 2)(b"a", b"b"), (ctypes.c_char_p * 1)(b"c")
    two, single = ctypes.c_size_t(2), ctypes.c_size_t(1)
    runtime.call("Run", made, ctypes.c_void_p(), names, inputs, two, wanted, single, outputs)
    data = runtime.make("GetTensorMutableData", ctypes.c_void_p(outputs[0]))
    return float(ctypes.cast(data, ctypes.POINTER(ctypes.c_float))[0])


def require_sum(total: float) -> None:
    """Raise ``ValueError`` unless ``total`` is the sum of ``NUMBERS``."""
    if total != sum(NUMBERS):
        raise ValueError(f"{' + '.join(map(str, NUMBERS))} gives {total}")


def answer(what: str, host: str, provider: str, model: str = "") -> Dict[str, object]:
    """Return ``{"version": …, "gpu_memory": bytes or null}`` or ``{"failed": why}``.

    A call that succeeds and makes nothing, for which ctypes raises ``ValueError``, is a failure too.
    """
    used = None
    try:
        runtime = OrtApi(host)
        if what == "compute":
            require_sum(compute(runtime, provider))
        elif what == "open":
            used = opened(runtime, host, provider, model)
        else:
            loaded(runtime, provider)
    except OrtStatusError as error:
        return {"failed": error.message}
    except (OSError, AttributeError, ValueError) as error:
        return {"failed": str(error)}
    return {"version": runtime.version, "gpu_memory": used}


def main(*arguments: str) -> None:
    """Print the answer for the arguments."""
    said = {**answer(*arguments), "loaded": loaded_libraries()}
    print(json.dumps(said), flush=True)  # noqa: T201 the parent reads it
