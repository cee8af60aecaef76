"""This program calls ONNX Runtime's C API and prints the result as a line of JSON.

It runs in a child process, because a library that does not fit may crash.

Arguments: the action, the path of the host library, the execution provider, for ``open`` a model, and for
``measure`` a ``models.json`` and the name of a model in it.
``load`` loads the libraries of the provider, ``open`` makes a session for a model, ``compute`` runs a session
of one node, which adds two numbers. ``register`` registers a plug-in, whose path takes the provider's place,
``version`` loads the host alone, ``link`` any library.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import pkgutil
import struct
import sys
from base64 import b64decode
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Dict, List, Optional, Sequence, Tuple

from builder.client.probe.loaded import loaded_libraries
from builder.formats.json_values import read_document
from builder.formats.ort_api import OrtApi, OrtStatusError, ort_path
from builder.formats.proof import FORMAT as PROOF
from builder.formats.proof import SampleModel, SampleSet, largest_difference

NAMED = {"directml": b"DML", "coreml": b"CoreML"}
"""Execution providers that are enabled by ONNX Runtime's own name."""

LOG_ALL, LOG_ERRORS = 0, 3
"""Values of ``OrtLoggingLevel``. Only the log, on stderr, has the reason for which a provider's library does
not load."""

NO_FALLBACK = b"session.disable_cpu_ep_fallback"

FLOAT = 1
"""The value for float in ``ONNXTensorElementDataType``."""

KINDS = {"f32": FLOAT, "i32": 6, "i64": 7}

WARM_UPS, RUNS, MEASURE_SECONDS = 3, 50, 5.0
"""Runs of a model that are not timed, the most that are, and the seconds after which no other begins."""

NUMBERS = (1.5, 2.25)
"""Two numbers that are exact in binary, as their sum is."""


def append(runtime: OrtApi, env: ctypes.c_void_p, options: ctypes.c_void_p, provider: str) -> None:
    """Add the provider to the session options; an absolute path is that of a plug-in.

    For ``cuda`` this loads the provider library and its dependencies, and uses no GPU yet.
    """
    if provider == "cuda":
        runtime.append_cuda(options)
    elif provider in NAMED:
        name = ctypes.c_char_p(NAMED[provider])
        none = ctypes.c_void_p()
        runtime.call("SessionOptionsAppendExecutionProvider", options, name, none, none, ctypes.c_size_t(0))
    elif os.path.isabs(provider):  # noqa: PTH117 one import less
        runtime.register(env, provider)
        runtime.append_plugin(env, options)


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


def prepared(runtime: OrtApi, provider: str, log: int = LOG_ERRORS) -> Sequence[ctypes.c_void_p]:
    """Return an environment, and options of sessions on ``provider``, whose libraries are loaded.

    Who releases the environment unloads them.
    """
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    runtime.call("SetSessionLogSeverityLevel", options, ctypes.c_int(log))
    append(runtime, env, options, provider)
    return env, options


def opened(runtime: OrtApi, host: str, provider: str, model: str) -> Optional[int]:
    """Open and close a session, and return the bytes of GPU memory that it took.

    ``None`` where the provider is not ``cuda`` or the memory is unknown. ONNX Runtime's log on stderr names
    the provider of each node.
    """
    cuda = provider == "cuda"
    before = gpu_memory_used(host) if cuda else None
    env, options = prepared(runtime, provider, LOG_ALL)
    session = runtime.make("CreateSession", env, ort_path(model), options)
    after = gpu_memory_used(host) if cuda else None
    runtime.release("ReleaseSession", session)
    runtime.release("ReleaseSessionOptions", options)
    runtime.release("ReleaseEnv", env)
    return after - before if after is not None and before is not None else None


def loaded(runtime: OrtApi, provider: str) -> None:
    """Load the provider's libraries."""
    env, options = prepared(runtime, provider)
    runtime.release("ReleaseSessionOptions", options)
    runtime.release("ReleaseEnv", env)


def model() -> bytes:
    """Return a model with one node: IR version 8, opset 13, ``c = a + b``."""
    return pkgutil.get_data(__name__, "add.onnx") or b""


def _floats(runtime: OrtApi, output: ctypes.c_void_p) -> List[float]:
    """Return the numbers of an output, and release it. Raises ``ValueError`` where there is none."""
    shape, count = runtime.make("GetTensorTypeAndShape", output), ctypes.c_size_t()
    runtime.call("GetTensorShapeElementCount", shape, ctypes.byref(count))
    runtime.release("ReleaseTensorTypeAndShapeInfo", shape)
    data = ctypes.cast(runtime.make("GetTensorMutableData", output), ctypes.POINTER(ctypes.c_float))
    numbers = [data[0], *data[1 : count.value]]
    runtime.release("ReleaseValue", output)
    return numbers


