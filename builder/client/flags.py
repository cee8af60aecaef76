"""The flags of each command, the options that they make, and the lines that ``env`` prints for each shell."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, NoReturn, Optional, Sequence

from builder.client.install.prefix import Prefix, default_prefix
from builder.client.install.source import AUTO, WISHES, default_index, expanded, mirrored, offline
from builder.client.world import ClientOptions
from builder.errors import ConfigError, ValidationError

COMMANDS = {
    "detect": "show the NVIDIA GPUs of this machine and how they were found",
    "list": "show what the release offers and what is installed",
    "select": "show which package fits this machine and why",
    "install": "download, verify, try out and install the package that fits",
    "verify": "hash the installed package again",
    "env": "print what to set so that an application finds the installed package",
    "doctor": "say what keeps the GPU or the installed package from working, and what to do",
    "recommend": "show the largest model that this machine can hold",
    "rollback": "go back to the package that was in use before",
    "uninstall": "remove what was installed",
}

_EPILOG = """\
exit codes:
  0  done; also when the answer is the CPU
  2  wrong flag, environment variable or index
  3  nothing is installed, to go back to or to remove; or you were asked and said no
  4  nothing here can unpack zstd, or has pip
  6  doctor found an error
  7  bytes are not what they should be
  9  --variant has no package for this platform, or not in that --layout
 10  a download did not come through
 11  the disk is full or cannot be written
 12  the package is whole and does not load on this machine
130  interrupted
141  whoever read the output went away

environment:
  ORTPACKS_INDEX         default of --index
  ORTPACKS_FORCE_CC      state the GPUs: 8.6 or 8.6,5.2; none for no GPU
  ORTPACKS_FORCE_DRIVER  state the driver's version: 570.133.07
  ORTPACKS_FORCE_MEMORY  state the GPUs' memory in MiB: 8192 or 8192,4096
  ORTPACKS_LOOK_IN       more folders for --look-in, as in PATH
  CUDA_VISIBLE_DEVICES   respected
  PIP_...                pip fetches NVIDIA's libraries: its index, proxy and certificates
  https_proxy, no_proxy  respected, as urllib reads them
  REQUESTS_CA_BUNDLE     certificates to trust; else CURL_CA_BUNDLE, else SSL_CERT_FILE
