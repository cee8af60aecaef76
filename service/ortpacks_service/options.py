"""The command line of the service; the environment has the values of flags that are not given."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

EMBEDDER, DETECTOR = "all-MiniLM-L6-v2", "silero_vad"
"""Names of the models of ``/embed`` and ``/vad``: folders in ``--models``."""


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


def read_options(arguments: Sequence[str] | None, env: Mapping[str, str]) -> Options:
    """Return the options. A wrong one ends the process with exit code 2 and a message."""
    given = _parser(sys.argv[1:] if arguments is None else arguments, env).parse_args(arguments)
    return Options(**{field.name: getattr(given, field.name) for field in fields(Options)})


def _parser(arguments: Sequence[str], env: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ortpacks_service",
        description="Provider, device and level: ORTPACKS_PROVIDER, ORTPACKS_DEVICE, ORTPACKS_LEVEL, "
        "or the table ai of config.toml.",
    )

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
    flag(
        "models",
        "models",
        _folders,
        f"a folder of models, each a folder with a model.onnx; several with {os.pathsep!r} between them",
    )
    flag("data", "data", _path, "where the store of /add and /search lies")
    flag("batch", "32", _count, "texts that are computed at once, at most")
    flag("queue", "1024", _count, "texts that may wait; more are answered with 503")
    flag("texts", "1024", _count, "texts that one request may have")
    flag("body-mib", "32", _count, "MiB that a request's body may have")
    flag("seconds", "30", _count, "seconds that a request may take")
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
