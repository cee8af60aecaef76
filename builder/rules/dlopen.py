"""Which files of its package a library opens at run time, and which libraries nothing needs or opens (E016).

A library that is opened by ``dlopen`` stands in no NEEDED; its name is read from the opener's bytes, or
follows from the version of ONNX Runtime.
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
"""The beginning of a library's name, and a file that it may open.

The names stand between zero bytes in ``.rodata`` of cuBLAS 12.9 and cuDNN 9.10, each before the names of its
functions. What fails without these files is not known: a package keeps them and need not hold them.
"""


def dlopened_files(library: Library, names: AbstractSet[str]) -> tuple[str, ...]:
    """The files that a library must find at run time, as ``fnmatch`` patterns; ``names`` is its package."""
    named = (_file_of(name, library, names) for name in library.dlopens)
    return tuple(dict.fromkeys((*named, *_by_table(library))))


def loadable_files(library: Library, names: AbstractSet[str]) -> tuple[str, ...]:
    """The files that a library must find at run time, and those it may open: neither may be left out."""
    sometimes = (pattern for beginning, pattern in _SOMETIMES if library.name.startswith(beginning))
    return (*dlopened_files(library, names), *sometimes)


def dlopens_are_known(library: Library) -> bool:
    """Whether all that a library opens at run time is known.

    It is not for a file that cannot be read, for a CUDA provider without a version, and for one whose release
    opens libraries that neither its bytes nor a table names.
    """
    if not library.elf.sections:
        return False
    if library.name != PROVIDER:
        return True
    return library.embedded_version is not None and (
        not OPENS_LIBRARIES.holds(library.embedded_version) or bool(_by_table(library))
    )


def _by_table(library: Library) -> Sequence[str]:
    """What a CUDA provider of this version opens without naming it in its bytes; known for CUDA 12 and 13."""
    linked = [name for name in library.elf.needed if name.startswith(_CUDART)]
    if library.name != PROVIDER or library.embedded_version is None or len(linked) != 1:
        return ()
    return opened_at_run_time(library.embedded_version, linked[0].removeprefix(_CUDART))


def _file_of(name: str, library: Library, names: AbstractSet[str]) -> str:
    """The file that a name in a library's bytes comes to; ``*`` stands for what nothing in the package tells.

    Without a number it gets the library's own, as cuDNN's parts do; with half a name the number of the
    package's CUDA, of which the built-ins have the minor one too.
    """
    if name.endswith(".so"):
        return f"{name}.{library.name.partition('.so.')[2]}"
    if not name.endswith(_UNFINISHED):
        return name
    cudart = [one[len(_CUDART) :] for one in names if one.startswith(_CUDART)]
    beginning = name.removesuffix("%d") + (cudart[0] if len(cudart) == 1 else "*")
    return f"{beginning}.*" if name == _BUILTINS else beginning


_ROOTS = (HOST, BRIDGE, PROVIDER, TENSORRT)
"""Libraries that programs or the host library open: they stand in no NEEDED."""


def unneeded(libraries: Sequence[Library]) -> tuple[str, ...]:
    """Paths of the libraries that ONNX Runtime's own neither need nor open, directly or not, sorted.

    Empty where that is not known: without a CUDA provider, or where a reachable library opens files that are
    not known.
    """
    by_name = {library.name: library for library in libraries}
    if PROVIDER not in by_name:
        return ()
    reached = _reached(by_name)
    if not all(dlopens_are_known(by_name[name]) for name in reached):
        return ()
    return tuple(sorted(library.path for library in libraries if library.name not in reached))


def report_unneeded(paths: Iterable[str]) -> list[Finding]:
    """E016 for each path."""
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
