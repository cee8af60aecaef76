"""Conversion between numpy arrays and OrtValues: tensors, strings, sequences, empty optionals."""

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from builder.prove.virtualcard.worker import LoggedApi, Session

Array: TypeAlias = "NDArray[np.generic]"
Value: TypeAlias = "Array | list[Value] | None"
"""A tensor, a sequence, or (``None``) an empty optional."""

TENSOR, SEQUENCE = 1, 2
"""Two numbers of the C API's enumeration ``ONNXType``."""
DTYPES = {
    number: helper.tensor_dtype_to_np_dtype(number) for number in TensorProto.DataType.values() if number
}
"""numpy's type by its number in ``TensorProto.DataType``, which ``ONNXTensorElementDataType`` shares."""
_LARGEST_INT4 = 7
PACKED = frozenset({TensorProto.UINT4, TensorProto.INT4})
"""Types with two elements a byte in an OrtValue, the first in the low half, and one a byte in numpy."""


class InexpressibleError(Exception):
    """A value that an API cannot take or return: a limit of the harness, not an answer of the library."""


class ValueApi(LoggedApi):
    """The C API, with the functions that create and read values of every kind."""

    functions: ClassVar[Mapping[str, int]] = {
        **LoggedApi.functions,
        "CreateTensorAsOrtValue": 48,
        "GetTensorMutableData": 51,
        "FillStringTensor": 52,
        "GetStringTensorDataLength": 53,
        "GetStringTensorContent": 54,
        "GetTensorElementType": 60,
        "GetDimensionsCount": 61,
        "GetDimensions": 62,
        "GetTensorShapeElementCount": 64,
        "GetTensorTypeAndShape": 65,
        "GetValueType": 67,
        "GetValue": 80,
        "GetValueCount": 81,
        "CreateValue": 82,
        "ReleaseTensorTypeAndShapeInfo": 99,
        "HasValue": 192,
    }

    def integer(self, name: str, *arguments: object) -> int:
        """Call a function and return the C ``int`` of its last argument. Raises ``OrtStatusError``."""
        made = ctypes.c_int()
        self.call(name, *arguments, ctypes.byref(made))
        return made.value


class ValueSession:
    """A session of the C API whose inputs and outputs are numpy's values."""

    def __init__(self, api: ValueApi, session: Session) -> None:
        self._api = api
        self._session = session
        self.inputs, self.outputs = session.inputs, session.outputs

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        """Run the model and return its outputs. Raises ``OrtStatusError``, ``InexpressibleError``."""
        values = Values(self._api)
        try:
            made = [values.make(value) for value in inputs]
            return [values.read(handle) for handle in self._session.run(made)]
        finally:
            values.close()

    def close(self) -> None:
        """Release the session."""
        self._session.close()


