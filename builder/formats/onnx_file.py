"""A reader of ONNX files without the ``onnx`` package: it finds opsets, operators and the files of weights.

It reads protobuf's wire format for the few fields that it needs, numbered as in ``onnx.proto``.
"""

from __future__ import annotations

import mmap
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from builder.errors import IntegrityError, ValidationError
from builder.formats.text import printable, shortened

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_IR_VERSION, _GRAPH, _OPSETS, _FUNCTIONS = 1, 7, 8, 25

_MODEL = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES}
"""Fields of ``ModelProto`` in every version of ONNX: number → wire type."""

_NEWER = frozenset({14, 20, 25, 26})
"""Numbers of the later fields of ``ModelProto``, all of wire type ``_BYTES``."""

_NODES, _INITIALIZERS = 1, 5

_FUNCTION_NAME, _FUNCTION_NODES, _FUNCTION_OPSETS, _FUNCTION_DOMAIN = 1, 7, 9, 10

_OPERATOR, _ATTRIBUTES, _DOMAIN = 4, 5, 7

_TENSOR, _SUBGRAPH = 5, 6

_ONNX = "ai.onnx"

_NAME, _EXTERNAL = 8, 13

_LFS = b"version https://git-lfs"

_ORT_FORMAT, _IDENTIFIER_AT = b"ORTM", slice(4, 8)
"""The file identifier of ONNX Runtime's own format, ``.ort``, and its place in a FlatBuffer
(``onnxruntime/core/flatbuffers/schema/ort.fbs``)."""

_NAME_THE_FILE = "Name the .onnx file of the model."

_FETCH_AGAIN = "Fetch it again."

Bytes = Union[mmap.mmap, bytes]

_Span = Tuple[int, int]
"""Offsets where a message begins and ends."""

_Name = Tuple[str, str]
"""Domain and name of an operator."""

_Field = Tuple[int, int, int, int]
"""Number, wire type, and two numbers: the value and 0 for a varint, else the value's start and end."""


class _CutShortError(Exception):
    """A field extends past the end of the bytes."""


class _OtherBytesError(Exception):
    """A field that ONNX does not have, or bytes that are not protobuf."""


@dataclass(frozen=True)
class External:
    """A tensor whose values are in another file."""

    tensor: str
    location: str
    """Path relative to the model's folder."""
    end: Optional[int]
    """The least size of the file in bytes; ``None`` where the model does not give offset and length."""


@dataclass(frozen=True)
class OnnxFile:
    """The opsets, the operators and the external tensors of a model."""

    opsets: Dict[str, int]
    """Domain → opset that the model, else its first function with it, asks for; ONNX's own is ``ai.onnx``."""
    operators: Dict[str, Tuple[str, ...]]
    """Domain → sorted names of the operators of all nodes, without the model's own functions."""
    external: Tuple[External, ...]


def read_onnx(path: Path) -> OnnxFile:
    """Return the model in ``path``, after checking that the files with its weights exist.

    A model in ONNX Runtime's own format (``.ort``) is not looked into: it has no opsets and operators here.

    Raises ``ValidationError`` (no such file, not ONNX, missing weights) or ``IntegrityError`` (the model or
    its weights are cut short).
    """
    onnx_file = _read(path)
    for item in onnx_file.external:
        _require_there(item, path)
    return onnx_file


def _read(path: Path) -> OnnxFile:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValidationError(f"{_name(path)} is no regular file", advice=_NAME_THE_FILE)
        if not status.st_size:
            raise _cut_short(path, "it is empty")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            is_ort = data[_IDENTIFIER_AT] == _ORT_FORMAT
            return OnnxFile({}, {}, ()) if is_ort else _model(path, data)
    except OSError as error:
        raise ValidationError(
            f"{_name(path)} cannot be read", cause=error.strerror or "", advice="Name a model's file."
        ) from error


def _model(path: Path, data: Bytes) -> OnnxFile:
    begun = False
    opsets: Dict[str, int] = {}
    graphs: List[_Span] = []
    functions: List[_Span] = []
    try:
        for number, _, start, end in _model_fields(data):
            if number == _IR_VERSION:
                begun = True
            elif number == _OPSETS:
                opsets.update([_opset(data, (start, end))])
            elif number == _GRAPH:
                graphs.append((start, end))
            elif number == _FUNCTIONS:
                functions.append((start, end))
        used, external = _contents(data, graphs, functions)
        of_functions = (_parts(data, span, _FUNCTION_OPSETS) for span in reversed(functions))
        imported = dict(_opset(data, span) for spans in of_functions for span in spans)
        own = {_named(data, span, _FUNCTION_DOMAIN, _FUNCTION_NAME) for span in functions}
    except _CutShortError:
        if not begun:
            raise _not_onnx(path, data) from None
        raise _cut_short(path, "the last part ends behind its end") from None
    except _OtherBytesError:
        raise _not_onnx(path, data) from None
    if not graphs:
        raise _cut_short(path, "it has no graph") if begun else _not_onnx(path, data)
    return OnnxFile({**imported, **opsets}, _by_domain(used - own), external)


