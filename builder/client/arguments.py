"""The client's arguments: its commands, their flags and help lines, and the index that the flags name."""

from __future__ import annotations

import argparse
import pkgutil
import re
import sys
from pathlib import Path
from typing import Mapping, NoReturn, Optional, Sequence, Union
from urllib.parse import urljoin, urlsplit

from builder.client import __version__
from builder.client.commands.environment import SHELLS
from builder.errors import ConfigError, TransferError
from builder.files.disk import absolute
from builder.formats.package_names import INDEX, Layout
from builder.formats.text import redacted, refuse_registry

COMMANDS = {
    "detect": ("show_gpus", "show the NVIDIA GPUs of this machine and how they were found"),
    "list": ("select_package", "show what the release offers and what is installed"),
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

    def _print_message(self, message: str, file: object = None) -> NoReturn:  # noqa: ARG002 argparse's own
        """Raise ``HelpError`` with the help or the version, which ``main`` prints."""
        raise HelpError(message.rstrip())

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. {self.prog} --help shows what there is.")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments.

    Raises ``ConfigError`` for wrong arguments, ``HelpError`` for ``--help`` and without arguments.
    """
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
    release = own_release()
    of_which = f"of the release {release}" if release else "of no release"
    version = f"ortpacks {__version__} {of_which}, with Python {sys.version.split()[0]}"
    parser = _Parser(
        prog="ortpacks",
        usage="ortpacks COMMAND ...",
        description="Finds the ONNX Runtime GPU package that fits this machine and installs it.",
        epilog=_OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=version, help=argparse.SUPPRESS)
    parser.add_argument("--reference", action="version", version=_REFERENCE, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="ortpacks"
    )
    for name, (_, text) in COMMANDS.items():
        command = commands.add_parser(
            name,
            prog=f"ortpacks {name}",
            usage=f"ortpacks {name} [flags]",
            description=f"{text[0].upper()}{text[1:]}.",
            epilog="ortpacks --reference shows exit codes and the environment's variables.",
            allow_abbrev=False,
        )
        _add_common(name, command)
        _add_own(name, command)
    return parser


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
        help="an index.json, or its folder",
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


_RELEASE = re.compile(r"/releases/download/(.+)/index\.json$")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""The beginning of a URL; a single letter is a drive of Windows."""

_NEWEST = {"self-update"}
"""The commands that read the newest release's index where the user names no index."""


def index_address(given: Mapping[str, object], env: Mapping[str, str]) -> Union[str, Path, None]:
    """Return the place of the index; ``None`` where no option, variable or default names one.

    At most one of ``--index``, ``--offline`` and ``--mirror`` is given.
    """
    default = _default_index()
    here, mirror, index = (given.get(name) for name in ("offline", "mirror", "index"))
    if here is not None:
        return _offline(str(here))
    if mirror is not None:
        return mirrored(str(mirror), default if given["command"] not in _NEWEST else None)
    if given["command"] in _NEWEST and default:
        default = _RELEASE.sub(f"/releases/latest/download/{INDEX}", default)
    named = str(index) if index else env.get("ORTPACKS_INDEX") or default
    return place(named) if named else None


def _default_index() -> Optional[str]:
    """Return the URL of the index of this program's release; ``None`` when it runs from the source tree."""
    data = shipped("default_index.txt")
    return data.decode().strip() if data else None


def own_release() -> Optional[str]:
    """Return the tag of the release that this program belongs to; ``None`` if it belongs to none."""
    release = _RELEASE.search(_default_index() or "")
    return release[1] if release else None


def shipped(name: str) -> Optional[bytes]:
    """Return the bytes of the file ``name`` in this program's archive; ``None`` where there is none."""
    try:
        return pkgutil.get_data("builder.client", name)
    except OSError:
        return None


def mirrored(base: str, default: Optional[str]) -> str:
    """Return the place of the index on the mirror ``base``. Raises ``ConfigError`` where ``base`` is no URL.

    The index is that of the release that the URL ``default`` names, else that of the newest release.
    """
    if not is_url(base):
        what = f"--mirror {_without_login(base)}: a URL is wanted, http or https."
        raise ConfigError(what, advice="--index also takes folders.")
    release = _RELEASE.search(default or "")
    return str(place(f"{base.rstrip('/')}/{release[1] if release else 'latest'}/{INDEX}"))


def _offline(text: str) -> Path:
    """Return the folder or archive of ``--offline``. Raises ``ConfigError`` where it does not exist."""
    path = None if is_url(text) else absolute(Path(text))
    if path is None or not path.exists():
        named = redacted(text)
        raise ConfigError(f"--offline {named}: a folder with index.json, or a package's archive, is wanted.")
    return path


def place(text: str) -> Union[str, Path]:
    """Return the URL or absolute path that ``text`` names.

    The URL of a folder becomes the URL of its index. A fragment stays. Raises ``ConfigError`` for a malformed
    address, ``TransferError`` for a URL that is not fetched.
    """
    if not is_url(text):
        if _SCHEME.match(text):  # as a path it would be shown with its login
            what = f"{redacted(text)}: only http and https are fetched."
            raise TransferError(what, advice="A file or folder is named by its path.")
        return absolute(Path(text))
    address, _, pin = text.partition("#")
    if address.endswith("/"):
        address = urljoin(address, INDEX)
    return f"{address}#{pin}" if pin else address


def is_url(text: str) -> bool:
    """Return whether ``text`` is an http or https URL.

    Raises ``ConfigError`` for a malformed URL, or an address in a registry.
    """
    refuse_registry(text)
    try:
        scheme = urlsplit(text).scheme
        if scheme not in {"http", "https"}:
            return False
        if text.partition(":")[2].startswith("//"):
            return True
    except ValueError:
        pass
    raise ConfigError(f"{_without_login(text)}: not a URL.", advice="Write it like https://HOST/PATH.")


def _without_login(text: str) -> str:
    """Return an address without a login, also where a part of ``://`` is missing."""
    whole = "://" in text or "@" not in text
    return redacted(text) if whole else f"…@{text.rpartition('@')[2]}"
