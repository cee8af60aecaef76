"""The environment an application needs to use the installed package, per shell."""

from __future__ import annotations

import shlex
from typing import Callable, Dict, List, Mapping, Optional

from builder.client.layout import Prefix, read_info

HOST = "libonnxruntime.so.1"
LIBRARY_PATH = "LD_LIBRARY_PATH"


def variables(prefix: Prefix) -> Dict[str, str]:
    """Names and values. They name ``current``, so they stay true after the next install.

    Raises ``NothingToDoError`` when nothing is installed.
    """
    visible: Optional[object] = read_info(prefix).get("cudaVisibleDevices")
    lib = prefix.current.absolute() / "lib"
    values = {"ORT_DYLIB_PATH": str(lib / HOST), LIBRARY_PATH: str(lib)}
    return {**values, "CUDA_VISIBLE_DEVICES": visible} if isinstance(visible, str) else values


def lines(values: Mapping[str, str], shell: str) -> List[str]:
    """One statement per variable, for a shell of ``SHELLS``; library paths go before what is set."""
    return [SHELLS[shell](name, value) for name, value in values.items()]


def _sh(name: str, value: str) -> str:
    rest = f"${{{name}:+:${name}}}" if name == LIBRARY_PATH else ""
    return f"export {name}={shlex.quote(value)}{rest}"


def _fish(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    rest = f" ${name}" if name == LIBRARY_PATH else ""
    paths = "--path " if name == LIBRARY_PATH else ""
    return f"set -gx {paths}{name} '{escaped}'{rest}"


def _powershell(name: str, value: str) -> str:
    escaped = value.replace("'", "''")
    rest = f" + $(if ($env:{name}) {{':' + $env:{name}}})" if name == LIBRARY_PATH else ""
    return f"$env:{name} = '{escaped}'{rest}"


SHELLS: Mapping[str, Callable[[str, str], str]] = {"sh": _sh, "fish": _fish, "powershell": _powershell}