def _by_domain(operators: Set[_Name]) -> Dict[str, Tuple[str, ...]]:
    domains = sorted({domain for domain, _ in operators})
    return {each: tuple(sorted(name for domain, name in operators if domain == each)) for each in domains}


def _model_fields(data: Bytes) -> Iterator[_Field]:
    for field in _fields(data, 0, len(data)):
        number, wire = field[:2]
        if (_BYTES if number in _NEWER else _MODEL.get(number)) != wire:
            raise _OtherBytesError
        yield field


def _opset(data: Bytes, span: _Span) -> Tuple[str, int]:
    versions = [value for number, wire, value, _ in _fields(data, *span) if (number, wire) == (2, _VARINT)]
    return _text(data, span, 1) or _ONNX, versions[-1] if versions else 0


def _contents(
    data: Bytes, graphs: List[_Span], functions: List[_Span]
) -> Tuple[Set[_Name], Tuple[External, ...]]:
    """Return the operators of all nodes, and the external tensors in initializers and attributes.

    The graphs in nodes' attributes count too.
    """
    operators: Set[_Name] = set()
    tensors: List[_Span] = []
    left = [(span, _NODES) for span in graphs] + [(span, _FUNCTION_NODES) for span in functions]
    while left:
        span, nodes = left.pop()
        for node in _parts(data, span, nodes):
            operators.add(_named(data, node, _DOMAIN, _OPERATOR))
            for attribute in _parts(data, node, _ATTRIBUTES):
                tensors += _parts(data, attribute, _TENSOR)
                left += [(graph, _NODES) for graph in _parts(data, attribute, _SUBGRAPH)]
        if nodes == _NODES:
            tensors += _parts(data, span, _INITIALIZERS)
    return operators, tuple(item for span in tensors for item in _external(data, span))


def _named(data: Bytes, span: _Span, domain: int, name: int) -> _Name:
    return _text(data, span, domain) or _ONNX, _text(data, span, name)


def _external(data: Bytes, span: _Span) -> Iterator[External]:
    """Yield a ``TensorProto`` whose values are in another file, by its ``StringStringEntryProto`` entries."""
    entries = {_text(data, part, 1): _text(data, part, 2) for part in _parts(data, span, _EXTERNAL)}
    if "location" in entries:
        offset, size = _number(entries.get("offset") or "0"), _number(entries.get("length", ""))
        ends = None if offset is None or size is None else offset + size
        yield External(_text(data, span, _NAME), entries["location"], ends)


def _text(data: Bytes, span: _Span, number: int) -> str:
    """Return the text of a message's last field with this number; empty without one."""
    *_, (first, last) = (0, 0), *_parts(data, span, number)
    return data[first:last].decode(errors="replace")


def _parts(data: Bytes, span: _Span, wanted: int) -> Iterator[_Span]:
    for number, wire, first, last in _fields(data, *span):
        if (number, wire) == (wanted, _BYTES):
            yield first, last


def _number(text: str) -> Optional[int]:
    return int(text) if re.fullmatch("[0-9]{1,19}", text) else None


def _fields(data: Bytes, at: int, end: int) -> Iterator[_Field]:
    """Yield the fields between two offsets. Raises ``_CutShortError`` or ``_OtherBytesError``."""
    while at < end:
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at, end)
            yield number, wire, value, 0
            continue
        if wire == _BYTES:
            size, at = _varint(data, at, end)
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
        else:
            raise _OtherBytesError
        if at + size > end:
            raise _CutShortError
        yield number, wire, at, at + size
        at += size


def _varint(data: Bytes, at: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end:
            raise _CutShortError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 the last byte has no high bit
            return value, at
        shift += 7
        if shift > 63:  # noqa: PLR2004 bits of the widest number
            raise _OtherBytesError


def _require_there(item: External, path: Path) -> None:
    file = path.parent / item.location
    try:
        status = file.stat()
    except (OSError, ValueError):  # for example a name that is too long, or has a zero byte
        status = None
    tensor = f"'{shortened(item.tensor)}'"
    if status is None or not stat.S_ISREG(status.st_mode):
        raise ValidationError(
            _name(path),
            cause=f"the values of {tensor} lie in '{shortened(item.location)}', which is not beside it",
            advice=f"Put that file into {_name(path.parent)}: the two belong together.",
        )
    if item.end is not None and status.st_size < item.end:
        raise IntegrityError(
            f"{_name(file)} is cut short",
            cause=f"{tensor} of {printable(path.name)} ends at byte {item.end:,}, the file at "
            f"{status.st_size:,}",
            advice=_FETCH_AGAIN,
        )


def _cut_short(path: Path, why: str) -> IntegrityError:
    return IntegrityError(f"{_name(path)} is an ONNX model cut short", cause=why, advice=_FETCH_AGAIN)


def _not_onnx(path: Path, data: Bytes) -> ValidationError:
    if data[: len(_LFS)] == _LFS:
        return ValidationError(
            f"{_name(path)} is a pointer of Git LFS, not the model", advice="Run `git lfs pull` there."
        )
    return ValidationError(
        f"{_name(path)} is not an ONNX model",
        cause="it does not begin with the fields of an ONNX model",
        advice=_NAME_THE_FILE,
    )


def _name(path: Path) -> str:
    return printable(str(path))
