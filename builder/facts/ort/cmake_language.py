"""The grammar of CMake's language: the commands of a file. Source: CMake's manual, ``cmake-language(7)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from builder.errors import ParseError

_ADVICE = "Name another version of ONNX Runtime in variants.yaml."

_TOKENS = re.compile(
    r"#\[(?P<c>=*)\[.*?\](?P=c)\](?P<comment>)|#[^\n]*"
    r"|\[(?P<b>=*)\[\n?(?P<bracket>.*?)\](?P=b)\]"
    r'|"(?P<quoted>(?:[^"\\]|\\.)*)"'
    r"|(?P<paren>[()])"
    r"|(?P<word>(?:\$\{[^}]*\}|\\.|\"(?:[^\"\\]|\\.)*\"|[^\s()#\"\\])+)",
    re.DOTALL,
)

_BLOCKS = {"foreach": "endforeach", "while": "endwhile", "function": "endfunction", "macro": "endmacro"}


class Argument(NamedTuple):
    """An argument of a command."""

    text: str
    is_quoted: bool
    is_raw: bool = False
    """Whether it is in brackets, where neither references nor escapes have a meaning."""


@dataclass(frozen=True, order=True)
class SourceLine:
    """A line of a source."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Command:
    """A command as its file has it."""

    name: str
    """Its name in lower case."""
    arguments: tuple[Argument, ...]
    file: str
    line: int

    @property
    def place(self) -> SourceLine:
        """The line where it begins."""
        return SourceLine(self.file, self.line)


def commands_in(text: str, file: str) -> list[Command]:
    """Return the commands of a CMake file, in order. Raises ``ParseError`` with the line of a broken one."""
    commands: list[Command] = []
    arguments: list[Argument] = []
    name, line, depth, end = "", 1, 0, 0
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup or "comment"
        is_misplaced = depth == 0 and kind not in {"comment", "paren" if name else "word"}
        if text[end : token.start()].strip() or is_misplaced:
            break
        end = token.end()
        if kind == "comment":
            continue
        depth += {"(": 1, ")": -1}.get(token["paren"] or "", 0)
        if kind == "word" and not name:
            name, line, arguments = token["word"].lower(), text.count("\n", 0, token.start()) + 1, []
        elif depth == 0:
            commands.append(Command(name, tuple(arguments), file, line))
            name = ""
        elif (depth, token["paren"]) != (1, "("):
            is_raw = kind == "bracket"
            arguments.append(Argument(token[kind], is_quoted=is_raw or kind == "quoted", is_raw=is_raw))
    if name or text[end:].strip():
        raise ParseError(
            f"{file}:{line} is not understood",
            cause="no whole command of CMake's language begins in this line",
            advice=_ADVICE,
        )
    return commands


def length_of_block(commands: Sequence[Command], start: int) -> int:
    """Return how many commands after ``start`` belong to its block, its end included; 0 if it opens none.

    Raises ``ParseError`` for a block without an end.
    """
    opening = commands[start].name
    closing = _BLOCKS.get(opening)
    if closing is None:
        return 0
    depth = 0
    for number, command in enumerate(commands[start:]):
        depth += (command.name == opening) - (command.name == closing)
        if depth == 0:
            return number
    raise ParseError(f"{commands[start].place}: {opening} has no {closing}", advice=_ADVICE)
