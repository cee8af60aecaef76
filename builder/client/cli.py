"""The command line: arguments in, text or JSON out, an exit code back.

A command's module is imported when the command runs: Python compiles what a ``.pyz`` holds at each start, and
``env`` in a shell's start-up should not wait for what ``install`` needs.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Callable, Mapping, Sequence, cast

from builder.client import flags
from builder.client.world import ClientOptions, CommandAnswer, World, head
from builder.errors import BuilderError, os_error

INTERRUPTED = 130

_ADVICE = "interrupted; run it again to go on"

Print = Callable[[str], None]


def main(argv: Sequence[str], world: World, home: Path, out: Print, err: Print) -> int:
    """Run one command and return its exit code; ``SystemExit`` for ``--help``.

    With ``--json`` whatever happens is one JSON document on ``out``; an error is told on ``err`` as well.
    """
    as_json = "--json" in argv
    try:
        arguments = flags.parsed(argv)
        answer = COMMANDS[arguments.command](world, flags.options(arguments, world.around.env, home))
    except BuilderError as error:
        return _failed(error.exit_code, str(error), argv, as_json, out, err)
    except OSError as error:
        told = os_error(error)
        return _failed(told.exit_code, str(told), argv, as_json, out, err)
    except KeyboardInterrupt:
        return _failed(INTERRUPTED, _ADVICE, argv, as_json, out, err)
    out(_spelled(answer.value) if as_json else "\n".join(answer.lines))
    return answer.code


def _failed(code: int, message: str, argv: Sequence[str], as_json: bool, out: Print, err: Print) -> int:
    err(f"ortpacks: {message}")
    if as_json:
        out(_spelled({**head(flags.command_of(argv) or ""), "error": {"code": code, "message": message}}))
    return code


def _spelled(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


Command = Callable[[World, ClientOptions], CommandAnswer]


def _later(module: str, name: str) -> Command:
    """``name`` of ``builder.client.commands.<module>``, imported at the call."""

    def answer(world: World, options: ClientOptions) -> CommandAnswer:
        command = cast("Command", getattr(import_module(f"builder.client.commands.{module}"), name))
        return command(world, options)

    return answer


COMMANDS: Mapping[str, Command] = {
    "detect": _later("show_gpus", "answer_detect"),
    "list": _later("manage", "answer_list"),
    "select": _later("select_package", "answer_select"),
    "install": _later("install", "answer_install"),
    "verify": _later("environment", "answer_verify"),
    "env": _later("environment", "answer_env"),
    "doctor": _later("doctor", "answer_doctor"),
    "recommend": _later("recommend", "answer_recommend"),
    "rollback": _later("manage", "answer_rollback"),
    "uninstall": _later("manage", "answer_uninstall"),
}
