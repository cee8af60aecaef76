"""The order in which Ninja starts units: the costliest first.

Ninja (up to 1.11; later ones among units that equally much waits for) starts ready units in the order in
which ``build.ninja`` states them, and CMake states them by name. Then the unit that takes ten minutes may be
the last one and keeps a single core busy. Nothing but the order of the statements changes: the link line, and
with it the library's bytes, follows from the sources as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
