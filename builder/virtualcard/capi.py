"""Binding of the functions of ONNX Runtime's C API that open and run models, by ctypes.

``OrtApi`` is a table of function pointers that only grows at its end, so a function's index in it is part of
the ABI. The indices are from ``onnxruntime_c_api.h`` of 1.21.0; ``onnxruntime_c_api.cc`` asserts several
indices (``ReleaseCustomOpDomain`` 101, ``ReleaseModelMetadata`` 118, ``SynchronizeBoundOutputs`` 203).
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
"""The names of ``OrtErrorCode`` by their values, without the prefix ORT_."""

_FATAL = 4
"""A value of ``OrtLoggingLevel``; lower levels are not logged, because errors are returned as statuses."""


class ApiStatusError(Exception):
    """A call returned a status, with its code's name as ``kind`` and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


_CALL = ctypes.CFUNCTYPE(ctypes.c_void_p)
"""Type of the table's functions that return a status or null; the arguments have C types of their own."""

_LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_char_p] * 4)
"""``OrtLoggingFunction``: parameter, severity, category, id, place in the source, message."""

_TEXT = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


class Api:
    """One host library, loaded into this process; providers are loaded from the library's folder.

    Use it as a context manager. An environment that lives until the process ends would be destroyed after
    things that it needs.
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
    """Each function's index in the table."""

    def __init__(self, library: Path, log: Callable[[str, str], None]) -> None:
        """Load ``library``. ``log`` is called with place and message of each log line of verbose sessions.

        Raises ``OSError`` for a file that is no library, ``AttributeError`` for another library than ONNX
        Runtime.
        """
        base = ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL).OrtGetApiBase
        base.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api, get_version = base()[:2]  # the two members of OrtApiBase
        self.version: str = ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)().decode()
        table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(API_VERSION)
        self._table = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))

        def listen(*arguments: bytes | int | None) -> None:
            *_, place, message = arguments
            log(_decoded(place), _decoded(message))

        self._logger = _LOGGER(listen)  # must live as long as the environment
        self.env = self.handle(
            "CreateEnvWithCustomLogger", self._logger, None, ctypes.c_int(_FATAL), b"ortpacks"
        )

    @cached_property
    def memory(self) -> ctypes.c_void_p:
        """The ``OrtMemoryInfo`` of CPU memory, which tensors over arrays need."""
        return self.handle("CreateCpuMemoryInfo", ctypes.c_int(0), ctypes.c_int(0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release("ReleaseEnv", self.env)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status. Raises ``ApiStatusError`` for a status."""
        status = _CALL(self._address(name))(*arguments)
        if status is not None:
            raise self._error(ctypes.c_void_p(status))

    def handle(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Return the pointer that a function sets through its last argument. Raises ``ApiStatusError``."""
        made = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def number(self, name: str, *arguments: object) -> int:
        """Return the ``size_t`` that a function sets through its last argument. Raises ``ApiStatusError``."""
        made = ctypes.c_size_t()
        self.call(name, *arguments, ctypes.byref(made))
        return made.value

    def text(self, name: str, *arguments: object) -> str:
        """Return the string that a function sets through its last argument, and free ORT's copy of it.

        Raises ``ApiStatusError``.
        """
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
"""Parts of ORT's messages for a missing device and for a CUDA provider that cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """The settings of a session."""

    cuda: bool = True
    """Whether to use the CUDA provider, before the CPU provider."""
    verbose: bool = False
    """Whether to log at every level, which includes the provider of each node."""
    level: int | None = None
    """Value of ``GraphOptimizationLevel``; ``None`` for ORT's default (99, all)."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Entries of ORT's session configuration."""


class Session:
    """An open model on the CUDA and CPU providers. It has one thread, so that sums have a fixed order."""

    def __init__(self, api: Api, model: Path, wish: SessionSettings) -> None:
        """Open ``model``. Raises ``ApiStatusError`` for a model that cannot be opened.

        Without a device or a loadable CUDA provider, the model is opened on the CPU only, and ``refusal`` is
        ORT's message; else ``refusal`` is ``None``.
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
        """Run the model on OrtValues and return its outputs. The caller releases inputs and outputs.

        Raises ``ApiStatusError`` for a run that fails.
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
        """Release the session, and with it the CUDA provider's memory."""
        self._api.release("ReleaseSession", self._handle)

    def _names(self, side: str) -> list[str]:
        count = self._api.number(f"SessionGet{side}Count", self._handle)
        get = f"SessionGet{side}Name"
        return [self._api.text(get, self._handle, ctypes.c_size_t(at)) for at in range(count)]


def tensor(api: Api, data: NDArray[np.generic], shape: Sequence[int], kind: int) -> ctypes.c_void_p:
    """Return an OrtValue over the bytes of ``data``, which must outlive it. Raises ``ApiStatusError``.

    ``kind``: the ``ONNXTensorElementDataType``, which has the numbers of onnx's ``TensorProto.DataType``.
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