"""

_READ_INDEX = {"list", "select", "install", "recommend"}

_CHOOSE = {"select", "install", "recommend"}

_CHANGE = {"install", "rollback", "uninstall"}

_NO_PREFIX = {"detect", "select"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A message and exit code 2, as for every other wrong value."""
        raise ConfigError(f"{message}\n{self.format_usage().strip()}")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments. ``ConfigError`` for wrong ones, ``SystemExit`` for ``--help``."""
    return _parser().parse_args(argv)


def command_of(argv: Sequence[str]) -> Optional[str]:
    """The command that was meant, where the arguments are wrong."""
    return next((word for word in argv if word in COMMANDS), None)


def options(arguments: argparse.Namespace, env: Mapping[str, str], home: Path) -> ClientOptions:
    """What the user asked for, defaults filled in."""
    given = vars(arguments)
    prefix: Path = given.get("prefix") or default_prefix(env, home)
    return ClientOptions(
        prefix=Prefix(_one_line(_whole(prefix))),
        index=_index(given, env),
        variant=given.get("variant"),
        device=given.get("device"),
        dialect=given.get("shell") or "sh",
        layout=given.get("layout") or AUTO,
        look_in=tuple(_look_in(given.get("look_in") or [], env)),
        wheels=tuple(_folders(given.get("wheels") or [])),
        offline=given.get("offline") is not None,
        ask=not (given.get("yes") or given["json"]),
        explain=bool(given.get("explain")),
        local=bool(given.get("installed")),
        old=bool(given.get("old")),
        models=tuple(given.get("try") or ()),
    )


def _one_line(prefix: Path) -> Path:
    """Refused otherwise: `env` writes it into shell lines and unit files."""
    if set(str(prefix)) & set("\r\n"):
        raise ValidationError(f"--prefix {str(prefix)!r} holds a line break. Choose another folder.")
    return prefix


def _index(given: Mapping[str, object], env: Mapping[str, str]) -> Optional[str]:
    """At most one of ``--index``, ``--offline`` and ``--mirror`` is there."""
    here, mirror, index = (given.get(name) for name in ("offline", "mirror", "index"))
    if here is not None:
        return offline(str(here))
    if mirror is not None:
        return mirrored(str(mirror), default_index())
    return str(index) if index else env.get("ORTPACKS_INDEX") or default_index()


def _look_in(given: Sequence[Path], env: Mapping[str, str]) -> Iterator[Path]:
    yield from map(_whole, given)
    named = env.get("ORTPACKS_LOOK_IN", "").split(os.pathsep)
    yield from (_whole(Path(name)) for name in named if name)


def _folders(given: Sequence[Path]) -> List[Path]:
    folders = [_whole(path) for path in given]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--wheels {folder}: no such folder.")
    return folders


def _whole(path: Path) -> Path:
    return expanded(path).absolute()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ortpacks",
        description="Finds the ONNX Runtime GPU package that fits this machine and installs it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        said = f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(name, help=text, description=said, allow_abbrev=False)
        _add_common(name, command)
        _add_own(name, command)
    return parser


def _add_common(name: str, command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON (docs/schemas/client.schema.json)")
    if name in _CHANGE:
        command.add_argument("--yes", "-y", action="store_true", help="do not ask")
    if name not in _NO_PREFIX:
        command.add_argument("--prefix", type=Path, metavar="DIR", help="default: ~/.local/share/ortpacks")
    if name in _READ_INDEX:
        _add_sources(command)
    if name in _CHOOSE:
        command.add_argument(
            "--variant", metavar="NAME", help="take this variant, or package, whatever the GPU"
        )
        command.add_argument("--device", metavar="N|UUID", help="choose for these GPUs only, commas between")


def _add_sources(command: argparse.ArgumentParser) -> None:
    sources = command.add_mutually_exclusive_group()
    sources.add_argument("--index", metavar="URL|FILE|DIR", help="the release's index.json, or its folder")
    sources.add_argument(
        "--offline", metavar="DIR|FILE", help="a release's folder or one archive; no network"
    )
    sources.add_argument("--mirror", metavar="URL", help="a copy of the releases, by its base URL")


def _add_own(name: str, command: argparse.ArgumentParser) -> None:
    if name == "install":
        command.add_argument("--layout", choices=WISHES, default=AUTO, help=_LAYOUT)
        command.add_argument("--look-in", type=Path, metavar="DIR", action="append", help=_LOOK_IN)
        command.add_argument("--wheels", type=Path, metavar="DIR", action="append", help=_WHEELS)
    if name == "select":
        command.add_argument("--explain", action="store_true", help="all packages and GPUs as a table")
    if name == "env":
        command.add_argument("--shell", choices=sorted(SHELLS), default="sh", help="default: sh")
    if name == "list":
        command.add_argument("--installed", action="store_true", help="only what is installed")
    if name == "uninstall":
        command.add_argument("--old", action="store_true", help="only what is not in use")
    if name == "recommend":
        command.add_argument("--try", metavar="[NAME=]MODEL", action="append", help=_TRY)
    if name == "doctor":
        command.add_argument("--try", metavar="MODEL", action="append", help=_TRY_MODEL)


_LAYOUT = "full: everything in one archive; thin: NVIDIA's libraries from this machine or their wheels"

_LOOK_IN = "an environment that may have NVIDIA's libraries (PyTorch's, say); may be repeated"

_WHEELS = "a folder that may have NVIDIA's wheels; may be repeated"

_TRY = "open this model in the installed package; may be repeated for smaller ones"

_TRY_MODEL = "open this model in the installed package as well; may be repeated"

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
    escaped = value.replace("'", "''")
    rest = f" + $(if ($env:{name}) {{'{separator}' + $env:{name}}})" if separator else ""
    return f"$env:{name} = '{escaped}'{rest}"


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
