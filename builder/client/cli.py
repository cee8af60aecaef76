"""The command line: arguments in, text or JSON out, an exit code back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable, Mapping, Sequence

from builder.client import flags
from builder.client.answers import COMMANDS
from builder.client.world import World, head
from builder.errors import BuilderError, DiskError

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
        message = f"{error.filename or 'the system'}: {error.strerror or error}"
        return _failed(DiskError.exit_code, message, argv, as_json, out, err)
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
