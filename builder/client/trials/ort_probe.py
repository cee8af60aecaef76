"""Loads an ONNX Runtime library, and a model if asked, and prints one JSON line. Run as a script in a child.

A child, because a library that does not fit crashes as often as it complains; a script without imports of
ours, because it is handed to ``python -c``.

Arguments: the host library's path, the execution provider, and a model's path or nothing.

``OrtApi`` is a table of function pointers that only grows at its end, so a function's place in it is ABI.
Places are those of ``onnxruntime_c_api.h``; ``onnxruntime_c_api.cc`` asserts that version 12 ends with 218.
"""

import ctypes
import glob
import json
import os
import sys

API_VERSION = 12

PLACES = {
    "GetErrorMessage": 2,
    "CreateEnv": 3,
    "CreateSession": 7,
    "CreateSessionOptions": 10,
    "SetSessionLogSeverityLevel": 22,
    "ReleaseEnv": 92,
    "ReleaseStatus": 93,
    "ReleaseSession": 95,
    "ReleaseSessionOptions": 100,
    "SessionOptionsAppendExecutionProvider_CUDA_V2": 204,
    "CreateCUDAProviderOptions": 205,
    "ReleaseCUDAProviderOptions": 208,
    "SessionOptionsAppendExecutionProvider": 216,
}

NAMED = {"directml": b"DML", "coreml": b"CoreML"}
"""Providers that are asked for by ONNX Runtime's own name of them."""

LOG_ALL, LOG_ERRORS = 0, 3
"""Of ``OrtLoggingLevel``: why a provider's library does not load is only in the log, on stderr."""

CALL = ctypes.CFUNCTYPE(ctypes.c_void_p)

TEXT = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)

RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class OrtError(Exception):
    """A call came back with a status."""


class Runtime:
    """One host library in this process; its folder is where it looks for providers."""

    def __init__(self, host: str) -> None:
        """Raises ``OSError`` (it does not load) or ``AttributeError`` (it is no ONNX Runtime)."""
        base = ctypes.CDLL(host).OrtGetApiBase
        base.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api, get_version = base()[:2]
        self.version = (ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)() or b"").decode(errors="replace")
        table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(API_VERSION)
        if not table:
            raise OSError(f"{host}: version {self.version} does not serve API {API_VERSION}")
        self.table = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status."""
        status = CALL(self.table[PLACES[name]] or 0)(*arguments)
        if status:
            message = TEXT(self.table[PLACES["GetErrorMessage"]] or 0)(status)
            self.release("ReleaseStatus", ctypes.c_void_p(status))
            raise OrtError((message or b"unknown").decode(errors="replace"))

    def make(self, name: str, *arguments: object) -> "ctypes.c_void_p":
        """What a function hands out through its last argument."""
        made = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def release(self, name: str, handle: "ctypes.c_void_p") -> None:
        """Give it back."""
        RELEASE(self.table[PLACES[name]] or 0)(handle)


def append(runtime: Runtime, options: "ctypes.c_void_p", provider: str) -> None:
    """Ask for the provider: this loads CUDA's library and all that it needs, and uses no GPU yet."""
    if provider == "cuda":
        cuda = runtime.make("CreateCUDAProviderOptions")
        try:
            runtime.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, cuda)
        finally:
            runtime.release("ReleaseCUDAProviderOptions", cuda)
    elif provider in NAMED:
        name = ctypes.c_char_p(NAMED[provider])
        none = ctypes.c_void_p()
        runtime.call("SessionOptionsAppendExecutionProvider", options, name, none, none, ctypes.c_size_t(0))


def spelled(path: str) -> object:
    """A path as ``ORTCHAR_T*``."""
    return ctypes.c_wchar_p(path) if os.name == "nt" else ctypes.c_char_p(os.fsencode(path))


def gpu_memory_used(host: str) -> "int | None":
    """Bytes of the GPU's memory that are not free, by the CUDA runtime beside ``host``."""
    try:
        (library,) = glob.glob(os.path.join(glob.escape(os.path.dirname(host)), "libcudart.so.*"))  # noqa: PTH118, PTH120, PTH207 one import less
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        code = ctypes.CDLL(library).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    except (OSError, ValueError, AttributeError):
        return None
    return total.value - free.value if code == 0 else None


def opened(runtime: Runtime, host: str, provider: str, model: str) -> "int | None":
    """Open a session and close it; bytes of GPU memory that it took, where the provider is CUDA's.

    ORT's log says on stderr where each node goes.
    """
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    runtime.call("SetSessionLogSeverityLevel", options, ctypes.c_int(LOG_ALL))
    cuda = provider == "cuda"
    before = gpu_memory_used(host) if cuda else None
    append(runtime, options, provider)
    session = runtime.make("CreateSession", env, spelled(model), options)
    after = gpu_memory_used(host) if cuda else None
    runtime.release("ReleaseSession", session)
    runtime.release("ReleaseSessionOptions", options)
    runtime.release("ReleaseEnv", env)
    return after - before if after is not None and before is not None else None


def loaded(runtime: Runtime, provider: str) -> None:
    """Load what the provider is made of."""
    env = runtime.make("CreateEnv", ctypes.c_int(LOG_ERRORS), ctypes.c_char_p(b"ortpacks"))
    options = runtime.make("CreateSessionOptions")
    append(runtime, options, provider)
    runtime.release("ReleaseSessionOptions", options)
    runtime.release("ReleaseEnv", env)


def main(host: str, provider: str, model: "str | None" = None) -> "dict[str, object]":
    """``{"version": …, "gpu_memory": bytes or null}`` or ``{"failed": why}``."""
    used = None
    try:
        runtime = Runtime(host)
        if model is None:
            loaded(runtime, provider)
        else:
            used = opened(runtime, host, provider, model)
    except (OSError, AttributeError, OrtError) as error:
        return {"failed": str(error)}
    return {"version": runtime.version, "gpu_memory": used}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)  # noqa: T201 the parent reads it
