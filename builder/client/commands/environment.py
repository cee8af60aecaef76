"""The answer of ``env``: how an application finds the package in use, in the words of each shell."""

from __future__ import annotations

import re
import shlex
import struct
from typing import Callable, Dict, List, Mapping

from builder.client.install.current import installed, stable_path
from builder.client.install.prefix import Prefix, read_info
from builder.client.world import ClientOptions, CommandAnswer, World, head
from builder.errors import ValidationError
from builder.formats.package_names import HOSTS, LINUX
from builder.formats.text import printable

SYSTEMD = "systemd"

Line = Callable[[str, str, str], str]
"""``line(name, value, separator)``: there is a separator for lists of folders, which keep what is set."""


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
    """In quotes, or by its characters' numbers: PowerShell reads another code page than Python writes."""
    if value.isascii():
        return "'{}'".format(value.replace("'", "''"))
    numbers = ",".join(str(number) for (number,) in struct.iter_unpack("<H", value.encode("utf-16-le")))
    return f"(-join [char[]]({numbers}))"


def _cmd(name: str, value: str, separator: str) -> str:
    """For a batch file, where ``%`` begins a variable."""
    rest = f"{separator}%{name}%" if separator else ""
    return f'set "{name}={value.replace("%", "%%")}{rest}"'


def _systemd(name: str, value: str, separator: str) -> str:  # noqa: ARG001 a unit inherits no list
    """As systemd.exec(5) and systemd.syntax(7) quote: ``%`` begins a specifier."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'Environment="{name}={escaped}"'


SHELLS: Mapping[str, Line] = {
    "sh": _sh,
    "fish": _fish,
    "powershell": _powershell,
    "cmd": _cmd,
    SYSTEMD: _systemd,
}


def answer_env(world: World, options: ClientOptions) -> CommandAnswer:
    """The variables an application needs."""
    values = variables(options.prefix, world.platform)
    shell = options.dialect or ("powershell" if world.platform.startswith("win") else "sh")
    statements = () if options.as_json else lines(values, shell, world.platform)
    return CommandAnswer({**head("env"), "variables": values}, tuple(statements), script=True)


JIT_CACHE_BYTES = 4 * 2**30
"""What NVIDIA's driver keeps of compiled kernels at most. Its default may hold a fraction of ONNX Runtime's,
which would be compiled again at each start."""

LIBRARY_PATHS = {"win": "PATH", "macos": "DYLD_LIBRARY_PATH"}
"""Where the loader looks first, by what a platform's name begins with; else ``LD_LIBRARY_PATH``."""


def variables(prefix: Prefix, platform: str) -> Dict[str, str]:
    """Names and values. Where there is a link ``current`` they name it, and stay true after an install.

    Raises ``NothingToDoError`` when nothing is installed.
    """
    info = read_info(installed(prefix))
    lib = stable_path(prefix) / "lib"
    host = HOSTS.get(platform, HOSTS[LINUX])
    values = {"ORT_DYLIB_PATH": str(lib / host), library_path(platform): str(lib)}
    visible = info.get("cudaVisibleDevices")
    if isinstance(visible, str):
        values["CUDA_VISIBLE_DEVICES"] = visible
    if info.get("support") == "jit":
        values["CUDA_CACHE_MAXSIZE"] = str(JIT_CACHE_BYTES)
    return values


def library_path(platform: str) -> str:
    """The variable that the loader reads."""
    return LIBRARY_PATHS.get(platform.partition("-")[0], "LD_LIBRARY_PATH")


def separators(platform: str) -> str:
    """What parts the folders of that variable; glibc's loader takes both (ld.so(8))."""
    return {"win": ";", "macos": ":"}.get(platform.partition("-")[0], ":;")


def lines(values: Mapping[str, str], shell: str, platform: str) -> List[str]:
    """One statement per variable, for a shell of ``SHELLS``; library paths go before what is set.

    Raises ``ValidationError`` where the shell would not understand a value.
    """
    for value in values.values():
        _require_spellable(value, shell, platform)
    separator = separators(platform)[0]
    paths = library_path(platform)
    settings = [
        SHELLS[shell](name, value, separator if name == paths else "") for name, value in values.items()
    ]
    return ["[Service]", *settings] if shell == SYSTEMD else settings


_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Bytes of a path that are no text, as Python has them."""


def _require_spellable(value: str, shell: str, platform: str) -> None:
    """``ValidationError`` where what is printed would be another path than the one that is meant."""
    foreign = platform.startswith("win") and shell != "powershell" and not value.isascii()
    if foreign or (shell not in {"sh", "fish"} and _NO_TEXT.search(value)):
        raise ValidationError(
            f"--shell {shell}: {printable(value)} cannot be written so that this shell reads the same.",
            advice="Take env --json, or install with --prefix into a folder whose name is plain ASCII.",
        )
