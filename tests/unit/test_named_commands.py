"""Tests that every command in a message or page exists, with the flags it is shown with.

The tests read the string literals of ``builder/`` and ``tasks.py``, the script ``run``, templates and pages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.program import Program

import tasks
from builder.client import cli

LEAST_COMMANDS = 100
"""Least number of commands that the search must find: a broken search would find none and pass."""

_BUILDER = re.compile(r"\./run[ ]+(?P<words>[^\n`\"'#|;)(]*)")

_CLIENT = re.compile(r"(?:python3? (?:\S+/)?ortpacks\.pyz|`ortpacks)[ ]+(?P<words>[^\n`\"'#|;)(]*)")

_SHORT = re.compile(r"\bRun `(?!git )(?P<words>[a-z][^`]*)`")
"""Pattern of commands in the client's own messages."""

_FLAG = re.compile(r"(?<!\S)--?[a-z][a-z-]*")

_SENTENCE = re.compile(r"\.\s|: ")
"""Pattern of the end of a command in a line of prose."""

_CORE = {"--list", "--help", "--no-engine-install"}

Flags = Mapping[str, frozenset[str]]


@pytest.fixture(scope="module")
def verbs() -> Flags:
    """Return the flags of each verb, as Invoke spells them."""
    program = Program()
    core = {name for argument in program.core_args() for name in argument.names}
    shared = {f"--{name}" for name in core}
    return {
        context.name or "": frozenset(context.flags) | shared
        for context in Collection.from_module(tasks).to_contexts()
    }


@pytest.fixture
def commands() -> Flags:
    """Return the flags of each of the client's commands, as its help lists them."""
    found = {}
    for name in cli.COMMANDS:
        with pytest.raises(cli.HelpError) as wanted:
            cli.parsed([name, "--help"])
        found[name] = frozenset(_FLAG.findall(str(wanted.value).replace("[", " ").replace(",", " ")))
    return found


def literals(path: Path) -> Iterator[str]:
    """Yield a module's string literals, docstrings too; an f-string's values are replaced by X."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for one in formatted:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in one.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def texts(root: Path) -> Iterator[tuple[str, str]]:
    """Yield every text with the path of its file."""
    for path in (*sorted((root / "builder").rglob("*.py")), root / "tasks.py"):
        for text in literals(path):
            yield str(path.relative_to(root)), text
    pages = ("*.md", "docs/**/*.md", "docs/results/*", "templates/*", "run", ".github/workflows/*.yml")
    for path in sorted(path for pattern in pages for path in root.glob(pattern) if path.is_file()):
        yield str(path.relative_to(root)), path.read_text(encoding="utf-8")


def wrong(words: str, known: Flags) -> Iterator[str]:
    """Yield each part of a command that does not exist; yield none for the program's name alone."""
    command = _SENTENCE.split(words)[0].split()
    if not command or command[0] in _CORE or not re.fullmatch(r"[a-z][a-z-]*[.,:]?", command[0]):
        return
    verb = command[0].rstrip(".,:")
    if verb not in known:
        yield f"there is no {verb}"
        return
    for flag in flags_of(command):
        if flag not in known[verb]:
            yield f"{verb} has no {flag}"


def flags_of(command: Sequence[str]) -> Iterator[str]:
    for word in command:
        found = _FLAG.match(word)
        if found:
            yield found[0]


def named(root: Path, pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return the file and the words of every command that the pattern finds."""
    return [(where, found["words"]) for where, text in texts(root) for found in pattern.finditer(text)]


def test_the_builders_commands_are_there(root: Path, verbs: Flags) -> None:
    found = named(root, _BUILDER)
    assert len(found) > LEAST_COMMANDS
    assert [f"{where}: ./run {words}: {what}" for where, words in found for what in wrong(words, verbs)] == []


def test_the_clients_commands_are_there(root: Path, commands: Flags) -> None:
    found = [*named(root, _CLIENT), *named(root, _SHORT)]
    assert len(found) > 10
    assert [f"{where}: {words}: {what}" for where, words in found for what in wrong(words, commands)] == []


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        ("lint", ["there is no lint"]),
        ("lint.", ["there is no lint"]),
        ("build --variant legacy --bse nvidia", ["build has no --bse"]),
        ("build --variant legacy --base nvidia", []),
        ("build. Then pass --allow-lean", []),
        ("--list", []),
        ("", []),
    ],
)
def test_a_command_that_is_not_there_is_seen(words: str, problems: list[str], verbs: Flags) -> None:
    assert list(wrong(words, verbs)) == problems
