"""The client's arguments: its commands, their flags and help lines, and the index that the flags name."""

from __future__ import annotations

import argparse
import json
import pkgutil
import re
import sys
from pathlib import Path
from typing import Callable, Mapping, NoReturn, Optional, Sequence, Tuple, Union
from urllib.parse import urljoin, urlsplit

from builder.client import __version__
from builder.client.commands.environment import SHELLS
from builder.errors import ConfigError, TransferError
from builder.files.disk import absolute
from builder.formats.package_names import INDEX, Layout, PackageForm
from builder.formats.text import redacted, refuse_registry

_TABLES = json.loads(pkgutil.get_data(__name__, "arguments.json") or b"")
"""``flags``: of the commands that a flag names, or of all. ``options`` are argparse's."""

COMMANDS: Mapping[str, Tuple[str, str]] = _TABLES["commands"]
"""Each command's name → the module in ``builder.client.commands`` with its ``answer_<name>``, and its help
line."""

_LISTED_COMMANDS = "\n".join(f"  {name:<11}  {text}" for name, (_, text) in COMMANDS.items())

FLAGS = _TABLES["flags"]
"""Each flag's names, the commands that have it (all, where it names none) and argparse's options."""

_PROGRAM = "python3 ortpacks.pyz" if sys.argv[0].endswith(".pyz") else "ortpacks"
"""The words that start this client: pip, npm and ``install.sh`` make a command of it."""

_EVAL = f'eval "$({_PROGRAM} env)"'

_OVERVIEW = f"""\
commands:
{_LISTED_COMMANDS}

examples:
  {f"{_PROGRAM} install":<{len(_EVAL)}}  install the package that fits this machine
  {_EVAL}  let programs of this shell find it

COMMAND --help shows its flags, --reference exit codes and variables.
"""

EXIT_CODES = {int(code): meaning for code, meaning in _TABLES["exit_codes"].items()}

_LISTED_CODES = "\n".join(f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())

ENVIRONMENT = """\
  ORTPACKS_INDEX         default of --index
  ORTPACKS_FORCE_CC      state the GPUs: 8.6 or 8.6,5.2; none for no GPU
  ORTPACKS_FORCE_DRIVER  state the driver's version: 570.133.07
  ORTPACKS_FORCE_MEMORY  state the GPUs' memory in MiB: 8192 or 8192,4096
  ORTPACKS_LOOK_IN       more folders for --look-in, as in PATH
  PIP_...                for pip, which fetches NVIDIA's libraries
  REQUESTS_CA_BUNDLE     trusted certificates; or CURL_CA_BUNDLE, SSL_CERT_FILE
  CUDA_VISIBLE_DEVICES, https_proxy and no_proxy are respected too\
"""
"""The environment's variables, a line each."""

_REFERENCE = f"exit codes:\n{_LISTED_CODES}\nenvironment:\n{ENVIRONMENT}"

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
            add_help=False,
        )
        command.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        _add_flags(name, command)
    return parser


_KINDS: Mapping[str, Mapping[str, object]] = {
    "switch": {"action": "store_true"},
    "path": {"type": _path},
    "paths": {"type": _path, "action": "append"},
    "text": {"type": _text},
    "any text": {},
    "models": {"action": "append"},
    "layout": {"choices": (AUTO, *(layout.value for layout in Layout)), "default": AUTO},
    "shell": {"choices": sorted(SHELLS)},
    "form": {"choices": [form.value for form in PackageForm]},
}
"""What argparse makes of a flag's value, by ``kind``."""


def _add_flags(name: str, command: argparse.ArgumentParser) -> None:
    """Add a command's flags; of those of one group, one at most may be given."""
    groups = {
        "release": command.add_mutually_exclusive_group(),
        "trial": command.add_mutually_exclusive_group(),
    }
    for flag in FLAGS:
        if name in flag.get("commands", COMMANDS):
            add: Callable[..., object] = groups.get(flag.get("group"), command).add_argument
            add(*flag["flag"], **_KINDS[flag["kind"]], **flag["options"])


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
