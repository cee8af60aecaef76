"""This module rewrites ``build.ninja``: costliest units first, each only for the architectures it needs.

Ninja starts ready units in the order of ``build.ninja`` (up to version 1.11; later versions do so among units
that equally many others wait for), and CMake orders them by name. A unit that takes ten minutes could then be
the last one and keep a single core busy. Only the order of the compile statements changes; the link line, and
so the library's bytes, stay as they are.

CMake has one list of architectures for a whole target. A file names the units that need fewer. Each line has
the beginning of sources' paths, a tab, and the codes that these units are compiled for (``sm_89
sm_90:compute_80``). After a further tab it has their cost, as a number of architectures that each have PTX of
their own. The first line that matches a unit counts, and the flags of all other codes are removed from the
unit's statement. A code with a colon is made from the PTX after the colon: nvcc makes each PTX once, and SASS
from it for each code that names it. ``builder.config.build_plan.compile_plan`` decides which codes a unit
needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

UNIT = re.compile(r"^build (?P<output>\S+): (?:C|CXX|CUDA)_COMPILER__.*\n(?:[ \t].*\n)*", re.MULTILINE)
"""A compile statement of a ``build.ninja``, with the lines that belong to it."""

_FIRST = re.compile(r"^build ", re.MULTILINE)


def costliest_first(ninja: str, cost: Callable[[str], float]) -> str:
    """Return the text ``ninja`` with its compile statements first, by falling cost of their outputs."""
    units = list(UNIT.finditer(ninja))
    if not units:
        return ninja
    moved = sorted(units, key=lambda unit: -cost(unit["output"]))
    rest = UNIT.sub("", ninja)
    first = _FIRST.search(rest)
    at = first.start() if first else len(rest)
    return rest[:at] + "".join(unit[0] for unit in moved) + rest[at:]


Codes = Mapping[str, str]
"""A unit's codes, each with the PTX that it is made from; an empty text stands for the PTX that CMake
names."""

_FLAG = re.compile(r' "?--generate-code=arch=(?P<ptx>\w+),code=\[(?P<code>\w+)\]"?')
"""The flag that CMake writes for one entry of CMAKE_CUDA_ARCHITECTURES."""

_SOURCES = "/onnxruntime/onnxruntime/"
"""The folder of ORT's sources, in the path of every object made from them."""


class UnitCodes(NamedTuple):
    """Units that are compiled for the same codes."""

    codes: Codes
    architectures: float = 0.0
    """The units' cost, as a number of architectures that each have PTX of their own; 0 if the table has
    none."""


def read(file: Path) -> dict[str, UnitCodes]:
    """Return the parts of a provider's units, by the beginning of their sources' paths."""
    rows = (line.split("\t") for line in file.read_text(encoding="ascii").splitlines() if line)
    return {
        path: UnitCodes(dict(map(_code, words.split())), *map(float, cost)) for path, words, *cost in rows
    }


def _code(word: str) -> tuple[str, str]:
    code, _, ptx = word.partition(":")
    return code, ptx


def part_of(output: str, parts: Mapping[str, UnitCodes]) -> UnitCodes | None:
    """Return the part of the object ``output``; ``None`` if it is compiled for all codes that CMake names."""
    _, within, source = output.rpartition(_SOURCES)
    return next((part for path, part in parts.items() if within and source.startswith(path)), None)


def narrowed(ninja: str, parts: Mapping[str, UnitCodes]) -> str:
    """Return the text ``ninja`` with the flags in each compile statement reduced to the unit's codes."""

    def change(unit: re.Match[str]) -> str:
        part = part_of(unit["output"], parts)
        return unit[0] if part is None else _FLAG.sub(lambda flag: _flag(flag, part.codes), unit[0])

    return UNIT.sub(change, ninja)


def _flag(flag: re.Match[str], codes: Codes) -> str:
    ptx = codes.get(flag["code"])
    if ptx is None:
        return ""
    return flag[0].replace(f"arch={flag['ptx']},", f"arch={ptx or flag['ptx']},")
