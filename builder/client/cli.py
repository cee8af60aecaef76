"""The client's command line turns arguments into an answer, as text or JSON, and an exit code.

A command's module is imported only when the command runs. Python compiles the modules of a ``.pyz`` at each
start, and ``env`` in a shell's start-up must not wait for the modules that ``install`` needs.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Sequence

from builder.client.arguments import AUTO, COMMANDS, HelpError, index_address, parsed, shipped
from builder.client.commands.environment import library_path, separators
from builder.client.context import CommandAnswer, CommandContext, ReleaseSource, Wish
from builder.client.install.prefix import Prefix, default_prefix, state_folder
from builder.errors import BuilderError, ConfigError, DiskError, ValidationError, os_error
from builder.files.disk import absolute
from builder.formats.text import commandless, printable, redacted_message, shown, wrapped

FORMAT = 1
"""The version of every JSON answer."""

INTERRUPTED = 130

_ADVICE = "interrupted; run it again to go on"

_NO_THREAD = "can't start new thread"
"""The message of ``threading``'s ``RuntimeError`` when the system starts no thread."""

_SHORT = (
    "The system gives this process no more memory or threads. Raise the limit (ulimit -v, ulimit -u; of a "
    "container --memory, --pids-limit) and run it again to go on."
)

_LISTED = {"install", "env"}
"""The commands whose prefix becomes part of a list of folders, which a separator in its name would break."""

Print = Callable[[str], None]


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
        named = f"answer_{arguments.command.replace('-', '_')}"
        command: Callable[..., CommandAnswer] = getattr(
            import_module(f"builder.client.commands.{module}"), named
        )
        if arguments.json or vars(arguments).get("yes"):
            context = replace(context, confirm=None)
        given = _given(arguments, env, home, context.platform)
        answer = command(context, **{name: given[name] for name in list(signature(command).parameters)[1:]})
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
    text = "\n".join(answer.lines if answer.script else map(printable, answer.lines))
    if context.columns and not answer.script:
        text = wrapped(text, context.columns)
    as_text = text if answer.script else shown(text)
    out(_json_text(arguments.command, answer.value) if as_json else as_text)
    return answer.code


def quiet(context: CommandContext) -> CommandContext:
    """Return ``context`` with ``say`` and progress silenced: answers, questions and errors stay."""

    def nobody(*_: object) -> None:
        """Ignore the message."""

    connect = context.connect
    return replace(context, say=nobody, connect=lambda: replace(connect(), progress=nobody, say=nobody))


def _failed(code: int, message: str, argv: Sequence[str], as_json: bool, out: Print, err: Print) -> int:
    message = redacted_message(message)
    err(f"ortpacks: {message}")
    if as_json:
        command = next((word for word in argv if word in COMMANDS), "")
        out(_json_text(command, {"error": {"code": code, "message": message}}))
    return code


def _json_text(command: str, value: Mapping[str, object]) -> str:
    whole = {"format": FORMAT, "command": command, **value}
    return commandless(json.dumps(whole, indent=2))  # ASCII: the same in every encoding


def _given(
    arguments: argparse.Namespace, env: Mapping[str, str], home: Path, platform: str
) -> Mapping[str, object]:
    """Return what commands take, by parameter, from the arguments, the environment and the defaults."""
    given, command = vars(arguments), arguments.command
    prefix = Prefix(_checked(absolute(given.get("prefix") or default_prefix(env, home)), command, platform))
    index = index_address(given, env) if "index" in given and not given.get("installed") else None
    unsigned = bool(given.get("trust_unsigned"))
    values: Dict[str, object] = {
        "prefix": prefix,
        "release": ReleaseSource(
            index,
            prefix,
            root=None if unsigned else shipped("root.json"),
            first_root=shipped("1.root.json"),
            state=state_folder(env, home),
            unsigned=unsigned,
        ),
        "wish": Wish(*(given.get(name) for name in ("variant", "device", "models", "host", "form"))),
        "as_json": given["json"],
        "layout": None if given.get("layout") == AUTO else given.get("layout"),
        "look_in": tuple(_look_in(given.get("look_in") or [], env)),
        "wheels": tuple(_folders(given.get("wheels") or [])),
        "offline": given.get("offline") is not None,
        "models": tuple(given.get("try") or ()),
    }
    return {**given, **values}


def _checked(prefix: Path, command: str, platform: str) -> Path:
    """Return ``prefix``.

    Raises ``ValidationError`` for a line break, which ``env`` cannot write, and where the loader would split
    the prefix of ``command`` into several folders.
    """
    if set(str(prefix)) & set("\r\n"):
        raise ValidationError(f"--prefix {str(prefix)!r} holds a line break. Choose another folder.")
    apart = next((char for char in separators(platform) if char in str(prefix)), None)
    if apart and command in _LISTED:
        raise ValidationError(
            f"--prefix {prefix}: {library_path(platform)} would read it as two folders.",
            advice=f"Choose one without {apart!r} in its name.",
        )
    return prefix


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
