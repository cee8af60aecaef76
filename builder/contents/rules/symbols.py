"""Rules for the symbols of ONNX Runtime's libraries: needed ones are defined, exported ones are the API.

A library can be linked with symbols missing; it fails only when it is opened. These rules compute from the
files the result of ``ldd -r`` on a machine with the package. The symbols of glibc and libstdc++ cannot be
checked that way; they have versions, which the linker recorded in the library and E007 compares with a
host's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from re import Pattern

from builder.binary.elf import Symbol
from builder.binary.library import Library
from builder.binary.library_names import BRIDGE, HOST, ONNXRUNTIME
from builder.contents.rules.dependencies import missing, reachable
from builder.finding import Code, Finding
from builder.formats.text import abridged, grouped, shortened

_CUDA_DRIVER = "libcuda.so.1"

_OF_CUDA_DRIVER = re.compile(r"cu[A-Z]\w*")
"""Names of the driver's symbols, which have no version; no package holds the driver.

The official provider of 1.31.1 needs ``libcuda.so.1`` and its symbol ``cuTensorMapEncodeTiled``; those of
1.21.0 and 1.23.2 need neither.
"""

_PROVIDERS = "libonnxruntime_providers_"

_SHOWN = 6
"""Most symbols that a message names."""

_API: Mapping[str, Pattern[str]] = {
    HOST: re.compile(r"OrtGetApiBase|OrtSessionOptionsAppendExecutionProvider_\w+"),
    BRIDGE: re.compile(r"Provider_[GS]etHost"),
}

_API_OF_PROVIDERS = re.compile(r"GetProvider|CreateEpFactories|ReleaseEpFactory|_binary_\w+")
"""The symbols that ORT's version scripts export; ``_binary_…`` is data that its linker embedded.

Sources: ORT's ``core/providers/cuda/version_script.lds``, and ``readelf --dyn-syms`` of the official 1.21.0,
1.23.2 and 1.31.1; only the last has the two symbols that make and release factories.
"""


def check_linkage(libraries: Sequence[Library]) -> list[Finding]:
    """Return the findings E014 and E015 on ORT's own libraries among those of a package."""
    by_name = {library.name: library for library in libraries}
    own = [library for library in libraries if library.vendor == ONNXRUNTIME]
    return [
        *(finding for library in own for finding in _undefined(library, by_name)),
        *(finding for library in own for finding in _not_api(library)),
    ]


def _undefined(library: Library, by_name: Mapping[str, Library]) -> Iterator[Finding]:
    """Yield E014 for symbols without a definition.

    Yields nothing where a library in scope is missing or unreadable, which E001 and E002 report.
    """
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
    """Return the libraries in which the loader looks symbols up: ``library``, then its NEEDED breadth first.

    The host library opens the bridge with global scope before it opens a provider. Source: ORT's
    provider_bridge_ort.cc.
    """
    bridge = [BRIDGE] if library.name.startswith(_PROVIDERS) and BRIDGE in by_name else []
    names = reachable(
        [library.name, *bridge],
        lambda name: [needed for needed in by_name[name].elf.needed if needed in by_name],
    )
    return [by_name[name] for name in names]


def _lacking(library: Library, scope: Sequence[Library], by_name: Mapping[str, Library]) -> list[Symbol]:
    """Return the symbols that no library in scope defines.

    Versioned symbols of libraries outside the package are left out, and so are the driver's where a library
    in scope needs the driver.
    """
    defined = grouped((one.name, one.version) for other in scope for one in other.elf.symbols.exports)
    driver = any(_CUDA_DRIVER in other.elf.needed for other in scope)
    return [
        ask
        for ask in library.elf.symbols.asks
        if not (ask.version and ask.library not in by_name)
        and not _is_defined(ask, defined.get(ask.name, []))
        and not (driver and _OF_CUDA_DRIVER.fullmatch(ask.name))
    ]


def _is_defined(ask: Symbol, versions: Sequence[str]) -> bool:
    """Return whether definitions of these ``versions`` satisfy a symbol of their name.

    Any version satisfies a symbol without a version. Its own version and none satisfy one with a version.
    Source: glibc's ``elf/dl-lookup.c``, ``check_match``.
    """
    return not {ask.version, ""}.isdisjoint(versions) if ask.version else bool(versions)


def _not_api(library: Library) -> Iterator[Finding]:
    """Yield E015 for exported symbols outside the API.

    With them, an application with its own protobuf would call ORT's functions, or the reverse.
    """
    api = _API.get(library.name, _API_OF_PROVIDERS)
    others = [symbol for symbol in library.elf.symbols.exports if not api.fullmatch(symbol.name)]
    if others:
        yield Finding(
            code=Code.E015,
            path=library.path,
            message=f"exports {_counted(others)} besides its API: the same names in an application clash",
            wanted=f"only {api.pattern.replace('|', ', ')}, as the official build (ld --version-script)",
            got=_some(others),
        )


def _counted(symbols: Sequence[Symbol]) -> str:
    return f"{len(symbols):,} symbol{'s' if len(symbols) > 1 else ''}"


def _some(symbols: Iterable[Symbol]) -> str:
    names = sorted(
        {f"{symbol.name}@{symbol.version}" if symbol.version else symbol.name for symbol in symbols}
    )
    return abridged([shortened(name) for name in names], _SHOWN)
