"""This module shortens mangled C++ names of kernels for readers, and finds those that no host code registers.

Source: the Itanium C++ ABI, "External Names (a.k.a. Mangling)". The part before the first template argument
or parameter is enough to recognise a kernel; ``c++filt`` decodes whole names. The host registers each kernel
by its mangled name, a string in its read-only data (``__cudaRegisterFunction`` in NVIDIA's
``crt/host_runtime.h``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from builder.binary.elf_headers import Buffer, Section

_NAMED = 3
"""Most different kernels that a message names; further ones are counted."""

_MANGLED = b"_Z"

_READ_ONLY = ".rodata"

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


def kernel_list(kernels: Iterable[str]) -> str:
    """Return a list of short names with their numbers: ``cutlass::Kernel (572), foo and 3 more``."""
    counts = Counter(map(short_name, kernels))
    shown = [name if count == 1 else f"{name} ({count:,})" for name, count in counts.most_common(_NAMED)]
    rest = sum(counts.values()) - sum(count for _name, count in counts.most_common(_NAMED))
    return f"{', '.join(shown)} and {rest:,} more" if rest else ", ".join(shown)


def unregistered(buffer: Buffer, sections: Sequence[Section], kernels: Iterable[str]) -> frozenset[str]:
    """Return those of ``kernels`` whose mangled names are no strings in a library's read-only data.

    Names that are not mangled (``extern "C"``) are left out. Empty for a library without read-only data.
    """
    data = [section for section in sections if section.name.startswith(_READ_ONLY)]
    if not data:
        return frozenset()
    asked = {kernel for kernel in kernels if kernel.startswith(_MANGLED.decode())}
    for section in data:
        asked.difference_update(_mangled_strings(buffer, section.offset, section.offset + section.size))
    return frozenset(asked)


def _mangled_strings(buffer: Buffer, start: int, end: int) -> Iterator[str]:
    """Yield the ends of strings from their first ``_Z`` on, because a linker merges strings by their ends."""
    while (start := buffer.find(_MANGLED, start, end)) != -1:
        stop = buffer.find(b"\0", start, end)
        if stop == -1:
            return
        yield bytes(buffer[start:stop]).decode(errors="replace")
        start = stop
