"""Models opened and run through ONNX Runtime's C API, of which ctypes calls the few functions needed.

``OrtApi`` is a table of function pointers that only ever grows at its end: a function's place in it is ABI.
The places are those of ``onnxruntime_c_api.h`` of 1.21.0; ``onnxruntime_c_api.cc`` asserts several of them
(``ReleaseCustomOpDomain`` 101, ``ReleaseModelMetadata`` 118, ``SynchronizeBoundOutputs`` 203).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

API_VERSION = 11
"""The oldest API that has every function below (CUDA's V2 options came with 1.11)."""

ERROR_KINDS = (
    "OK",
    "FAIL",
    "INVALID_ARGUMENT",
    "NO_SUCHFILE",
    "NO_MODEL",
    "ENGINE_ERROR",
    "RUNTIME_EXCEPTION",
    "INVALID_PROTOBUF",
    "MODEL_LOADED",
    "NOT_IMPLEMENTED",
    "INVALID_GRAPH",
    "EP_FAIL",
)
"""``OrtErrorCode`` in its order, without the prefix ORT_."""

_FATAL = 4
"""Of ``OrtLoggingLevel``: errors come back as statuses, and need not be printed too."""


class ApiStatusError(Exception):
    """A call came back with a status."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


_CALL = ctypes.CFUNCTYPE(ctypes.c_void_p)
"""Any function of the table that returns a status or null; its arguments carry their own C types."""

_LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_char_p] * 4)
"""``OrtLoggingFunction``: parameter, severity, category, id, place in the source, message."""

_TEXT = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


class Api:
    """One host library, loaded into this process; its path decides which providers it will find.

    A context: an environment that is left to the process's end is destroyed after what it needs.
    """

    places: ClassVar[Mapping[str, int]] = {
        "GetErrorCode": 1,
        "GetErrorMessage": 2,
        "CreateEnvWithCustomLogger": 4,
        "CreateSession": 7,
        "Run": 9,
        "CreateSessionOptions": 10,
        "SetSessionLogSeverityLevel": 22,
        "SetSessionGraphOptimizationLevel": 23,
        "SetIntraOpNumThreads": 24,
        "SessionGetInputCount": 30,
        "SessionGetOutputCount": 31,
        "SessionGetInputName": 36,
        "SessionGetOutputName": 37,
        "CreateTensorWithDataAsOrtValue": 49,
        "CreateCpuMemoryInfo": 69,
        "AllocatorFree": 76,
        "GetAllocatorWithDefaultOptions": 78,
        "ReleaseEnv": 92,
        "ReleaseStatus": 93,
        "ReleaseSession": 95,
        "ReleaseValue": 96,
        "ReleaseSessionOptions": 100,
        "AddSessionConfigEntry": 130,
        "SessionOptionsAppendExecutionProvider_CUDA_V2": 204,
        "CreateCUDAProviderOptions": 205,
        "ReleaseCUDAProviderOptions": 208,
    }
    """Where in the table each function stands."""

    def __init__(self, library: Path, log: Callable[[str, str], None]) -> None:
        """``log`` gets place and message of what sessions say that were opened to be verbose.

        Raises ``OSError`` for what is no library, ``AttributeError`` for what is no ONNX Runtime.
        """
        base = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL).OrtGetApiBase
        base.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api, get_version = base()[:2]  # OrtApiBase has these two
        self.version: str = ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)().decode()
        table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(API_VERSION)
        self._table = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))

        def listen(*arguments: bytes | int | None) -> None:
            *_, place, message = arguments
            log(_decoded(place), _decoded(message))

        self._logger = _LOGGER(listen)  # kept as long as the environment
        self.env = self.handle(
            "CreateEnvWithCustomLogger", self._logger, None, ctypes.c_int(_FATAL), b"ortpacks"
        )

    @cached_property
    def memory(self) -> ctypes.c_void_p:
        """The description of plain memory, as tensors over arrays need it."""
        return self.handle("CreateCpuMemoryInfo", ctypes.c_int(0), ctypes.c_int(0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release("ReleaseEnv", self.env)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status. Raises ``ApiStatusError``."""
        status = _CALL(self._address(name))(*arguments)
        if status is not None:
            raise self._error(ctypes.c_void_p(status))

    def handle(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """The pointer that a function returns through its last argument. Raises ``ApiStatusError``."""
        made = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def number(self, name: str, *arguments: object) -> int:
        """The ``size_t`` that a function returns through its last argument. Raises ``ApiStatusError``."""
        made = ctypes.c_size_t()
        self.call(name, *arguments, ctypes.byref(made))
        return made.value

    def text(self, name: str, *arguments: object) -> str:
        """The string that a function returns through its last argument, freed by ORT's allocator."""
        allocator = self.handle("GetAllocatorWithDefaultOptions")
        made = self.handle(name, *arguments, allocator)
        text = ctypes.string_at(made.value or 0).decode()
        self.call("AllocatorFree", allocator, made)
        return text

    def release(self, name: str, handle: ctypes.c_void_p) -> None:
        """Call one of the ``Release`` functions, which return nothing."""
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._address(name))(handle)

    def _address(self, name: str) -> int:
        address = self._table[self.places[name]]
        if address is None:
            raise AttributeError(f"version {self.version} has no {name}")
        return int(address)

    def _error(self, status: ctypes.c_void_p) -> ApiStatusError:
        code = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._address("GetErrorCode"))(status)
        message = _TEXT(self._address("GetErrorMessage"))(status)
        self.release("ReleaseStatus", status)
        return ApiStatusError(ERROR_KINDS[code], (message or b"").decode(errors="replace"))


