"""This module shortens the mangled C++ names of kernels for readers.

Source: the Itanium C++ ABI, "External Names (a.k.a. Mangling)". The part before the first template argument
or parameter is enough to recognise a kernel; ``c++filt`` decodes whole names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NAMED = 3
"""Most different kernels that a message names; further ones are counted."""

_BEGIN = re.compile(r"_Z(N[rVK]*)?")

_PART = re.compile(r"L?(\d{1,4})")

_ANONYMOUS = "_GLOBAL__N_"


def short_name(mangled: str) -> str:
    """Return the readable beginning of a mangled name; a name that is not mangled is returned as it is.

    ``cutlass::Kernel`` of ``_ZN7cutlass6KernelINS_4gemm…``.
    """
    begin = _BEGIN.match(mangled)
    if begin is None:
        return mangled
    parts: list[str] = []
    at = begin.end()
    while (match := _PART.match(mangled, at)) and (begin[1] or not parts):
        at = match.end() + int(match[1])
        part = mangled[match.end() : at]
        parts.append("(anonymous)" if part.startswith(_ANONYMOUS) else part)
    return "::".join(parts) or mangled


def named(kernels: Iterable[str]) -> str:
    """Return a list of short names with their numbers: ``cutlass::Kernel (572), foo and 3 more``."""
    counts = Counter(map(short_name, kernels))
    shown = [name if count == 1 else f"{name} ({count:,})" for name, count in counts.most_common(_NAMED)]
    rest = sum(counts.values()) - sum(count for _name, count in counts.most_common(_NAMED))
    return f"{', '.join(shown)} and {rest:,} more" if rest else ", ".join(shown)
