"""The architectures in compile statements, where CMake's one list for a whole target says too much.

Units that are compiled for part of the set lose the flags of all other code: a line of the file that names
them is the beginning of the sources' paths, a tab, and the codes that stay (``sm_89 sm_90``, ``compute_90``).
Architectures that share PTX name the same ``compute_50``: nvcc then makes it once, and SASS of it for each.
Which ones, and why, is decided outside (``builder.core.launches``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from builder.inside.order import UNIT

_CODE = re.compile(r' "?--generate-code=arch=(?P<ptx>\w+),code=\[(?P<code>\w+)\]"?')
"""What CMake writes for one entry of CMAKE_CUDA_ARCHITECTURES."""
_SOURCES = "/onnxruntime/onnxruntime/"
"""The folder of ORT's sources, in the path of every object made from them."""


def read(file: Path) -> dict[str, frozenset[str]]:
    """The beginning of sources' paths → the codes that stay."""
    rows = (line.split("\t") for line in file.read_text(encoding="ascii").splitlines() if line)
    return {path: frozenset(codes.split()) for path, codes in rows}


def kept(output: str, parts: Mapping[str, frozenset[str]]) -> frozenset[str] | None:
    """The codes that an object is compiled for; ``None``: all there are."""
    source = output.rpartition(_SOURCES)[2]
    return next((codes for path, codes in parts.items() if source.startswith(path)), None)


def narrowed(ninja: str, parts: Mapping[str, frozenset[str]], shared: Mapping[str, str]) -> str:
    """The text of a ``build.ninja`` with flags cut down, and with shared PTX: ``{"sm_52": "compute_50"}``."""

    def change(unit: re.Match[str]) -> str:
        codes = kept(unit["output"], parts)
        return _CODE.sub(lambda flag: _flag(flag, codes, shared), unit[0])

    return UNIT.sub(change, ninja)


def _flag(flag: re.Match[str], codes: frozenset[str] | None, shared: Mapping[str, str]) -> str:
    if codes is not None and flag["code"] not in codes:
        return ""
    return flag[0].replace(f"arch={flag['ptx']},", f"arch={shared.get(flag['code'], flag['ptx'])},")
