"""Whether all symbols that ONNX Runtime's libraries ask for are defined, and which they export.

A library links with symbols missing and fails only when it is opened. What ``ldd -r`` says on a machine with
the package is computed here from the files alone; what glibc and libstdc++ define cannot be, but their
symbols have versions, and a linker that saw them left those in the library (E007 holds them to a host).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from re import Pattern

from builder.binary.elf import Symbol
from builder.binary.library import Library
from builder.binary.library_names import BRIDGE, HOST, ONNXRUNTIME
from builder.findings.finding import Code, Finding
from builder.formats.text import shortened
from builder.rules.dependencies import missing

_CUDA_DRIVER = "libcuda.so.1"

_OF_CUDA_DRIVER = re.compile(r"cu[A-Z]\w*")
"""The driver's symbols have no version, and no package holds the driver.

The official provider of 1.31.1 asks for ``cuTensorMapEncodeTiled`` and needs ``libcuda.so.1``; those of
1.21.0 and 1.23.2 do neither.
"""

_PROVIDERS = "libonnxruntime_providers_"

_ANY = "*"

_SHOWN = 6
"""Symbols that a message names."""

_API: Mapping[str, Pattern[str]] = {
    HOST: re.compile(r"OrtGetApiBase|OrtSessionOptionsAppendExecutionProvider_\w+"),
    BRIDGE: re.compile(r"Provider_[GS]etHost"),
}

_API_OF_PROVIDERS = re.compile(r"GetProvider|CreateEpFactories|ReleaseEpFactory|_binary_\w+")
"""What ORT's version scripts let out; ``_binary_`` is data that its linker wrapped.

Sources: ``readelf --dyn-syms`` of the official 1.21.0, 1.23.2 and 1.31.1, of which the last has the two that
make and release factories, and ORT's ``core/providers/cuda/version_script.lds``.
"""


def check_linkage(libraries: Sequence[Library]) -> list[Finding]:
    """E014 and E015 over a package's libraries, of which ORT's own are judged."""
    by_name = {library.name: library for library in libraries}
    own = [library for library in libraries if library.vendor == ONNXRUNTIME]
    return [
        *(finding for library in own for finding in _undefined(library, by_name)),
        *(finding for library in own for finding in _not_api(library)),
    ]


def _undefined(library: Library, by_name: Mapping[str, Library]) -> Iterator[Finding]:
    """E014. Silent where a library in scope is missing or unreadable: E001 and E002 report that."""
    scope = _scope(library, by_name)
    if any(missing(one, by_name.keys()) or not one.elf.sections for one in scope):
        return
    undefined = _lacking(library, scope, by_name)
    if undefined:
        yield Finding(
            code=Code.E014,
            path=library.path,
            message=f"asks for {_counted(undefined)} that no library it loads defines, and will not open",
            wanted="each defined by the library itself or by one that its NEEDED names",
            got=_some(undefined),
        )


def _scope(library: Library, by_name: Mapping[str, Library]) -> list[Library]:
    """The libraries where the loader looks: the library itself, then breadth first those in its NEEDED.

    Before a provider the host library opens the bridge for all to see. Source: ORT's provider_bridge_ort.cc.
    """
    beginning = [library.name]
    if library.name.startswith(_PROVIDERS) and BRIDGE in by_name:
        beginning.append(BRIDGE)
    names: dict[str, None] = dict.fromkeys(beginning)
    queue = [library, *(by_name[name] for name in beginning[1:])]
    for one in queue:
        new = [name for name in one.elf.needed if name in by_name and name not in names]
        names.update(dict.fromkeys(new))
        queue += [by_name[name] for name in new]
    return queue


def _lacking(library: Library, scope: Sequence[Library], by_name: Mapping[str, Library]) -> list[Symbol]:
    """The symbols that nothing in scope defines; versioned ones of host libraries are not looked for."""
    defined = set(_definitions(scope))
    driver = any(_CUDA_DRIVER in one.elf.needed for one in scope)
    return [
        ask
        for ask in library.elf.symbols.asks
        if not (ask.version and ask.library not in by_name)
        and defined.isdisjoint(_answers(ask))
        and not (driver and _OF_CUDA_DRIVER.fullmatch(ask.name))
    ]


def _definitions(scope: Sequence[Library]) -> Iterator[tuple[str, str]]:
    for export in (export for one in scope for export in one.elf.symbols.exports):
        yield export.name, export.version
        yield export.name, _ANY


def _answers(ask: Symbol) -> tuple[tuple[str, str], ...]:
    """The definitions that satisfy a symbol: without a version any, with one also one without.

    Source: glibc's ``elf/dl-lookup.c``, ``check_match``.
    """
    if not ask.version:
        return ((ask.name, _ANY),)
    return (ask.name, ask.version), (ask.name, "")


def _not_api(library: Library) -> Iterator[Finding]:
    """E015: an application with a protobuf of its own would get ORT's functions, or the reverse."""
    api = _API.get(library.name, _API_OF_PROVIDERS)
    others = [symbol for symbol in library.elf.symbols.exports if not api.fullmatch(symbol.name)]
    if others:
        yield Finding(
            code=Code.E015,
            path=library.path,
            message=f"shows {_counted(others)} besides its API: an application's of that name would clash",
            wanted=f"only {api.pattern.replace('|', ', ')}, as the official build (ld --version-script)",
            got=_some(others),
        )


def _counted(symbols: Sequence[Symbol]) -> str:
    return f"{len(symbols):,} symbol{'s' if len(symbols) > 1 else ''}"


def _some(symbols: Iterable[Symbol]) -> str:
    names = sorted({f"{one.name}@{one.version}" if one.version else one.name for one in symbols})
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(shortened, names[:_SHOWN])) + more
