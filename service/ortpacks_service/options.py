"""The command line of the service; the environment has the values of flags that are not given."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from ortpacks_service import VERSION

EMBEDDER, DETECTOR = "all-MiniLM-L6-v2", "silero_vad"
"""Names of the models of ``/embed`` and ``/vad``: folders in ``--models``."""

STORE = "store"
"""The word for the store in ``--required``; no folder of a model has it."""

API_KEY = "ORTPACKS_API_KEY"
"""The variable with the keys; there is no flag, since every user of a machine sees its command lines."""

OPEN = "open"

_COUNT = click.IntRange(1, 999_999_999)


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
    name = "python -m ortpacks_service"
    more = "Provider, device and level: ORTPACKS_PROVIDER, ORTPACKS_DEVICE, ORTPACKS_LEVEL, or config.toml."
    try:
        made = partial(Options, api_key=_keys(env.get(API_KEY)))
        command = click.Command(name, callback=made, params=_flags(), help=more)
        click.version_option(VERSION, prog_name="ortpacks-service", message="%(prog)s %(version)s")(command)
        words = sys.argv[1:] if arguments is None else arguments  # which click does not expand, on Windows
        given = command.main(words, name, standalone_mode=False, obj=env)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    return given if isinstance(given, Options) else sys.exit(given)  # after --help and --version


class _Flag(click.Option):
    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the variable's value; Kubernetes sets some to an address for a Service named ortpacks."""
        given: str = ctx.obj.get(self.envvar, "")
        return None if given.startswith("tcp://") else given or None


def _flags() -> list[click.Parameter]:
    def flag(name: str, default: str, kind: Any, what: str) -> click.Option:
        """``kind`` is a type of click, or a function of the text."""
        variable = f"ORTPACKS_{name.upper().replace('-', '_')}"
        named = getattr(kind, "__name__", "").strip("_").upper() or None
        made = partial(_Flag, [f"--{name}"], default=default, type=kind, help=what, envvar=variable)
        return made(metavar=named, show_default=True, show_envvar=True)

    return [
        flag("host", "127.0.0.1", _address, "the address to listen on"),
        flag("port", "9900", click.IntRange(1, 65535), "the port to listen on"),
        flag("models", "models", _folders, f"a folder of models' folders; {os.pathsep!r} between several"),
        flag("data", "data", _path, "where the store of /add and /search lies"),
        flag("batch", "32", _COUNT, "texts that are computed at once, at most"),
        flag("queue", "1024", _COUNT, "texts that may wait; more are answered with 503"),
        flag("texts", "2048", _COUNT, "texts that one request may have"),
        flag("body-mib", "32", _COUNT, "MiB that a request's body may have"),
        flag("seconds", "30", _COUNT, "seconds that a request may take"),
        flag("memory-mib", "auto", _memory, "MiB for the process; auto: the container's limit, else all"),
        flag("keep-alive", "75", _COUNT, "seconds that a connection may be idle between two requests"),
        flag("allowed-hosts", "", _hosts, "names of the service besides localhost, --host and IPs; *: any"),
        flag("aliases", "", _names, "more names for the embedding model"),
        flag("required", "", _names, f"what /readyz needs; empty: the embedding model and {STORE!r}"),
        flag("metrics", "key", click.Choice(["key", OPEN]), "whether /metrics needs the key, or is open"),
    ]


def _address(text: str) -> str:
    if not text or not text.isascii():  # sockets take an empty one for every address of the machine
        raise click.BadParameter(f"{text!r}: an address or a host's name is wanted")
    return text


def _memory(text: str) -> int | None:
    return None if text == "auto" else int(_COUNT(text))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _hosts(text: str) -> frozenset[str]:
    names = frozenset(name.lower() for name in _names(text))
    for name in names:
        if not re.fullmatch(r"\*|(\*\.)?[a-z0-9_.-]+", name):
            raise click.BadParameter(f"{name!r}: hosts without scheme or port are wanted, as a.b,*.c")
    return names


def _keys(text: str | None) -> tuple[bytes, ...]:
    """Return the keys with commas between them. Nothing in a variable that is set protects nothing."""
    keys, why = _names(text or ""), ""
    if text is not None and not keys:
        why = "it is set, but empty. Unset it, or give a key."
    elif not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        why = "keys of printable ASCII without spaces are wanted, commas between"
    if why:
        raise click.BadParameter(why, param_hint=API_KEY)
    return tuple(key.encode() for key in keys)


def _path(text: str) -> Path:
    if not text:  # Python takes it for the current folder
        raise click.BadParameter("a folder is wanted, not an empty text")
    if re.search("[\ud800-\udfff]", text):  # neither SQLite nor ONNX Runtime takes such a path
        raise click.BadParameter(f"{text!r}: a path in UTF-8 is wanted")
    return Path(text).absolute()


def _folders(text: str) -> tuple[Path, ...]:
    return tuple(map(_folder, text.split(os.pathsep)))


def _folder(text: str) -> Path:
    folder = _path(text)
    try:
        list(folder.iterdir())
    except PermissionError as error:
        why = "may not be read by the user that runs the service. Open it, or name another."
        raise click.BadParameter(f"{folder} {why}") from error
    except OSError as error:
        why = "is no folder" if folder.exists() else "does not exist"
        do = "`./run service` of ortpacks makes dist/models; name it."
        raise click.BadParameter(f"{folder} {why}. {do}") from error
    return folder
