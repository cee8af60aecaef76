"""Rules for libraries for Windows, macOS and ARM: platform, the host library's version, what DLLs import.

Windows fails to load a DLL with a missing import, with error 126. So each import must be in the package or
part of Windows (E002, E003, E017). File names are compared without regard to case, as on Windows.
"""

from __future__ import annotations

import fnmatch
import json
import pkgutil
from collections.abc import Iterator, Mapping, Sequence

from builder.binary.library import Reading, wheel_version
from builder.binary.pe_macho import LINKS, ForeignLibrary
from builder.contents.required_files import libraries
from builder.finding import Code, Finding, Severity
from builder.formats.package_names import HOSTS, LIB, LINUX_ARM64, MACOS, WINDOWS

_KINDS: Mapping[str | None, str] = {
    WINDOWS: "a 64-bit DLL for x86-64",
    MACOS: "a 64-bit dynamic library for arm64",
    LINUX_ARM64: "a 64-bit shared library for aarch64",
}


def check_foreign(found: Sequence[ForeignLibrary], provider: str, platform: str) -> Iterator[Finding]:
    """Yield E012, E018, E019 and B011 on the libraries of a package that is not for linux-x64."""
    by_name = {library.path.rpartition("/")[2]: library for library in found}
    for name in libraries(provider, platform):
        if name not in by_name:
            message = f"is not in the package, and every one for {provider} on {platform} holds it"
            yield Finding(Code.E012, f"{LIB}{name}", message, wanted=f"{LIB}{name}")
    for library in found:
        if library.platform != platform:
            got = _KINDS.get(library.platform, "neither that nor any library known here")
            yield Finding(Code.E018, library.path, f"is not for {platform}", wanted=_KINDS[platform], got=got)
    host = by_name.get(HOSTS[platform])
    if host is not None:
        yield from _check_host(host, provider)


def _check_host(host: ForeignLibrary, provider: str) -> Iterator[Finding]:
    link, version = LINKS.get(provider), wheel_version(host.source)
    if link is not None and provider not in host.links:
        message = f"{link.decode()} stands nowhere in its bytes"
        yield Finding(Code.E019, host.path, message, wanted=f"ONNX Runtime with the provider {provider}")
    if version is not None and version not in host.versions:
        got = ", ".join(sorted(host.versions)) or "no version in its bytes"
        yield Finding(Code.B011, host.path, f"it comes from {host.source}", wanted=version, got=got)


_TABLES = json.loads(pkgutil.get_data(__name__, "foreign_libraries.json") or b"")

_SYSTEM: Sequence[str] = _TABLES["system"]
"""Patterns of the DLLs that every Windows 10 and 11 for x64 has in System32, and of its API sets.

Source: Microsoft's "Windows umbrella libraries" and "Windows API sets"; the universal C runtime,
``api-ms-win-crt-*``, is part of Windows since version 10.
"""

_DRIVER = "nvcuda.dll"

_RUN_TIME = ("msvcp140*.dll", "vcruntime140*.dll", "concrt140.dll", "vcomp140.dll")
"""Patterns of the DLLs of the Visual C++ Redistributable, which a new Windows installation lacks."""


def check_imports(readings: Sequence[Reading]) -> Iterator[Finding]:
    """Yield E002 for missing imports, E003 for missing DLLs that are opened, E017 for Microsoft's runtime."""
    inside = frozenset(_name(read.path) for read in readings if read.dll)
    for reading in readings:
        if reading.dll is None:
            continue
        forwards, needed = reading.dll.forwards, reading.dll.needed
        imports = {**dict.fromkeys(forwards, "forwards to"), **dict.fromkeys(needed, "imports")}
        missing = {name: how for name, how in imports.items() if not _is_there(name, inside)}
        users = [name for name in missing if _fits(name, _RUN_TIME)]
        for name, how in missing.items():
            if name not in users:
                yield Finding(
                    code=Code.E002,
                    path=reading.path,
                    message=f"{how} {name}, which nothing will provide: Windows' error 126",
                    wanted=f"{LIB}{name} in the package, or a DLL that every Windows has",
                )
        if users:
            yield Finding(
                code=Code.E017,
                path=reading.path,
                message=f"imports {', '.join(users)}, which Windows lacks as it is installed",
                wanted="Microsoft's Visual C++ Redistributable (x64) where the package runs",
                severity=Severity.WARNING,
            )
        for name in reading.dlopens:
            if not _is_there(name, inside):
                yield Finding(
                    code=Code.E003,
                    path=reading.path,
                    message=f"opens {name} at run time, and the package does not hold it",
                    wanted=f"{LIB}{name}",
                )


def _is_there(name: str, inside: frozenset[str]) -> bool:
    return name.lower() in inside or name.lower() == _DRIVER or _fits(name, _SYSTEM)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _name(path: str) -> str:
    return path.rpartition("/")[2].lower()
