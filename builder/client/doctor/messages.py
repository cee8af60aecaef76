"""The causes of the messages of CUDA, its libraries, loaders, ONNX Runtime and container engines.

``messages.json`` has a row for each message, with the library that says it and its source. The first row that
fits names the finding; a text that fits none has no known cause.
"""

from __future__ import annotations

import json
import pkgutil
import re
from functools import lru_cache
from typing import Dict, List, Optional, Sequence, Tuple, TypedDict

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device

_NUMBER = re.compile(
    r"(?i)\bCUDA (?:failure|error(?: code)?)[ :]+(\d+)\b"
    r"|\bCUDA (?:initiali[sz]ation failure with error|driver library\D{1,60}?)[ :]+(\d+)\b"
    r"|\b(?-i:cuda(?!Error)[A-Z]|cu(?:Init|Device|Ctx|Mem|Module|Launch)|NumCuda)\w*"
    r".{0,160}?\b(?:error(?: code)?|returned|failed:)[ :#]*(\d+)\b"
    r"|\berror(?: code)?[ :]+(999)\b"
)
"""CUDA's number in messages of ONNX Runtime, of TensorRT, and of callers of CUDA's functions
(``cudaGetDeviceCount() … Error 804``); 999 is no other library's."""

_NAME = re.compile(r"\b(cudaError[A-Z]\w+|CUDA_ERROR_[A-Z]\w+)")


_FAILED = re.compile(
    r"\[ONNXRuntimeError\]|Traceback \(most|\w*(?:Error|Exception)\b ?:|\[F:|terminate called"
)
"""What a text has that tells of a failure: a harmless line beside it is not its cause."""


class CudaError(TypedDict, total=False):
    """An error of CUDA's runtime or driver: its number, and the code of the finding that explains it."""

    number: int
    code: str
    names: List[str]
    text: str
    """The runtime's words for it, absent where others have them too."""


class Table(TypedDict):
    """The contents of ``messages.json``."""

    cuda: List[CudaError]
    messages: List[Dict[str, str]]
    libraries: Dict[str, str]
    """Advice on a missing library, by its CUDA or cuDNN or by what stands against that."""


@lru_cache(1)
def table() -> Table:
    """Return ``messages.json``."""
    rows: Table = json.loads(pkgutil.get_data(__name__, "messages.json") or b"")
    return rows


def code_of_number(number: int) -> Optional[str]:
    """Return the code of the finding for CUDA's error ``number``; ``None`` where no row has it."""
    return next((row["code"] for row in table()["cuda"] if row["number"] == number), None)


def number_of(text: str) -> Optional[int]:
    """Return CUDA's error number in a message that has it as a number, a name, or in CUDA's words."""
    numbered, named = _NUMBER.search(text), set(_NAME.findall(text))
    if numbered:
        return int(next(filter(None, numbered.groups())))
    lowered, rows = text.lower(), table()["cuda"]
    by_name = [row["number"] for row in rows if named & set(row["names"])]
    by_text = [row["number"] for row in rows if "text" in row and row["text"].lower() in lowered]
    return next(iter((*by_name, *by_text)), None)


def explain(text: str, devices: Sequence[Device] = ()) -> Optional[Tuple[str, Dict[str, str]]]:
    """Return the code of a message's finding and the values of its texts; ``None`` where no row fits.

    ``devices`` are the GPUs of this machine: a row with ``below`` counts only where one of them is below this
    compute capability.
    """
    known = [device.capability for device in devices if device.capability]
    for row in table()["messages"]:
        match = re.search(row["pattern"], text, re.IGNORECASE)
        limit = row.get("below")
        here = limit is None or any(capability < Capability.parse(limit) for capability in known)
        if match and here and not ("harmless" in row and _FAILED.search(text)):
            values = {key: value for key, value in row.items() if key not in ("code", "pattern")}
            return row["code"], {**values, **match.groupdict("")}
    return None