class Values:
    """OrtValues of one library, created or read; ``close`` releases all of them."""

    def __init__(self, api: ValueApi) -> None:
        self._api = api
        self._made: list[ctypes.c_void_p] = []
        self._buffers: list[Array] = []
        """Arrays whose memory the created tensors use."""

    def make(self, value: Value) -> ctypes.c_void_p:
        """Return an OrtValue of numpy's value.

        Raises ``InexpressibleError`` for an empty optional or sequence.
        """
        if value is None:
            raise InexpressibleError("the C API makes no optional that holds nothing")
        if isinstance(value, list):
            return self._make_sequence(value)
        return self._make_strings(value) if value.dtype == object else self._make_tensor(value)

    def read(self, handle: ctypes.c_void_p) -> Value:
        """Return the value of an OrtValue, which ``close`` releases.

        Raises ``InexpressibleError`` for a value that is neither a tensor nor a sequence.
        """
        self._made.append(handle)
        if not self._api.integer("HasValue", handle):
            return None
        kind = self._api.integer("GetValueType", handle)
        if kind == TENSOR:
            return self._read_tensor(handle)
        if kind == SEQUENCE:
            return self._read_sequence(handle)
        raise InexpressibleError(f"a value of ONNXType {kind}")

    def close(self) -> None:
        """Release every value that was made or read."""
        while self._made:
            self._api.release("ReleaseValue", self._made.pop())
        self._buffers.clear()

    def _keep(self, handle: ctypes.c_void_p) -> ctypes.c_void_p:
        self._made.append(handle)
        return handle

    def _make_tensor(self, array: Array) -> ctypes.c_void_p:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        data = _pack(array) if kind in PACKED else np.ascontiguousarray(array)
        self._buffers.append(data)
        place = ctypes.c_void_p(data.ctypes.data)
        return self._keep(self._api.tensor(kind, array.shape, place, data.nbytes))

    def _make_strings(self, array: Array) -> ctypes.c_void_p:
        allocator = self._api.make("GetAllocatorWithDefaultOptions")
        kind = ctypes.c_int(TensorProto.STRING)
        made = self._keep(self._api.make("CreateTensorAsOrtValue", allocator, *_shape(array), kind))
        texts = [_encoded(text) for text in array.ravel().tolist()]
        self._api.call(
            "FillStringTensor", made, (ctypes.c_char_p * len(texts))(*texts), ctypes.c_size_t(len(texts))
        )
        return made

    def _make_sequence(self, items: list[Value]) -> ctypes.c_void_p:
        if not items:
            raise InexpressibleError("the C API makes no empty sequence")
        handles = [self.make(item) for item in items]
        array = (ctypes.c_void_p * len(handles))(*handles)
        size, kind = ctypes.c_size_t(len(handles)), ctypes.c_int(SEQUENCE)
        return self._keep(self._api.make("CreateValue", array, size, kind))

    def _read_sequence(self, handle: ctypes.c_void_p) -> list[Value]:
        allocator = self._api.make("GetAllocatorWithDefaultOptions")
        count = self._api.number("GetValueCount", handle)
        return [
            self.read(self._api.make("GetValue", handle, ctypes.c_int(i), allocator)) for i in range(count)
        ]

    def _read_tensor(self, handle: ctypes.c_void_p) -> Array:
        info = self._api.make("GetTensorTypeAndShape", handle)
        kind = self._api.integer("GetTensorElementType", info)
        shape = (ctypes.c_int64 * self._api.number("GetDimensionsCount", info))()
        self._api.call("GetDimensions", info, shape, ctypes.c_size_t(len(shape)))
        count = self._api.number("GetTensorShapeElementCount", info)
        self._api.release("ReleaseTensorTypeAndShapeInfo", info)
        flat = (
            self._read_strings(handle, count)
            if kind == TensorProto.STRING
            else self._read_numbers(handle, kind, count)
        )
        return flat.reshape(tuple(shape))

    def _read_numbers(self, handle: ctypes.c_void_p, kind: int, count: int) -> Array:
        size = (count + 1) // 2 if kind in PACKED else count * DTYPES[kind].itemsize
        address = self._api.make("GetTensorMutableData", handle).value if size else None
        data = ctypes.string_at(address, size) if address else b""
        return _unpacked(data, kind, count) if kind in PACKED else np.frombuffer(data, DTYPES[kind])

    def _read_strings(self, handle: ctypes.c_void_p, count: int) -> Array:
        size = self._api.number("GetStringTensorDataLength", handle)
        data, starts = ctypes.create_string_buffer(size or 1), (ctypes.c_size_t * count)()
        self._api.call(
            "GetStringTensorContent", handle, data, ctypes.c_size_t(size), starts, ctypes.c_size_t(count)
        )
        edges = pairwise([*starts, size])
        return np.array([data.raw[start:end].decode() for start, end in edges], dtype=object)


def _shape(array: Array) -> tuple[ctypes.Array[ctypes.c_int64], ctypes.c_size_t]:
    return (ctypes.c_int64 * array.ndim)(*array.shape), ctypes.c_size_t(array.ndim)


def _encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _pack(array: Array) -> NDArray[np.uint8]:
    halves = array.ravel().astype(np.int8).view(np.uint8) & 0xF
    even = np.resize(halves, (halves.size + 1) // 2 * 2)
    even[halves.size :] = 0
    packed: NDArray[np.uint8] = even[0::2] | even[1::2] << 4
    return packed


def _unpacked(data: bytes, kind: int, count: int) -> Array:
    octets = np.frombuffer(data, np.uint8)
    halves = np.stack([octets & 0xF, octets >> 4], axis=1).ravel()[:count]
    if kind == TensorProto.INT4:
        halves = np.where(halves > _LARGEST_INT4, halves.astype(np.int8) - 16, halves.astype(np.int8))
    return halves.astype(DTYPES[kind])
