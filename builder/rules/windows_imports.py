"""Rules for the DLLs that a package's DLLs import, forward to or open by name (E002, E003, E017).

Windows fails to load a DLL with a missing import, with error 126. So each import must be in the package or
part of Windows. File names are compared without regard to case, as on Windows.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from builder.binary.kinds.pe import Pe
from builder.findings.finding import Code, Finding, Severity
from builder.formats.package_names import LIB

_SYSTEM = (
    *(
        "kernel32.dll",
        "kernelbase.dll",
        "ntdll.dll",
        "advapi32.dll",
        "user32.dll",
        "gdi32.dll",
        "shell32.dll",
    ),
    *("ole32.dll", "combase.dll", "rpcrt4.dll", "setupapi.dll", "dbghelp.dll", "version.dll", "ws2_32.dll"),
    *("bcrypt.dll", "crypt32.dll", "cfgmgr32.dll", "psapi.dll", "shlwapi.dll", "dxgi.dll", "dxcore.dll"),
    *("d3d12.dll", "ucrtbase.dll", "api-ms-win-*.dll", "ext-ms-win-*.dll"),
)
"""Patterns of the DLLs that every Windows 10 and 11 for x64 has in System32, and of its API sets.

Source: Microsoft's "Windows umbrella libraries" and "Windows API sets"; the universal C runtime,
``api-ms-win-crt-*``, is part of Windows since version 10.
"""

_DRIVER = "nvcuda.dll"

_RUN_TIME = ("msvcp140*.dll", "vcruntime140*.dll", "concrt140.dll", "vcomp140.dll")
"""Patterns of the DLLs of the Visual C++ Redistributable, which a new Windows installation lacks."""


@dataclass(frozen=True)
class ImportingLibrary:
    """One DLL of a package."""

    path: str
    dll: Pe
    opens: tuple[str, ...] = ()
    """The names of DLLs that the DLL opens at run time, from its bytes."""


def check_imports(libraries: Sequence[ImportingLibrary]) -> Iterator[Finding]:
    """Yield E002 for missing imports, E003 for missing DLLs that are opened, E017 for Microsoft's runtime."""
    inside = frozenset(_name(library.path) for library in libraries)
    for library in libraries:
        missing = {name: how for name, how in _imported(library.dll).items() if not _is_there(name, inside)}
        users = [name for name in missing if _fits(name, _RUN_TIME)]
        for name, how in missing.items():
            if name not in users:
                yield Finding(
                    code=Code.E002,
                    path=library.path,
                    message=f"{how} {name}, which nothing will provide: Windows' error 126",
                    wanted=f"{LIB}{name} in the package, or a DLL that every Windows has",
                )
        if users:
            yield _left_to_the_user(library.path, users)
        for name in library.opens:
            if not _is_there(name, inside):
                yield Finding(
                    code=Code.E003,
                    path=library.path,
                    message=f"opens {name} at run time, and the package does not hold it",
                    wanted=f"{LIB}{name}",
                )


def _left_to_the_user(path: str, names: Sequence[str]) -> Finding:
    return Finding(
        code=Code.E017,
        path=path,
        message=f"imports {', '.join(names)}, which Windows lacks as it is installed",
        wanted="Microsoft's Visual C++ Redistributable (x64) where the package runs",
        severity=Severity.WARNING,
    )


def _imported(dll: Pe) -> Mapping[str, str]:
    """Return the DLLs that a DLL imports or forwards to, each with the verb for messages."""
    return {**dict.fromkeys(dll.forwards, "forwards to"), **dict.fromkeys(dll.needed, "imports")}


def _is_there(name: str, inside: frozenset[str]) -> bool:
    return name.lower() in inside or name.lower() == _DRIVER or _fits(name, _SYSTEM)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _name(path: str) -> str:
    return path.rpartition("/")[2].lower()