def _decoded(text: object) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else ""


NO_CUDA = ("CUDA failure", "Failed to load library")
"""What a refusal says: there is no device, or the provider cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """How a session is opened."""

    cuda: bool = True
    """Ask for the CUDA provider before the CPU's."""
    verbose: bool = False
    """Log everything, of which the place of each node is wanted."""
    level: int | None = None
    """``GraphOptimizationLevel``; ORT's own choice (99, all) unless said."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Entries of ORT's session configuration."""


class Session:
    """An open model on a library's CUDA and CPU providers. It has one thread: sums come out in one order."""

    def __init__(self, api: Api, model: Path, wish: SessionSettings) -> None:
        """Open ``model``. Where CUDA finds no device, the CPU serves, and ``refusal`` is ORT's message.

        Raises ``ApiStatusError``.
        """
        self._api = api
        self.refusal: str | None = None
        try:
            self._handle = _open(api, model, wish)
        except ApiStatusError as error:
            if not wish.cuda or not any(words in error.message for words in NO_CUDA):
                raise
            self.refusal = error.message
            self._handle = _open(api, model, replace(wish, cuda=False))
        self.inputs = self._names("Input")
        self.outputs = self._names("Output")

    def run(self, inputs: Sequence[ctypes.c_void_p]) -> list[ctypes.c_void_p]:
        """The OrtValues that come out, which the caller releases as those that go in.

        Raises ``ApiStatusError``.
        """
        fetched = (ctypes.c_void_p * len(self.outputs))()
        self._api.call(
            "Run",
            self._handle,
            None,
            _texts(self.inputs[: len(inputs)]),
            (ctypes.c_void_p * len(inputs))(*inputs),
            ctypes.c_size_t(len(inputs)),
            _texts(self.outputs),
            ctypes.c_size_t(len(self.outputs)),
            fetched,
        )
        return [ctypes.c_void_p(handle) for handle in fetched]

    def close(self) -> None:
        """Release the session; what the CUDA provider holds goes with it."""
        self._api.release("ReleaseSession", self._handle)

    def _names(self, side: str) -> list[str]:
        count = self._api.number(f"SessionGet{side}Count", self._handle)
        get = f"SessionGet{side}Name"
        return [self._api.text(get, self._handle, ctypes.c_size_t(at)) for at in range(count)]


def tensor(api: Api, data: NDArray[np.generic], shape: Sequence[int], kind: int) -> ctypes.c_void_p:
    """An OrtValue over the bytes of ``data``, which must outlive it. Raises ``ApiStatusError``.

    ``kind`` is its ``ONNXTensorElementDataType``, which has the numbers of onnx's ``TensorProto.DataType``.
    """
    return api.handle(
        "CreateTensorWithDataAsOrtValue",
        api.memory,
        ctypes.c_void_p(data.ctypes.data),
        ctypes.c_size_t(data.nbytes),
        (ctypes.c_int64 * len(shape))(*shape),
        ctypes.c_size_t(len(shape)),
        ctypes.c_int(kind),
    )


def _texts(names: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


def _open(api: Api, model: Path, wish: SessionSettings) -> ctypes.c_void_p:
    options = api.handle("CreateSessionOptions")
    try:
        _prepare(api, options, wish)
        return api.handle("CreateSession", api.env, str(model).encode(), options)
    finally:
        api.release("ReleaseSessionOptions", options)


def _prepare(api: Api, options: ctypes.c_void_p, wish: SessionSettings) -> None:
    api.call("SetIntraOpNumThreads", options, ctypes.c_int(1))
    if wish.level is not None:
        api.call("SetSessionGraphOptimizationLevel", options, ctypes.c_int(wish.level))
    if wish.verbose:
        api.call("SetSessionLogSeverityLevel", options, ctypes.c_int(0))
    for key, value in wish.config.items():
        api.call("AddSessionConfigEntry", options, key.encode(), value.encode())
    if wish.cuda:
        _append_cuda(api, options)


def _append_cuda(api: Api, options: ctypes.c_void_p) -> None:
    cuda = api.handle("CreateCUDAProviderOptions")
    try:
        api.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, cuda)
    finally:
        api.release("ReleaseCUDAProviderOptions", cuda)
