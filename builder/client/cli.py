"""The client's command line turns arguments into an answer, as text or JSON, and an exit code.

A command's module is imported only when the command runs. Python compiles the modules of a ``.pyz`` at each
start, and ``env`` in a shell's start-up must not wait for the modules that ``install`` needs.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import re
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Callable, Iterator, List, Mapping, NoReturn, Optional, Sequence, Union, cast
from urllib.parse import urljoin, urlsplit

from builder.client import __version__
from builder.client.commands.environment import SHELLS, library_path, separators
from builder.client.context import ClientOptions, CommandAnswer, CommandContext, head
from builder.client.install.prefix import Prefix, default_prefix
from builder.errors import BuilderError, ConfigError, DiskError, ValidationError, os_error
from builder.files.disk import absolute
from builder.formats.oci import file_address, is_oci, parse_address
from builder.formats.package_names import INDEX, Layout
from builder.formats.text import shown, without_userinfo

COMMANDS = {
    "detect": ("show_gpus", "show the NVIDIA GPUs of this machine and how they were found"),
    "list": ("manage", "show what the release offers and what is installed"),
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

INTERRUPTED = 130

_ADVICE = "interrupted; run it again to go on"

_NO_THREAD = "can't start new thread"
"""The message of ``threading``'s ``RuntimeError`` when the system starts no thread."""

_SHORT = (
    "The system gives this process no more memory or threads. Raise the limit (ulimit -v, ulimit -u; of a "
    "container --memory, --pids-limit) and run it again to go on."
)

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
    3: "nothing is installed, to go back to or to remove; or you said no",
    4: "nothing here can unpack zstd, or has pip",
    6: "doctor found an error",
    7: "bytes are not what they should be",
    9: "--variant has no package for this platform, or not in that --layout",
    10: "a download did not come through",
    11: "disk full; disk or answer cannot be written; no memory or threads",
    12: "the package is whole and does not load on this machine",
    130: "interrupted",
    141: "whoever read the output went away",
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

_READ_INDEX = {"list", "select", "install", "recommend", "self-update"}

_CHOOSE = {"select", "install", "recommend"}

_RECOMMEND = {"install", "recommend"}

_CHANGE = {"install", "rollback", "uninstall", "self-update"}

_NEWEST = {"self-update"}
"""The commands that read the newest release's index where the user names no index."""

_NO_PREFIX = {"detect", "select"}

_LISTED = {"install", "env"}
"""The commands whose prefix becomes part of a list of folders, which a separator in its name would break."""


AUTO = "auto"
"""The value of ``--layout`` with which the client chooses the layout."""

_RELEASE = re.compile(r"/releases/download/(.+)/index\.json$")

Print = Callable[[str], None]

Command = Callable[[CommandContext, ClientOptions], CommandAnswer]


def main(
    argv: Sequence[str], context: CommandContext, env: Mapping[str, str], home: Path, out: Print, err: Print
) -> int:
    """Run one command and return its exit code. Raises what ``out`` raises.

    With ``--json``, ``out`` gets exactly one JSON document, for an error too. ``err`` gets an error's message
    in both cases.
    """
    as_json = "--json" in argv
    try:
        arguments = parsed(argv)
        if arguments.quiet:
            context = quiet(context)
        module, _ = COMMANDS[arguments.command]
        command = getattr(import_module(f"builder.client.commands.{module}"), _answer_of(arguments.command))
        answer = cast("Command", command)(context, _options(arguments, env, home, context.platform))
    except HelpError as wanted:
        out(str(wanted))
        return 0
    except BuilderError as error:
        return _failed(error.exit_code, str(error), argv, as_json, out, err)
    except OSError as error:
        failure = os_error(error)
        return _failed(failure.exit_code, str(failure), argv, as_json, out, err)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and str(error) != _NO_THREAD:
            raise
        return _failed(DiskError.exit_code, _SHORT, argv, as_json, out, err)
    except KeyboardInterrupt:
        return _failed(INTERRUPTED, _ADVICE, argv, as_json, out, err)
    text = "\n".join(answer.lines)
    out(_spelled(answer.value) if as_json else text if answer.script else shown(text))
    return answer.code


def _answer_of(command: str) -> str:
    return f"answer_{command.replace('-', '_')}"


def quiet(context: CommandContext) -> CommandContext:
    """Return ``context`` with ``say`` and progress silenced: answers, questions and errors stay."""

    def nobody(*_: object) -> None:
        """Ignore the message."""

    connect = context.connect
    return replace(context, say=nobody, connect=lambda: replace(connect(), progress=nobody, say=nobody))


def _failed(code: int, message: str, argv: Sequence[str], as_json: bool, out: Print, err: Print) -> int:
    err(f"ortpacks: {message}")
    if as_json:
        out(_spelled({**head(_command_of(argv) or ""), "error": {"code": code, "message": message}}))
    return code


