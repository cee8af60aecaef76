"""The client's arguments: its commands, their flags, and what help says of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Dict, NoReturn, Sequence

from builder.client import __version__
from builder.client.commands.environment import SHELLS
from builder.client.index_address import own_release
from builder.errors import ConfigError
from builder.formats.package_names import Layout

COMMANDS = {
    "detect": ("show_gpus", "show the NVIDIA GPUs of this machine and how they were found"),
    "list": ("listing", "show what the release offers and what is installed"),
    "select": ("select_package", "show which package fits this machine and why"),
    "install": ("install", "download, verify, try out and install the package that fits"),
    "verify": ("manage", "hash the installed package again"),
    "env": ("environment", "print what to set so that applications find the package"),
    "doctor": ("doctor", "say what is wrong with the GPU or the package, and what to do"),
    "recommend": ("recommend", "show the largest model that this machine can hold"),
    "rollback": ("manage", "go back to the package that was in use before"),
    "uninstall": ("manage", "remove what was installed"),
    "self-update": ("self_update", "replace this program by that of the newest release"),
}
"""Each command's name → the module in ``builder.client.commands`` with its ``answer_<name>``, and its help
line."""

_LISTED_COMMANDS = "\n".join(f"  {name:<11}  {text}" for name, (_, text) in COMMANDS.items())

_OVERVIEW = f"""\
commands:
{_LISTED_COMMANDS}

examples:
  python3 ortpacks.pyz install        install the package that fits this machine
  eval "$(python3 ortpacks.pyz env)"  let programs of this shell find it

COMMAND --help shows its flags, --reference the exit codes and the environment's
variables, --version which release this program is of.
"""

EXIT_CODES = {
    0: "done; also when the answer is the CPU",
    2: "wrong flag, environment variable or index",
    3: "nothing is installed to use, return to or remove; or you answered no",
    4: "no program or module that unpacks zstd, or no pip, was found",
    6: "doctor found an error",
    7: "damaged file, or other bytes than were signed or listed",
    9: "--variant has no package for this platform, or not in that --layout",
    10: "a download failed",
    11: "disk full; disk or answer cannot be written; no memory or threads",
    12: "the package is undamaged but does not load on this machine",
    130: "interrupted",
    141: "the program that read the output has ended",
}

_LISTED_CODES = "\n".join(f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())

_REFERENCE = f"""\
exit codes:
{_LISTED_CODES}
environment:
  ORTPACKS_INDEX         default of --index
  ORTPACKS_FORCE_CC      state the GPUs: 8.6 or 8.6,5.2; none for no GPU
  ORTPACKS_FORCE_DRIVER  state the driver's version: 570.133.07
  ORTPACKS_FORCE_MEMORY  state the GPUs' memory in MiB: 8192 or 8192,4096
  ORTPACKS_LOOK_IN       more folders for --look-in, as in PATH
  PIP_...                for pip, which fetches NVIDIA's libraries
  REQUESTS_CA_BUNDLE     trusted certificates; or CURL_CA_BUNDLE, SSL_CERT_FILE
  CUDA_VISIBLE_DEVICES, https_proxy and no_proxy are respected too\
"""

READ_INDEX = {"list", "select", "install", "recommend", "self-update"}

_CHOOSE = {"select", "install", "recommend"}

_RECOMMEND = {"install", "recommend"}

_CHANGE = {"install", "rollback", "uninstall", "self-update"}

_NO_PREFIX = {"detect", "select"}

AUTO = "auto"
"""The value of ``--layout`` with which the client chooses the layout."""


class HelpError(Exception):
    """The user asked for help or for the version. The exception's text is the answer."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **named: object) -> None:
        super().__init__(**named)  # type: ignore[arg-type]  # as argparse calls it
        self.color = False  # Python 3.14 colours the text, and a message would show the colours' escapes

    def print_help(self, file: object = None) -> NoReturn:  # noqa: ARG002 argparse's own signature
        """Raise ``HelpError`` with the help text, which ``main`` prints."""
        raise HelpError(self.format_help().rstrip())

    def error(self, message: str) -> NoReturn:
        """Raise ``ConfigError`` (exit code 2, as for any wrong value)."""
        raise ConfigError(f"{message}. {self.prog} --help shows what there is.")


