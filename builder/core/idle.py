"""The libraries of a package that nothing in it needs or opens: what it can leave out."""

from __future__ import annotations

import fnmatch
from typing import AbstractSet, FrozenSet, Iterable, List, Mapping, Sequence, Set, Tuple

from builder.core.checks import Code, Finding, Severity
from builder.core.content import BRIDGE, HOST, PROVIDER, TENSORRT
from builder.core.library import Library
from builder.core.opens import followed, tells_all

_ROOTS = (HOST, BRIDGE, PROVIDER, TENSORRT)
"""What programs open, and what the host library opens: no NEEDED names them."""


def unneeded(libraries: Sequence[Library]) -> Tuple[str, ...]:
    """Paths of the libraries that no NEEDED and no name leads to from ONNX Runtime's own, sorted.

    None where that cannot be told: without a CUDA provider, or where what is reached does not tell all it
    opens.
    """
    by_name = {library.name: library for library in libraries}
    if PROVIDER not in by_name:
        return ()
    reached = _reached(by_name)
    if not all(tells_all(by_name[name]) for name in reached):
        return ()
    return tuple(sorted(library.path for library in libraries if library.name not in reached))


def tell_unneeded(paths: Iterable[str]) -> List[Finding]:
    """E016 for each."""
    return [
        Finding(
            code=Code.E016,
            path=path,
            message="no library of the package names it in NEEDED or opens it",
            wanted="a package without it",
            severity=Severity.WARNING,
        )
        for path in paths
    ]


def _reached(by_name: Mapping[str, Library]) -> FrozenSet[str]:
    reached: Set[str] = set()
    waiting = [name for name in _ROOTS if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _next(by_name[name], by_name.keys())
    return frozenset(reached)


def _next(library: Library, names: AbstractSet[str]) -> List[str]:
    wanted = (*library.elf.needed, *followed(library, names))
    return [name for pattern in wanted for name in fnmatch.filter(names, pattern)]
