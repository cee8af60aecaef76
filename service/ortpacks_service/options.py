"""The command line of the service; the environment has the values of flags that are not given."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from ortpacks_service import VERSION

EMBEDDER, DETECTOR = "all-MiniLM-L6-v2", "silero_vad"
"""Names of the models of ``/embed`` and ``/vad``: folders in ``--models``."""

STORE = "store"
"""The word for the store in ``--required``; no folder of a model has it."""

API_KEY = "ORTPACKS_API_KEY"
"""The variable with the keys; there is no flag, since every user of a machine sees its command lines."""

OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags that the service is started with."""

    host: str
    port: int
    models: tuple[Path, ...]
    data: Path
    batch: int
    queue: int
    texts: int
    body_mib: int
    seconds: int
    memory_mib: int | None
    """``None``: the container's limit, else what is free."""
    keep_alive: int
    allowed_hosts: frozenset[str]
    aliases: tuple[str, ...]
    required: tuple[str, ...]
    metrics: str
    api_key: tuple[bytes, ...] = field(repr=False)
    """The keys of which each request needs one; empty: none is needed."""


def read_options(arguments: Sequence[str] | None, env: Mapping[str, str]) -> Options:
    """Return the options. A wrong one ends the process with exit code 2 and a message."""
    parser = _parser(sys.argv[1:] if arguments is None else arguments, env)
    try:
        parser.set_defaults(api_key=_keys(env.get(API_KEY)))
    except argparse.ArgumentTypeError as error:
        parser.error(f"{API_KEY}: {error}")
    given = parser.parse_args(arguments)
    return Options(**{field.name: getattr(given, field.name) for field in fields(Options)})


def _parser(arguments: Sequence[str], env: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ortpacks_service",
        description="Provider, device and level: ORTPACKS_PROVIDER, ORTPACKS_DEVICE, ORTPACKS_LEVEL, "
        "or the table ai of config.toml.",
    )

    parser.add_argument("--version", action="version", version=f"ortpacks-service {VERSION}")

    def flag(name: str, default: str, kind: Callable[[str], object], what: str) -> None:
        variable = f"ORTPACKS_{name.upper().replace('-', '_')}"
        given = env.get(variable) or default
        if given.startswith("tcp://"):  # set by Kubernetes for a Service named ortpacks
            given = default
        try:
            kind(given)
        except argparse.ArgumentTypeError as error:
            if variable in env and not any(
                argument.partition("=")[0] == f"--{name}" for argument in arguments
            ):
                parser.error(f"{variable}: {error}")
        parser.add_argument(
            f"--{name}",
            type=kind,
            default=given,
            metavar=kind.__name__.strip("_").upper(),
            help=f"{what} (default: {variable}, else {default})",
        )

    flag("host", "127.0.0.1", _address, "the address to listen on")
    flag("port", "9900", _port, "the port to listen on")
    flag("models", "models", _folders, f"a folder of models' folders; {os.pathsep!r} between several")
    flag("data", "data", _path, "where the store of /add and /search lies")
    flag("batch", "32", _count, "texts that are computed at once, at most")
    flag("queue", "1024", _count, "texts that may wait; more are answered with 503")
    flag("texts", "2048", _count, "texts that one request may have")
    flag("body-mib", "32", _count, "MiB that a request's body may have")
    flag("seconds", "30", _count, "seconds that a request may take")
    flag("memory-mib", "auto", _memory, "MiB that the process may use; auto: the container's limit, else all")
    flag("keep-alive", "75", _count, "seconds that a connection may be idle between two requests")
    flag("allowed-hosts", "", _hosts, "names of the service besides localhost, --host and IPs; *: any")
    flag("aliases", "", _names, "more names for the embedding model")
    flag("required", "", _names, f"what /readyz needs; empty: the embedding model and {STORE!r}")
    flag("metrics", "key", _metrics, f"whether /metrics needs the key ('key'), or is {OPEN!r}")
    return parser


def _address(text: str) -> str:
    if not text or not text.isascii():  # sockets take an empty one for every address of the machine
        raise argparse.ArgumentTypeError(f"{text!r}: an address or a host's name is wanted")
    return text


def _port(text: str) -> int:
    value = _count(text)
    if value > 65535:  # noqa: PLR2004 - the highest port
        raise argparse.ArgumentTypeError(f"{text}: a port from 1 to 65535 is wanted")
    return value


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) == 0:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number above 0 is wanted")
    return int(text)


def _memory(text: str) -> int | None:
    return None if text == "auto" else _count(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _hosts(text: str) -> frozenset[str]:
    names = frozenset(name.lower() for name in _names(text))
    for name in names:
        if not re.fullmatch(r"\*|(\*\.)?[a-z0-9_.-]+", name):
            raise argparse.ArgumentTypeError(f"{name!r}: hosts without scheme or port are wanted, as a.b,*.c")
    return names


def _metrics(text: str) -> str:
    if text not in ("key", OPEN):
        raise argparse.ArgumentTypeError(f"{text!r}: key or {OPEN} is wanted")
    return text


def _keys(text: str | None) -> tuple[bytes, ...]:
    """Return the keys with commas between them. Nothing in a variable that is set protects nothing."""
    keys = () if text is None else _names(text)
    if text is not None and not keys:
        raise argparse.ArgumentTypeError("it is set, but empty. Unset it, or give a key.")
    if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        raise argparse.ArgumentTypeError("keys of printable ASCII without spaces are wanted, commas between")
    return tuple(key.encode() for key in keys)


def _path(text: str) -> Path:
    if not text:  # Python takes it for the current folder
        raise argparse.ArgumentTypeError("a folder is wanted, not an empty text")
    if re.search("[\ud800-\udfff]", text):  # neither SQLite nor ONNX Runtime takes such a path
        raise argparse.ArgumentTypeError(f"{text!r}: a path in UTF-8 is wanted")
    return Path(text).absolute()


def _folders(text: str) -> tuple[Path, ...]:
    return tuple(map(_folder, text.split(os.pathsep)))


def _folder(text: str) -> Path:
    folder = _path(text)
    try:
        list(folder.iterdir())
    except PermissionError as error:
        raise argparse.ArgumentTypeError(
            f"{folder} may not be read by the user that runs the service. Open it, or name another."
        ) from error
    except OSError as error:
        why = "is no folder" if folder.exists() else "does not exist"
        raise argparse.ArgumentTypeError(
            f"{folder} {why}. `./run service` of ortpacks makes dist/models; name it."
        ) from error
    return folder
