"""The command ``env`` prints the variables by which an application finds the package in use."""

from __future__ import annotations

import shlex
import struct
from typing import Callable, Dict, List, Mapping, Optional

from builder.client.context import CommandAnswer, CommandContext
from builder.client.install.current import installed, stable_path
from builder.client.install.prefix import Prefix, read_info
from builder.errors import ValidationError
from builder.formats.package_names import HOSTS, LIB, LINUX
from builder.formats.text import SURROGATE, printable

SYSTEMD = "systemd"

Line = Callable[[str, str, str], str]
"""``line(name, value, separator)`` returns the statement that sets a variable. ``separator`` is empty, except
for a list of folders: there the variable's old value follows ``value``."""


def _sh(name: str, value: str, separator: str) -> str:
    rest = f"${{{name}:+{separator}${name}}}" if separator else ""
    return f"export {name}={shlex.quote(value)}{rest}"


def _fish(name: str, value: str, separator: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    rest = f" ${name}" if separator else ""
    paths = "--path " if separator else ""
    return f"set -gx {paths}{name} '{escaped}'{rest}"


def _powershell(name: str, value: str, separator: str) -> str:
    rest = f" + $(if ($env:{name}) {{'{separator}' + $env:{name}}})" if separator else ""
    return f"$env:{name} = {_powershell_text(value)}{rest}"


def _powershell_text(value: str) -> str:
    """Return ``value`` in quotes, or as character codes where it is not ASCII.

    PowerShell reads another code page than Python writes.
    """
    if value.isascii():
        return "'{}'".format(value.replace("'", "''"))
    numbers = ",".join(str(number) for (number,) in struct.iter_unpack("<H", value.encode("utf-16-le")))
    return f"(-join [char[]]({numbers}))"


def _cmd(name: str, value: str, separator: str) -> str:
    rest = f"{separator}%{name}%" if separator else ""
    return f'set "{name}={value.replace("%", "%%")}{rest}"'


def _systemd(name: str, value: str, separator: str) -> str:  # noqa: ARG001 a unit inherits no list
    """Return the setting, quoted as systemd.exec(5) and systemd.syntax(7) say; ``%`` begins a specifier."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'Environment="{name}={escaped}"'


SHELLS: Mapping[str, Line] = {
    "sh": _sh,
    "fish": _fish,
    "powershell": _powershell,
    "cmd": _cmd,
    SYSTEMD: _systemd,
}


def answer_env(
    context: CommandContext, prefix: Prefix, shell: Optional[str], *, as_json: bool
) -> CommandAnswer:
    """Print the variables that an application needs, as statements of a shell, by default the platform's."""
    values = variables(prefix, context.platform)
    shell = shell or ("powershell" if context.platform.startswith("win") else "sh")
    statements = () if as_json else lines(values, shell, context.platform)
    return CommandAnswer({"variables": values}, tuple(statements), script=True)


DYLIB = "ORT_DYLIB_PATH"

EP_LIBRARY, EP_NAME = "ORTPACKS_EP_LIBRARY", "ORTPACKS_EP_NAME"
"""The variables with a plug-in's library, and with the name that an application registers it under."""

JIT_CACHE_BYTES = 4 * 2**30
"""The value of CUDA_CACHE_MAXSIZE: the largest size in bytes of the driver's cache of compiled kernels. The
driver's default may be too small for ONNX Runtime's kernels, and the driver would then compile some of them
at each start."""

LIBRARY_PATHS = {"win": "PATH", "macos": "DYLD_LIBRARY_PATH"}
"""The variable with the folders that the loader searches first, by a platform's first part;
``LD_LIBRARY_PATH`` for any other."""


def variables(prefix: Prefix, platform: str) -> Dict[str, str]:
    """Return names and values of the variables.

    Where there is a link ``current``, paths lead through it, and so stay valid after an install. Raises
    ``NothingToDoError`` where nothing is installed, ``IntegrityError`` where the package's description cannot
    be read.
    """
    info = read_info(installed(prefix))
    lib = stable_path(prefix) / LIB
    plugin = info.get("plugin")
    if isinstance(plugin, dict):
        own = {EP_LIBRARY: str(lib.parent / str(plugin.get("library"))), EP_NAME: str(plugin.get("name"))}
    else:
        own = {DYLIB: str(lib / HOSTS.get(platform, HOSTS[LINUX]))}
    values = {**own, library_path(platform): str(lib)}
    visible = info.get("cudaVisibleDevices")
    if isinstance(visible, str):
        values["CUDA_VISIBLE_DEVICES"] = visible
    if info.get("support") == "jit":
        values["CUDA_CACHE_MAXSIZE"] = str(JIT_CACHE_BYTES)
    return values


def library_path(platform: str) -> str:
    """Return the name of the variable with the folders that the loader searches."""
    return LIBRARY_PATHS.get(platform.partition("-")[0], "LD_LIBRARY_PATH")


def separators(platform: str) -> str:
    """Return the characters that separate folders in that variable; glibc's loader takes two (ld.so(8))."""
    return {"win": ";", "macos": ":"}.get(platform.partition("-")[0], ":;")


def lines(values: Mapping[str, str], shell: str, platform: str) -> List[str]:
    """Return one statement per variable for ``shell``, a key of ``SHELLS``.

    The folder of libraries comes before the variable's old value. Raises ``ValidationError`` where the shell
    would read a value differently.
    """
    for value in values.values():
        _require_spellable(value, shell, platform)
    separator = separators(platform)[0]
    paths = library_path(platform)
    settings = [
        SHELLS[shell](name, value, separator if name == paths else "") for name, value in values.items()
    ]
    return ["[Service]", *settings] if shell == SYSTEMD else settings


def _require_spellable(value: str, shell: str, platform: str) -> None:
    """Raise ``ValidationError`` where the shell would read another path than ``value``."""
    foreign = platform.startswith("win") and shell != "powershell" and not value.isascii()
    if foreign or (shell not in {"sh", "fish"} and SURROGATE.search(value)):
        raise ValidationError(
            f"--shell {shell}: {printable(value)} cannot be written so that this shell reads the same.",
            advice="Take env --json, or install with --prefix into a folder whose name is plain ASCII.",
        )
