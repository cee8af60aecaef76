"""Tensors of the Open Inference Protocol (KServe v2), in JSON and in its extension for binary data."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ortpacks_service.bodies import VALUE
from ortpacks_service.errors import RequestError, shown

_SAME = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
"""Types whose names are numpy's, in capitals the protocol's."""

DATATYPES: dict[str, tuple[str, type[np.generic]]] = {
    **{f"tensor({name})": (name.upper(), np.dtype(name).type) for name in _SAME},
    "tensor(float16)": ("FP16", np.float16),
    "tensor(float)": ("FP32", np.float32),
    "tensor(double)": ("FP64", np.float64),
    "tensor(string)": ("BYTES", np.object_),
}
"""The protocol's and numpy's types, by ONNX Runtime's type."""

_NUMPY = dict(DATATYPES.values())

_NAMES = {np.dtype(kind): name for name, kind in DATATYPES.values()}

HEADER_LENGTH = "inference-header-content-length"

_LENGTH = struct.Struct("<I")

_MOST_DIMENSIONS, _MOST_ITEMS = 32, 1 << 31
"""The most dimensions of a tensor (numpy has up to 64) and the most items, more than any body holds."""

_MOST_JSON_ITEMS = 1 << 20
"""The most items of an output in JSON."""

_JSON_ITEM = 60
"""Bytes of memory that an item of JSON takes; in binary data 8 and less."""

_KINDS = {"b": (bool,), "u": (int,), "i": (int,), "f": (int, float)}
"""Types of JSON values that are allowed, by numpy's kind of type."""

Array = NDArray[Any]


