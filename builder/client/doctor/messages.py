"""The causes of the messages of CUDA, its libraries, loaders, ONNX Runtime and container engines.

``messages.json`` has a row for each message, with the library that says it and its source. The first row that
fits names the finding; a text that fits none has no known cause.
"""

from __future__ import annotations

import json
import pkgutil
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device

_NUMBER = re.compile(
    r"(?i)\bCUDA (?:failure|error(?: code)?)[ :]+(\d+)\b|\bcuda\w*\([^)]*\)[^.]{0,80}\berror (\d+)\b"
    r"|\bCUDA initiali[sz]ation failure with error: (\d+)"
)
"""CUDA's number in messages of ONNX Runtime, of torch (``cudaGetDeviceCount() … Error 804``) and of
TensorRT."""

_NAME = re.compile(r"\b(cudaError[A-Z]\w+|CUDA_ERROR_[A-Z]\w+)")


_FAILED = re.compile(
    r"\[ONNXRuntimeError\]|Traceback \(most|\w*(?:Error|Exception)\b ?:|\[F:|terminate called"
)
"""What a text has that tells of a failure: a harmless line beside it is not its cause."""


class CudaError(NamedTuple):
    """An error of CUDA's runtime or driver: its number, and the code of the finding that explains it."""

    number: int
    code: str
    names: Tuple[str, ...]
    text: str = ""
    """The runtime's words for it, empty where others have them too."""


@dataclass(frozen=True)
class Message:
    """A kind of message: the code of its finding, and what fills the finding's texts."""

    code: str
    pattern: re.Pattern[str]
    below: Optional[Capability] = None
    """The row counts only where a GPU here is below this compute capability."""
    values: Mapping[str, str] = field(default_factory=dict)


@lru_cache(1)
def _table() -> Tuple[Mapping[int, CudaError], Sequence[Message]]:
    table = json.loads(pkgutil.get_data(__name__, "messages.json") or b"")
    numbered = [CudaError(**{**row, "names": tuple(row["names"])}) for row in table["cuda"]]
    return {row.number: row for row in numbered}, [_message(**row) for row in table["messages"]]


def _message(code: str, pattern: str, of: str, source: str, **more: str) -> Message:
    below = more.pop("below", None)
    limit = Capability.parse(below) if below else None
    return Message(code, re.compile(pattern, re.IGNORECASE), limit, {"of": of, "source": source, **more})


def code_of_number(number: int) -> Optional[str]:
    """Return the code of the finding for CUDA's error ``number``; ``None`` where no row has it."""
    row = _table()[0].get(number)
    return row.code if row else None


def number_of(text: str) -> Optional[int]:
    """Return CUDA's error number in a message that has it as a number, a name, or in CUDA's words."""
    numbered, named = _NUMBER.search(text), set(_NAME.findall(text))
    if numbered:
        return int(next(filter(None, numbered.groups())))
    lowered, rows = text.lower(), list(_table()[0].values())
    by_name = [row.number for row in rows if named & set(row.names)]
    by_text = [row.number for row in rows if row.text and row.text.lower() in lowered]
    return next(iter((*by_name, *by_text)), None)


def explain(text: str, devices: Sequence[Device] = ()) -> Optional[Tuple[str, Dict[str, str]]]:
    """Return the code of a message's finding and the values of its texts; ``None`` where no row fits.

    ``devices`` are the GPUs of this machine, on which the cause of some messages depends.
    """
    known = [device.capability for device in devices if device.capability]
    for row in _table()[1]:
        match = row.pattern.search(text)
        here = row.below is None or any(capability < row.below for capability in known)
        if match and here and not ("harmless" in row.values and _FAILED.search(text)):
            return row.code, {**row.values, **match.groupdict("")}
    return None
