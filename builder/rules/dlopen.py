"""Rules for the files that a library opens at run time, and for libraries that none needs or opens (E016).

No NEEDED entry names a library that is opened by ``dlopen``; its name is in the opener's bytes, or follows
from the version of ONNX Runtime.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import AbstractSet

from builder.binary.library import Library
from builder.binary.library_names import BRIDGE, HOST, PROVIDER, TENSORRT
from builder.findings.finding import Code, Finding, Severity
from builder.onnxruntime.versions import OPENS_LIBRARIES, opened_at_run_time

_CUDART = "libcudart.so."

_BUILTINS = "libnvrtc-builtins.so."

_UNFINISHED = (".", ".%d")

_SOMETIMES = (
    ("libcublasLt.so.", "libnvrtc.so.*"),
    ("libcudnn_adv.so.", "libcublasLt.so.*"),
    ("libcudnn_engines_precompiled.so.", "libcublasLt.so.*"),
)
"""The beginning of a library's name, and a file that it may open, as an ``fnmatch`` pattern.

The names are between zero bytes in ``.rodata`` of cuBLAS 12.9 and cuDNN 9.10, each before the names of the
file's functions. It is not known what fails without these files, so a package may lack them, but ``unneeded``
does not name them.
"""


def dlopened_files(library: Library, names: AbstractSet[str]) -> tuple[str, ...]:
    """Return the files that a library must find at run time, as ``fnmatch`` patterns.

    ``names`` are the file names of its package's libraries.
    """
    named = (_file_of(name, library, names) for name in library.dlopens)
    return tuple(dict.fromkeys((*named, *_by_table(library))))


def loadable_files(library: Library, names: AbstractSet[str]) -> tuple[str, ...]:
    """Return the files that a library must find at run time and those that it may open, as patterns."""
    sometimes = (pattern for beginning, pattern in _SOMETIMES if library.name.startswith(beginning))
    return (*dlopened_files(library, names), *sometimes)


def dlopens_are_known(library: Library) -> bool:
    """Return whether all files that a library opens at run time are known.

    They are unknown for a file that cannot be read, for a CUDA provider without a version, and for a CUDA
    provider whose release opens libraries that neither its bytes nor the table for its CUDA version name.
    """
    if not library.elf.sections:
        return False
    if library.name != PROVIDER:
        return True
    return library.embedded_version is not None and (
        not OPENS_LIBRARIES.holds(library.embedded_version) or bool(_by_table(library))
    )


def _by_table(library: Library) -> Sequence[str]:
    """Return the files that a CUDA provider opens without their names in its bytes; known for CUDA 12, 13."""
    linked = [name for name in library.elf.needed if name.startswith(_CUDART)]
    if library.name != PROVIDER or library.embedded_version is None or len(linked) != 1:
        return ()
    return opened_at_run_time(library.embedded_version, linked[0].removeprefix(_CUDART))


def _file_of(name: str, library: Library, names: AbstractSet[str]) -> str:
    """Return the file that a name in a library's bytes leads to, as a pattern: ``*`` for an unknown number.

    A name that ends in ``.so`` gets the library's own number, as cuDNN's parts do. A name that ends in a dot
    or ``.%d`` gets the major version of the package's CUDA, and that of NVRTC's built-ins any minor version.
    """
    if name.endswith(".so"):
        return f"{name}.{library.name.partition('.so.')[2]}"
    if not name.endswith(_UNFINISHED):
        return name
    cudart = [one[len(_CUDART) :] for one in names if one.startswith(_CUDART)]
    beginning = name.removesuffix("%d") + (cudart[0] if len(cudart) == 1 else "*")
    return f"{beginning}.*" if name == _BUILTINS else beginning


_ROOTS = (HOST, BRIDGE, PROVIDER, TENSORRT)
"""Libraries that programs or the host library open, without a NEEDED entry."""


def unneeded(libraries: Sequence[Library]) -> tuple[str, ...]:
    """Return the paths of the libraries that ONNX Runtime's neither need nor open, even indirectly, sorted.

    Empty where this is not known: without a CUDA provider, or where the files that a reachable library opens
    are not all known.
    """
    by_name = {library.name: library for library in libraries}
    if PROVIDER not in by_name:
        return ()
    reached = _reached(by_name)
    if not all(dlopens_are_known(by_name[name]) for name in reached):
        return ()
    return tuple(sorted(library.path for library in libraries if library.name not in reached))


def report_unneeded(paths: Iterable[str]) -> list[Finding]:
    """Return the warning E016 for each path."""
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


def _reached(by_name: Mapping[str, Library]) -> frozenset[str]:
    reached: set[str] = set()
    waiting = [name for name in _ROOTS if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _next(by_name[name], by_name.keys())
    return frozenset(reached)


def _next(library: Library, names: AbstractSet[str]) -> list[str]:
    wanted = (*library.elf.needed, *loadable_files(library, names))
    return [name for pattern in wanted for name in fnmatch.filter(names, pattern)]