class _Reference(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        """Raise ``HelpError`` with the exit codes and the environment's variables."""
        raise HelpError(_REFERENCE)


class _Version(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        """Raise ``HelpError`` with the versions of the client, its release and Python."""
        release = own_release()
        of_which = f"of the release {release}" if release else "of no release"
        raise HelpError(f"ortpacks {__version__} {of_which}, with Python {sys.version.split()[0]}")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments.

    Raises ``ConfigError`` for wrong arguments, ``HelpError`` for ``--help`` and for no arguments.
    """
    if argv and argv[0] in COMMANDS:
        command = _Parser(**_described(argv[0]))
        _add_flags(argv[0], command)
        arguments, unknown = command.parse_known_args(argv[1:])
        if not unknown:
            arguments.command = argv[0]
            return arguments
    return _parser().parse_args(argv or ["--help"])


def _path(text: str) -> Path:
    """Return ``text`` as a path.

    Raises ``ArgumentTypeError`` for an empty text, which an unset shell variable gives: as a path it would be
    the current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _text(text: str) -> str:
    """Return ``text``. Raises ``ArgumentTypeError`` where it is empty, as from an unset shell variable."""
    if not text:
        raise argparse.ArgumentTypeError("nothing is named")
    return text


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, which takes longer to make than most commands take."""
    parser = _Parser(
        prog="ortpacks",
        usage="ortpacks COMMAND ...",
        description="Finds the ONNX Runtime GPU package that fits this machine and installs it.",
        epilog=_OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_Version, nargs=0, help=argparse.SUPPRESS)
    parser.add_argument("--reference", action=_Reference, nargs=0, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="ortpacks"
    )
    for name in COMMANDS:
        _add_flags(name, commands.add_parser(name, **_described(name)))  # type: ignore[arg-type]  # as above
    return parser


def _described(name: str) -> Dict[str, object]:
    """Return what the parser of a command says in its help."""
    text = COMMANDS[name][1]
    return {
        "prog": f"ortpacks {name}",
        "usage": f"ortpacks {name} [flags]",
        "description": f"{text[0].upper()}{text[1:]}.",
        "epilog": "ortpacks --reference shows exit codes and the environment's variables.",
        "allow_abbrev": False,
    }


def _add_flags(name: str, command: argparse.ArgumentParser) -> None:
    _add_common(name, command)
    _add_own(name, command)


def _add_common(name: str, command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON (docs/schemas/client.schema.json)")
    command.add_argument("--quiet", "-q", action="store_true", help="write answers and errors only")
    if name in _CHANGE:
        command.add_argument("--yes", "-y", action="store_true", help="do not ask")
    if name not in _NO_PREFIX:
        command.add_argument("--prefix", type=_path, metavar="DIR", help="default: ~/.local/share/ortpacks")
    if name in READ_INDEX:
        _add_sources(command)
    if name in _CHOOSE:
        command.add_argument(
            "--variant", type=_text, metavar="NAME", help="take this variant, or package, whatever the GPU"
        )
        command.add_argument(
            "--device", type=_text, metavar="N|UUID", help="choose for these GPUs only; commas separate them"
        )


def _add_sources(command: argparse.ArgumentParser) -> None:
    sources = command.add_mutually_exclusive_group()
    sources.add_argument(
        "--index",
        type=_text,
        metavar="URL|FILE|DIR",
        help="an index.json, its folder, or oci://HOST/NAME:TAG",
    )
    sources.add_argument(
        "--offline", type=_text, metavar="DIR|FILE", help="a release's folder or one archive; no network"
    )
    sources.add_argument(
        "--mirror", type=_text, metavar="URL", help="a copy of the releases, by its base URL"
    )
    command.add_argument(
        "--trust-unsigned",
        action="store_true",
        help="take a release that nobody signed (your own mirror)",
    )


def _add_own(name: str, command: argparse.ArgumentParser) -> None:
    if name == "install":
        command.add_argument(
            "--layout",
            choices=(AUTO, *(layout.value for layout in Layout)),
            default=AUTO,
            metavar="LAYOUT",
            help="auto, full, or thin: NVIDIA's libraries from elsewhere",
        )
        command.add_argument("--look-in", type=_path, metavar="DIR", action="append", help=_LOOK_IN)
        command.add_argument("--wheels", type=_path, metavar="DIR", action="append", help=_WHEELS)
    if name == "select":
        command.add_argument("--explain", action="store_true", help="all packages and GPUs as a table")
    if name == "env":
        command.add_argument(
            "--shell",
            choices=sorted(SHELLS),
            metavar="SHELL",
            help=f"{', '.join(sorted(SHELLS))} (default: this system's)",
        )
    if name == "list":
        command.add_argument("--installed", action="store_true", help="only what is installed")
    if name == "uninstall":
        command.add_argument("--old", action="store_true", help="only what is not in use")
    if name in _RECOMMEND:
        command.add_argument("--models", type=_path, metavar="FILE", help=_MODELS)
    if name == "recommend":
        command.add_argument("--try", metavar="[NAME=]MODEL", action="append", help=_TRY)
    if name == "self-update":
        command.add_argument("--check", action="store_true", help="say whether there is another one")
    if name == "doctor":
        trials = command.add_mutually_exclusive_group()
        trials.add_argument("--try", metavar="MODEL", action="append", help=_TRY_MODEL)
        trials.add_argument("--said", metavar="TEXT", help=_SAID)


_LOOK_IN = "an environment with NVIDIA's libraries; may be repeated"

_WHEELS = "a folder with NVIDIA's wheels; may be repeated"

_MODELS = "your own table of models instead of the release's"

_TRY = "open this model; give the flag again for smaller models"

_TRY_MODEL = "open this model in the package too; may be repeated"

_SAID = "an application's error text, to be explained for this machine"
