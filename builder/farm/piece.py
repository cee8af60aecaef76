#!/usr/bin/python3 -IS
"""This program makes a piece of a CUDA unit: ccache runs it in a compiler's place, for ``nvcc.py``.

A unit has up to 17 pieces. So the program has few imports, and starts in a third of the time of ``nvcc.py``.
"""

from __future__ import annotations

import json
import os
import re
import sys

PIECE = "PIECE"
"""The environment variable with a piece as JSON."""

_DISABLE = "CCACHE_DISABLE"
"""ccache's variable, which concerns whole units only."""


class CommandFailedError(Exception):
    """A command failed; ``status`` is the exit status for this process."""

    def __init__(self, status: int) -> None:
        """``status`` is the command's exit status, or minus the number of the signal that ended it."""
        super().__init__(f"exit status {status}")
        self.status = status if status > 0 else 128 - status


def main(argv: list[str]) -> int:
    """Make the piece, which ccache wants as the file after ``-o``. Return a failed command's status, else 0.

    The file after ``-MF`` gets the files that the piece was made from.
    """
    piece = json.loads(os.environ[PIECE])
    output = after(argv, "-o")
    headers = f"{output}.headers"
    try:
        for command in piece["commands"]:
            run([*command, "-MD", "-MF", headers] if {"-E", "-c"} & set(command) else command)
    except CommandFailedError as error:
        return error.status
    read = prerequisites([headers] if os.path.exists(headers) else [])
    outside = [file for file in read if not file.startswith(os.path.dirname(output))]
    write_rule(after(argv, "-MF"), output, [*outside, *piece["inputs"]])
    os.rename(piece["made"], output)
    return 0


def run(command: list[str], variables: dict[str, str] | None = None, *, quiet: bool = False) -> None:
    """Run a command with more environment variables, ``quiet`` without its messages.

    Raises ``CommandFailedError``.
    """
    ours = {name: value for name, value in os.environ.items() if name not in {PIECE, _DISABLE}}
    silence = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)] if quiet else []
    child = os.posix_spawnp(command[0], command, {**ours, **(variables or {})}, file_actions=silence)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        import signal  # noqa: PLC0415 - only a failure needs it

        what = f"died due to signal {-status} ({signal.strsignal(-status)})"
        print(f"nvcc: {os.path.basename(command[0])} {what}", file=sys.stderr)
    if status:
        raise CommandFailedError(status)


def after(words: list[str], option: str) -> str:
    """Return the word after ``option``; empty without that option."""
    return words[words.index(option) + 1] if option in words else ""


def prerequisites(files: list[str]) -> list[str]:
    """Return the prerequisites that dependency files name, each once, in their order and spelling."""
    words: list[str] = []
    for name in files:
        with open(name, encoding="utf-8") as file:
            words += re.split(r"(?<!\\)\s+", file.read().replace("\\\n", " "))
    return list(dict.fromkeys(word for word in words if word and not word.endswith(":")))


def write_rule(name: str, target: str, files: list[str]) -> None:
    """Write the dependency file ``name``: ``target`` was made from ``files``."""
    with open(name, "w", encoding="utf-8") as file:
        file.write(f"{target}: {' '.join(files)}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
