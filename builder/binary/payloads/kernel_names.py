"""A kernel's name for readers, of the name that a C++ compiler mangled.

Source: the Itanium C++ ABI, "External Names (a.k.a. Mangling)". What stands before the first template
argument or parameter is enough to know a kernel by; C++'s own tools tell the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_NAMED = 3
"""How many kernels are named before the rest is counted."""

_BEGIN = re.compile(r"_Z(N[rVK]*)?")

_PART = re.compile(r"L?(\d{1,4})")

_ANONYMOUS = "_GLOBAL__N_"


def short_name(mangled: str) -> str:
    """``cutlass::Kernel`` of ``_ZN7cutlass6KernelINS_4gemm…``; a name that is not mangled as it is."""
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
    """``cutlass::Kernel (572), foo and 3 more``: each short name with how often it is there."""
    counts = Counter(map(short_name, kernels))
    shown = [name if count == 1 else f"{name} ({count:,})" for name, count in counts.most_common(_NAMED)]
    rest = sum(counts.values()) - sum(count for _name, count in counts.most_common(_NAMED))
    return f"{', '.join(shown)} and {rest:,} more" if rest else ", ".join(shown)
