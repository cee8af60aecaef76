"""Which function answers which command.

A command's module is imported when it is asked for: what a ``.pyz`` holds is compiled at each start, and
``env`` in a shell's start-up should not wait for what ``install`` needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Callable, Mapping, cast

from builder.client.world import Answer, Options, World

Command = Callable[[World, Options], Answer]


def _later(module: str, name: str) -> Command:
    """``name`` of ``builder.client.<module>``, imported at the call."""

    def answer(world: World, options: Options) -> Answer:
        command = cast("Command", getattr(import_module(f"builder.client.{module}"), name))
        return command(world, options)

    return answer


COMMANDS: Mapping[str, Command] = {
    "detect": _later("seeing", "answer_detect"),
    "list": _later("keeping", "answer_list"),
    "select": _later("looking", "answer_select"),
    "install": _later("installing", "answer_install"),
    "verify": _later("using", "answer_verify"),
    "env": _later("using", "answer_env"),
    "doctor": _later("doctor", "answer_doctor"),
    "recommend": _later("recommending", "answer_recommend"),
    "rollback": _later("keeping", "answer_rollback"),
    "uninstall": _later("keeping", "answer_uninstall"),
}
