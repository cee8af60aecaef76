"""``build.ninja`` rewritten: the costliest units first, and each for the architectures that it needs.

Ninja starts ready units in the order in which ``build.ninja`` states them (up to version 1.11; later ones
do so among units that equally many others wait for), and CMake states them by name. A unit that takes ten
minutes may then be the last one, and keep a single core busy. Only the order of the statements changes: the
link line, and with it the library's bytes, follows from the sources as before.

CMake knows one list of architectures for a whole target. A file says which units need fewer: each line is
the beginning of sources' paths, a tab, and the codes that these units are compiled for (``sm_89
sm_90:compute_89``). The first line that fits a unit counts, and the flags of all other codes leave its
statement. A code with PTX behind a colon is made from that PTX: nvcc makes each PTX once, and SASS of it
for each code that names it. ``builder.onnxruntime.units`` decides which codes a unit needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

UNIT = re.compile(r"^build (?P<output>\S+): (?:C|CXX|CUDA)_COMPILER__.*\n(?:[ \t].*\n)*", re.MULTILINE)
"""A compile statement of a ``build.ninja``, with the lines that belong to it."""

_FIRST = re.compile(r"^build ", re.MULTILINE)


def costliest_first(ninja: str, cost: Callable[[str], float]) -> str:
    """The text of a ``build.ninja`` with its compile statements first, by falling cost of their output."""
    units = list(UNIT.finditer(ninja))
    if not units:
        return ninja
    moved = sorted(units, key=lambda unit: -cost(unit["output"]))
    rest = UNIT.sub("", ninja)
    first = _FIRST.search(rest)
    at = first.start() if first else len(rest)
    return rest[:at] + "".join(unit[0] for unit in moved) + rest[at:]


Codes = Mapping[str, str]
"""The codes that stay → the PTX that each is made from; an empty text stands for the code's own."""

_FLAG = re.compile(r' "?--generate-code=arch=(?P<ptx>\w+),code=\[(?P<code>\w+)\]"?')
"""What CMake writes for one entry of CMAKE_CUDA_ARCHITECTURES."""

_SOURCES = "/onnxruntime/onnxruntime/"
"""The folder of ORT's sources, in the path of every object made from them."""


def read(file: Path) -> dict[str, Codes]:
    """The lines of ``file``: the beginning of sources' paths → the codes that they are compiled for."""
    rows = (line.split("\t") for line in file.read_text(encoding="ascii").splitlines() if line)
    return {path: dict(_code(word) for word in words.split()) for path, words in rows}


def _code(word: str) -> tuple[str, str]:
    code, _, ptx = word.partition(":")
    return code, ptx


def codes_of(output: str, parts: Mapping[str, Codes]) -> Codes | None:
    """The codes that the object ``output`` is compiled for; ``None`` where CMake's own stay."""
    _, within, source = output.rpartition(_SOURCES)
    return next((codes for path, codes in parts.items() if within and source.startswith(path)), None)


def narrowed(ninja: str, parts: Mapping[str, Codes]) -> str:
    """The text of a ``build.ninja`` whose compile statements name these codes and no others."""

    def change(unit: re.Match[str]) -> str:
        codes = codes_of(unit["output"], parts)
        return unit[0] if codes is None else _FLAG.sub(lambda flag: _flag(flag, codes), unit[0])

    return UNIT.sub(change, ninja)


def _flag(flag: re.Match[str], codes: Codes) -> str:
    ptx = codes.get(flag["code"])
    if ptx is None:
        return ""
    return flag[0].replace(f"arch={flag['ptx']},", f"arch={ptx or flag['ptx']},")