def compute(runtime: OrtApi, provider: str) -> float:
    """Return the sum of ``NUMBERS`` that the model computes, with no node on the CPU instead."""
    content, data = model(), [struct.pack("<f", number) for number in NUMBERS]
    env, options = prepared(runtime, provider)
    if provider != "cpu":
        runtime.call("AddSessionConfigEntry", options, NO_FALLBACK, b"1")
    session = runtime.make("CreateSessionFromArray", env, content, ctypes.c_size_t(len(content)), options)
    inputs = {name: runtime.tensor(FLOAT, [1], each, len(each)) for name, each in zip("ab", data)}
    (total,) = runtime.run(session, inputs, ["c"])
    return _floats(runtime, total)[0]


def measure(
    runtime: OrtApi, host: str, provider: str, samples: Path, name: str
) -> Dict[str, Optional[float]]:
    """Run the model ``name`` of ``samples``, a ``models.json``, on the provider and on the CPU.

    Returns the largest difference (``None``: not comparable) and both median milliseconds of a run.
    """
    models = read_document(SampleSet, samples.read_bytes(), str(samples), [PROOF]).models
    sample = next(one for one in models if one.name == name)
    file = samples.with_name(f"{name}.onnx")
    opened(runtime, host, provider, str(file))  # its log names the provider of each node
    (theirs, cpu_ms), (ours, gpu_ms) = (timed(runtime, where, sample, file) for where in ("cpu", provider))
    return {"difference": largest_difference(ours, theirs), "gpu_ms": gpu_ms, "cpu_ms": cpu_ms}


def timed(runtime: OrtApi, provider: str, sample: SampleModel, file: Path) -> Tuple[List[List[float]], float]:
    """Return the outputs of a model, and the median milliseconds of a run after ``WARM_UPS`` runs."""
    env, options = prepared(runtime, provider)
    session = runtime.make("CreateSession", env, ort_path(str(file)), options)
    given = [text.split(":") for text in sample.inputs]
    data = [b64decode(text) for *_, text in given]
    shapes = [[int(dim) for dim in dims.split("x") if dim != "scalar"] for _, _, dims, _ in given]
    inputs = {
        key: runtime.tensor(KINDS[kind], shape, each, len(each))
        for (key, kind, _, _), shape, each in zip(given, shapes, data)
    }
    times: List[float] = []
    numbers: List[List[float]] = []
    while len(times) <= WARM_UPS or (len(times) < WARM_UPS + RUNS and sum(times) < MEASURE_SECONDS):
        begun = perf_counter()
        outputs = runtime.run(session, inputs, sample.outputs)
        times.append(perf_counter() - begun)
        numbers = [_floats(runtime, output) for output in outputs]
    runtime.release("ReleaseSession", session)
    return numbers, round(median(times[WARM_UPS:]) * 1000, 4)


def require_sum(total: float) -> None:
    """Raise ``ValueError`` unless ``total`` is the sum of ``NUMBERS``."""
    if total != sum(NUMBERS):
        raise ValueError(f"{' + '.join(map(str, NUMBERS))} gives {total}")


def answer(what: str, host: str, provider: str, model: str = "", name: str = "") -> Dict[str, object]:
    """Return ``{"version": …, "gpu_memory": bytes or null, "figures": …}`` or ``{"failed": why}``.

    The figures are those of ``measure``. A call that succeeds and makes nothing, for which ctypes raises
    ``ValueError``, is a failure too.
    """
    used, figures = None, {}
    try:
        if what == "link":
            ctypes.CDLL(host)
            return {"version": None, "gpu_memory": None, "figures": {}}
        runtime = OrtApi(host)
        if what == "register":
            env, _ = prepared(runtime, "cpu")
            runtime.register(env, provider)
            runtime.release("ReleaseEnv", env)
        elif what == "load":
            loaded(runtime, provider)
        elif what == "compute":
            require_sum(compute(runtime, provider))
        elif what == "open":
            used = opened(runtime, host, provider, model)
        elif what == "measure":
            figures = measure(runtime, host, provider, Path(model), name)
    except OrtStatusError as error:
        return {"failed": error.message}
    except (OSError, AttributeError, ValueError) as error:
        return {"failed": str(error)}
    return {"version": runtime.version, "gpu_memory": used, "figures": figures}


def main(*arguments: str) -> None:
    """Print the answer for the arguments."""
    said = {**answer(*arguments), "loaded": loaded_libraries()}
    print(json.dumps(said), flush=True)  # noqa: T201 the parent reads it