def read_request(
    body: bytes | bytearray, size: int, grow: Callable[[int], None]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the JSON in the first ``size`` bytes, and the inputs by name.

    ``grow`` is called with the bytes that texts in binary data take before these are read. Raises
    ``RequestError``.
    """
    try:
        asked = orjson.loads(memoryview(body)[:size])
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    if not isinstance(asked, dict) or not isinstance(asked.get("inputs"), list):
        raise RequestError("inputs: a list of tensors is wanted")
    feed: dict[str, Array] = {}
    at, blocks = size, memoryview(body)  # slices of it take no memory
    for number, given in enumerate(asked["inputs"]):
        name, shape, kind = _described(given, f"inputs[{number}]")
        if name in feed:
            raise RequestError(f"{name} is there twice")
        length = _binary_size(given, name)
        if length is None:
            feed[name] = _of_json(given.get("data"), shape, kind, name)
            continue
        if at + length > len(body):
            raise RequestError(f"{name}: binary_data_size is {length}, {len(body) - at} bytes are left")
        if kind == "BYTES":
            grow(VALUE * math.prod(shape))
        feed[name] = _of_bytes(blocks[at : at + length], shape, kind, name)
        at += length
    if at != len(body):
        raise RequestError(f"{len(body) - at} bytes follow the last tensor")
    return asked, feed


def answer(
    described: Mapping[str, Any],
    asked: Mapping[str, Any],
    found: Mapping[str, Array],
    grow: Callable[[int], None],
) -> tuple[bytes, dict[str, str]]:
    """Return the response's body and headers; ``described`` are model and id.

    ``grow`` is called with the bytes of memory that an output takes before it is written. Raises
    ``RequestError``.
    """
    wanted = _wanted(asked)
    every = _binary(asked, "binary_data_output", default=False)
    outputs, blocks = [], []
    for name, value in found.items():
        kind = _NAMES.get(value.dtype, "BYTES")
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(value.shape)}
        if _binary(wanted.get(name, {}), "binary_data", default=every):
            grow(value.nbytes)
            block = _to_bytes(value)
            output["parameters"] = {"binary_data_size": len(block)}
            blocks.append(block)
        elif kind == "FP16":
            raise RequestError(f"{name}: FP16 has no JSON in the protocol: ask for it with binary_data")
        elif value.size > _MOST_JSON_ITEMS:
            raise RequestError(f"{name}: {value.size} items are too many for JSON: ask for binary_data")
        elif value.dtype.kind == "f" and not np.isfinite(value).all():
            raise RequestError(f"{name}: JSON lacks its NaN or infinity: ask for it with binary_data")
        else:
            grow(_JSON_ITEM * value.size)
            output["data"] = [_text(item) for item in value.ravel().tolist()]
        outputs.append(output)
    head = orjson.dumps({**described, "outputs": outputs})
    headers = {"Content-Type": "application/octet-stream" if blocks else "application/json"}
    if blocks:
        headers["Inference-Header-Content-Length"] = str(len(head))
    return b"".join([head, *blocks]), headers


def wanted_outputs(asked: Mapping[str, Any]) -> list[str] | None:
    """Return the names of the outputs that the request names; ``None``: all."""
    return list(_wanted(asked)) or None


def _wanted(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    given = asked.get("outputs") or []
    each = given if isinstance(given, list) else [given]
    named = (isinstance(one, dict) and isinstance(one.get("name"), str) for one in each)
    if each is not given or not all(named):
        raise RequestError("outputs: a list of objects with a name is wanted")
    found = {one["name"]: one for one in given}
    if len(found) < len(given):
        raise RequestError("outputs: a name is there twice")
    return found


def json_size(body: bytes | bytearray, header_length: str | None) -> int:
    """Return the size of the body's JSON, by the header ``HEADER_LENGTH``. Raises ``RequestError``."""
    if header_length is None:
        return len(body)
    plain = header_length.isascii() and header_length.isdecimal() and len(header_length) <= 10  # noqa: PLR2004
    if not plain or int(header_length) > len(body):
        raise RequestError(f"{HEADER_LENGTH}: {header_length[:20]!r} is no length within {len(body)} bytes")
    return int(header_length)


def _described(given: object, where: str) -> tuple[str, list[int], str]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise RequestError(f"{where}: an object with name, shape and datatype is wanted")
    name, shape, kind = str(given["name"])[:200], given.get("shape"), given.get("datatype")
    sizes: list[Any] = shape if isinstance(shape, list) else [None]
    if len(sizes) > _MOST_DIMENSIONS or not all(_is_size(size) for size in sizes):
        raise RequestError(f"{name}: shape: at most {_MOST_DIMENSIONS} sizes below {_MOST_ITEMS} are wanted")
    if not isinstance(kind, str) or kind not in _NUMPY:
        raise RequestError(f"{name}: datatype: one of {', '.join(_NUMPY)} is wanted")
    return name, sizes, kind


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_ITEMS


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = given.get("parameters") or {}
    if not isinstance(found, dict):
        raise RequestError("parameters: an object is wanted")
    return found


def _binary(given: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = _parameters(given).get(key, default)
    if not isinstance(value, bool):
        raise RequestError(f"{key}: true or false is wanted")
    return value


def _binary_size(given: Mapping[str, Any], name: str) -> int | None:
    size = _parameters(given).get("binary_data_size")
    if size is None:
        return None
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise RequestError(f"{name}: binary_data_size: a whole number is wanted, found {shown(size)[:20]}")
    return size


def _of_json(data: object, shape: Sequence[int], kind: str, name: str) -> Array:
    """Return a tensor of JSON's values, nested or not; no value is converted to another kind."""
    if not isinstance(data, list):
        raise RequestError(f"{name}: data: a list is wanted, or binary_data_size among the parameters")
    target = np.dtype(_NUMPY[kind])
    try:
        given: Array = np.array(data, dtype=np.object_)
    except ValueError as error:
        raise RequestError(f"{name}: data: lists of one length are wanted: {error}") from error
    allowed = (str,) if kind == "BYTES" else _KINDS[target.kind]
    if not all(type(item) in allowed for item in given.ravel()):
        wanted = " or ".join(one.__name__ for one in allowed)
        raise RequestError(f"{name}: data is not {kind}: values of JSON's {wanted} are wanted")
    try:
        with np.errstate(over="raise"):
            made: Array = given if kind == "BYTES" else given.astype(target)
    except (OverflowError, FloatingPointError, ValueError) as error:
        raise RequestError(f"{name}: a value of data does not fit into {kind}") from error
    return _shaped(made, shape, name)


def _of_bytes(data: memoryview, shape: Sequence[int], kind: str, name: str) -> Array:
    if kind == "BYTES":
        texts = islice(_texts(data, name), math.prod(shape) + 1)  # one more is enough to refuse them
        return _shaped(np.array(list(texts), np.object_), shape, name)
    width = np.dtype(_NUMPY[kind]).itemsize
    if len(data) % width:
        raise RequestError(f"{name}: {len(data)} bytes are no whole number of {kind}")
    found = np.frombuffer(data, np.dtype(_NUMPY[kind]).newbyteorder("<"))
    return _shaped(found if found.flags.aligned else found.copy(), shape, name)


def _shaped(value: Array, shape: Sequence[int], name: str) -> Array:
    items = math.prod(shape)
    if value.size != items or items >= _MOST_ITEMS:
        raise RequestError(f"{name}: shape {list(shape)} has {items} items, data {value.size}")
    return value.reshape(shape)


def _texts(data: memoryview, name: str) -> Iterator[str]:
    """Yield the texts of binary data, where each text follows its length in four bytes."""
    at = 0
    while at < len(data):
        begin = at + _LENGTH.size
        size = _LENGTH.unpack_from(data, at)[0] if begin <= len(data) else len(data)
        at = begin + size
        if at > len(data):
            raise RequestError(f"{name}: a text is longer than the data that is left")
        try:
            yield str(data[begin:at], "utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(f"{name}: a text is not UTF-8: {error}") from error


def _to_bytes(value: Array) -> bytes:
    if value.dtype != np.object_ and value.dtype.kind not in "US":
        return np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
    made = bytearray()  # joining them would take a hundred bytes of memory for each
    for item in value.ravel():
        text = str(item).encode()
        made += _LENGTH.pack(len(text)) + text
    return bytes(made)


def _text(item: object) -> object:
    return item.decode() if isinstance(item, bytes) else item