def _spelled(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2)  # ASCII: the same in every encoding


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
        release = _RELEASE.search(_default_index() or "")
        of_which = f"of the release {release[1]}" if release else "of no release"
        raise HelpError(f"ortpacks {__version__} {of_which}, with Python {sys.version.split()[0]}")


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments.

    Raises ``ConfigError`` for wrong arguments, ``HelpError`` for ``--help`` and for no arguments.
    """
    return _parser().parse_args(argv or ["--help"])


def _command_of(argv: Sequence[str]) -> Optional[str]:
    """Return the first word of ``argv`` that is a command; ``None`` where no word is."""
    return next((word for word in argv if word in COMMANDS), None)


def _options(
    arguments: argparse.Namespace, env: Mapping[str, str], home: Path, platform: str
) -> ClientOptions:
    """Return the options that the arguments, the environment and the defaults give."""
    given = vars(arguments)
    prefix: Path = given.get("prefix") or default_prefix(env, home)
    if arguments.command in _LISTED:
        _require_one_folder(absolute(prefix), platform)
    return ClientOptions(
        prefix=Prefix(_one_line(absolute(prefix))),
        index=_index(given, env) if arguments.command in _READ_INDEX and not given.get("installed") else None,
        variant=given.get("variant"),
        device=given.get("device"),
        dialect=given.get("shell"),
        as_json=given["json"],
        layout=None if given.get("layout") == AUTO else given.get("layout"),
        look_in=tuple(_look_in(given.get("look_in") or [], env)),
        wheels=tuple(_folders(given.get("wheels") or [])),
        offline=given.get("offline") is not None,
        unsigned=bool(given.get("trust_unsigned")),
        check=bool(given.get("check")),
        root=None if given.get("trust_unsigned") else _shipped("root.json"),
        ask=not (given.get("yes") or given["json"]),
        explain=bool(given.get("explain")),
        local=bool(given.get("installed")),
        old=bool(given.get("old")),
        models=tuple(given.get("try") or ()),
        table=given.get("models"),
        said=given.get("said"),
    )


def _path(text: str) -> Path:
    """Return ``text`` as a path.

    Raises ``ArgumentTypeError`` for an empty text, which an unset shell variable gives: as a path it would be
    the current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _text(text: str) -> str:
    """Return ``text``. Raises ``ArgumentTypeError`` where it is empty."""
    if not text:
        raise argparse.ArgumentTypeError("nothing is named")
    return text


def _require_one_folder(prefix: Path, platform: str) -> None:
    """Raise ``ValidationError`` where the loader would split the prefix into several folders."""
    apart = next((char for char in separators(platform) if char in str(prefix)), None)
    if apart:
        raise ValidationError(
            f"--prefix {prefix}: {library_path(platform)} would take it for two folders.",
            advice=f"Choose one without {apart!r} in its name.",
        )


def _one_line(prefix: Path) -> Path:
    """Return ``prefix``. Raises ``ValidationError`` for a line break, which ``env`` cannot write."""
    if set(str(prefix)) & set("\r\n"):
        raise ValidationError(f"--prefix {str(prefix)!r} holds a line break. Choose another folder.")
    return prefix


def _index(given: Mapping[str, object], env: Mapping[str, str]) -> Union[str, Path, None]:
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
    data = _shipped("default_index.txt")
    return data.decode().strip() if data else None


def _shipped(name: str) -> Optional[bytes]:
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
        raise ConfigError(
            f"--mirror {without_userinfo(base)}: a URL is wanted, http, https or oci. --index also takes "
            "folders."
        )
    release = _RELEASE.search(default or "")
    apart = ":" if is_oci(base) else "/"
    return str(place(f"{base.rstrip('/')}{apart}{release[1] if release else 'latest'}/{INDEX}"))


def _offline(text: str) -> Path:
    """Return the folder or archive of ``--offline``. Raises ``ConfigError`` where it does not exist."""
    path = None if is_url(text) else absolute(Path(text))
    if path is None or not path.exists():
        raise ConfigError(f"--offline {text}: a folder with index.json, or a package's archive, is wanted.")
    return path


def place(text: str) -> Union[str, Path]:
    """Return the URL or absolute path that ``text`` names. Raises ``ConfigError`` for a malformed address.

    The URL of a folder, or of a release in a registry, becomes the URL of its index. A fragment stays.
    """
    if not is_url(text):
        return absolute(Path(text))
    address, _, pin = text.partition("#")
    if is_oci(address):
        address = _index_in_registry(address)
    elif address.endswith("/"):
        address = urljoin(address, INDEX)
    return f"{address}#{pin}" if pin else address


def _index_in_registry(address: str) -> str:
    """Return the address of the index of the release at ``address``. Raises ``ConfigError``."""
    release = address.rstrip("/").removesuffix(f"/{INDEX}")
    parse_address(release)
    return file_address(release, INDEX)


def is_url(text: str) -> bool:
    """Return whether ``text`` is an http, https or oci URL. Raises ``ConfigError`` for a malformed URL."""
    try:
        return urlsplit(text).scheme in {"http", "https", "oci"}
    except ValueError as error:
        raise ConfigError(
            f"{without_userinfo(text)}: not a URL.", advice="Write it like https://HOST/PATH."
        ) from error


def _look_in(given: Sequence[Path], env: Mapping[str, str]) -> Iterator[Path]:
    yield from map(absolute, given)
    named = env.get("ORTPACKS_LOOK_IN", "").split(os.pathsep)
    yield from (absolute(Path(name)) for name in named if name)


def _folders(given: Sequence[Path]) -> List[Path]:
    folders = [absolute(path) for path in given]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--wheels {folder}: no such folder.", advice="Check the path.")
    return folders


def _parser() -> argparse.ArgumentParser:
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
    for name, (_, text) in COMMANDS.items():
        sentence = f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(
            name,
            usage=f"ortpacks {name} [flags]",
            description=sentence,
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
    if name in _READ_INDEX:
        _add_sources(command)
    if name in _CHOOSE:
        command.add_argument(
            "--variant", metavar="NAME", help="take this variant, or package, whatever the GPU"
        )
        command.add_argument("--device", metavar="N|UUID", help="choose for these GPUs only, commas between")


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


_LOOK_IN = "an environment with NVIDIA's libraries, or several"

_WHEELS = "a folder with NVIDIA's wheels, or several"

_MODELS = "your own table of models instead of the release's"

_TRY = "open this model, or with more flags a smaller one"

_SAID = "an application's error: say what it means here"

_TRY_MODEL = "open this model in the package too; may be repeated"
