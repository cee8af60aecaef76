"""Binding of the functions of ONNX Runtime's C API that make and run sessions, by ctypes.

``OrtApi`` is a table of function pointers that only grows at its end, so a function's index in it is part of
the ABI. The indices are those in ``onnxruntime_c_api.h``; ``onnxruntime_c_api.cc`` asserts several of them
(``ReleaseCustomOpDomain`` 101, ``ReleaseModelMetadata`` 118, ``SynchronizeBoundOutputs`` 203), and that
version 12 ends with 218.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cached_property
from typing import ClassVar, List, Mapping, Sequence, Union

from builder.formats.session_log import CUDA_PROVIDER

API_VERSION = 12
"""The oldest version of the API that has every function of ``OrtApi.functions`` up to 218. The table that a
host gives for it is that of its own version."""

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

_ARENA, _DEFAULT_MEMORY = 1, 0
"""Values of ``OrtAllocatorType`` and ``OrtMemType``."""

NO_GPU = "lists no GPU"
"""The end of the message where a plug-in has no device."""

_CALL = ctypes.CFUNCTYPE(ctypes.c_void_p)
"""Type of the table's functions that return a status or null; the arguments have C types of their own."""

_CODE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

_TEXT = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)

_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class OrtStatusError(Exception):
    """A call returned a status, with its code's name as ``kind`` and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


def ort_path(path: str) -> object:
    """Return a path as ``ORTCHAR_T*``."""
    return ctypes.c_wchar_p(path) if os.name == "nt" else ctypes.c_char_p(os.fsencode(path))


class OrtApi:
    """A host library in this process. It searches for provider libraries in its own folder."""

    functions: ClassVar[Mapping[str, int]] = {
        "GetErrorCode": 1,
        "GetErrorMessage": 2,
        "CreateEnv": 3,
        "CreateEnvWithCustomLogger": 4,
        "CreateSession": 7,
        "CreateSessionFromArray": 8,
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
        "GetTensorMutableData": 51,
        "GetTensorShapeElementCount": 64,
        "GetTensorTypeAndShape": 65,
        "CreateCpuMemoryInfo": 69,
        "AllocatorFree": 76,
        "GetAllocatorWithDefaultOptions": 78,
        "ReleaseEnv": 92,
        "ReleaseStatus": 93,
        "ReleaseSession": 95,
        "ReleaseValue": 96,
        "ReleaseTensorTypeAndShapeInfo": 99,
        "ReleaseSessionOptions": 100,
        "AddSessionConfigEntry": 130,
        "SessionOptionsAppendExecutionProvider_CUDA_V2": 204,
        "CreateCUDAProviderOptions": 205,
        "ReleaseCUDAProviderOptions": 208,
        "SessionOptionsAppendExecutionProvider": 216,
        "RegisterExecutionProviderLibrary": 301,
        "GetEpDevices": 303,
        "SessionOptionsAppendExecutionProvider_V2": 304,
        "EpDevice_EpName": 312,
    }
    """Each function's index in the table."""

    def __init__(self, host: str) -> None:
        """Load ``host``.

        Raises ``OSError`` where it does not load or lacks this version of the API, ``AttributeError`` where
        it is not ONNX Runtime.
        """
        if sys.platform == "win32":  # cuDNN and NVRTC open libraries of this folder by name
            os.add_dll_directory(os.path.dirname(host))  # noqa: PTH120 one import less
        base = ctypes.CDLL(host).OrtGetApiBase
        base.restype = ctypes.POINTER(ctypes.c_void_p)
        get_api, get_version = base()[:2]  # the two members of OrtApiBase
        self.version = (ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)() or b"").decode(errors="replace")
        table = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)(API_VERSION)
        if not table:
            raise OSError(f"{host}: version {self.version} does not serve API {API_VERSION}")
        self._table = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status. Raises ``OrtStatusError`` for a status."""
        status = ctypes.c_void_p(_CALL(self._address(name))(*arguments))
        if status.value is not None:
            code = _CODE(self._address("GetErrorCode"))(status)
            message = _TEXT(self._address("GetErrorMessage"))(status) or b"unknown"
            self.release("ReleaseStatus", status)
            kind = ERROR_KINDS[code] if code < len(ERROR_KINDS) else f"error {code}"
            raise OrtStatusError(kind, message.decode(errors="replace"))

    def make(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Return the pointer that a function sets through its last argument. Raises ``OrtStatusError``."""
        made = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def release(self, name: str, handle: ctypes.c_void_p) -> None:
        """Call one of the ``Release`` functions, which return nothing."""
        _RELEASE(self._address(name))(handle)

    def append_cuda(self, options: ctypes.c_void_p) -> None:
        """Add the CUDA provider to session options, which loads its libraries. Raises ``OrtStatusError``."""
        cuda = self.make("CreateCUDAProviderOptions")
        try:
            self.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, cuda)
        finally:
            self.release("ReleaseCUDAProviderOptions", cuda)

    def register(self, env: ctypes.c_void_p, plugin: str) -> None:
        """Register a plug-in under its usual name; its libraries are loaded. Raises ``OrtStatusError``."""
        name = ctypes.c_char_p(CUDA_PROVIDER.encode())
        self.call("RegisterExecutionProviderLibrary", env, name, ort_path(plugin))

    def append_plugin(self, env: ctypes.c_void_p, options: ctypes.c_void_p) -> None:
        """Add the first GPU of the plug-in that is registered. Raises ``OrtStatusError``, also for no GPU."""
        count, listed = ctypes.c_size_t(), ctypes.POINTER(ctypes.c_void_p)()
        self.call("GetEpDevices", env, ctypes.byref(listed), ctypes.byref(count))
        name_of = _TEXT(self._address("EpDevice_EpName"))
        gpus = [one for one in listed[: count.value] if name_of(one) == CUDA_PROVIDER.encode()]
        if not gpus:
            raise OrtStatusError("EP_FAIL", f"the plug-in {NO_GPU}")
        first, one, none = (ctypes.c_void_p * 1)(gpus[0]), ctypes.c_size_t(1), ctypes.c_size_t(0)
        self.call("SessionOptionsAppendExecutionProvider_V2", options, env, first, one, None, None, none)

    @cached_property
    def _memory(self) -> ctypes.c_void_p:
        """The ``OrtMemoryInfo`` of CPU memory."""
        return self.make("CreateCpuMemoryInfo", ctypes.c_int(_ARENA), ctypes.c_int(_DEFAULT_MEMORY))

    def tensor(
        self, kind: int, dims: Sequence[int], data: Union[bytes, ctypes.c_void_p], size: int
    ) -> ctypes.c_void_p:
        """Return an OrtValue over ``size`` bytes at ``data``, which must outlive it.

        ``kind``: the ``ONNXTensorElementDataType``, which has the numbers of onnx's ``TensorProto.DataType``.
        Raises ``OrtStatusError``.
        """
        shape, rank = (ctypes.c_int64 * len(dims))(*dims), ctypes.c_size_t(len(dims))
        held, element = ctypes.c_size_t(size), ctypes.c_int(kind)
        return self.make("CreateTensorWithDataAsOrtValue", self._memory, data, held, shape, rank, element)

    def run(
        self, session: ctypes.c_void_p, inputs: Mapping[str, ctypes.c_void_p], outputs: Sequence[str]
    ) -> List[ctypes.c_void_p]:
        """Run a session once and return its outputs, which the caller releases.

        Raises ``OrtStatusError``.
        """
        given, wanted = ((ctypes.c_char_p * len(few))(*map(str.encode, few)) for few in ([*inputs], outputs))
        values, made = (ctypes.c_void_p * len(inputs))(*inputs.values()), (ctypes.c_void_p * len(outputs))()
        counts = ctypes.c_size_t(len(inputs)), ctypes.c_size_t(len(outputs))
        self.call("Run", session, ctypes.c_void_p(), given, values, counts[0], wanted, counts[1], made)
        return [ctypes.c_void_p(one) for one in made]

    def _address(self, name: str) -> int:
        address = self._table[self.functions[name]]
        if address is None:
            raise AttributeError(f"version {self.version} has no {name}")
        return int(address)
