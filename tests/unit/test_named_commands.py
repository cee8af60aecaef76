"""Tests that every command in a message or page exists, with the flags and values it is shown with.

The tests read the string literals of ``builder/`` and ``tasks.py``, the script ``run``, templates and pages.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from invoke.collection import Collection as Tasks
from invoke.program import Program

import tasks
from builder.client import arguments
from builder.config.variants import Origin
from builder.formats.package_names import Host, Profile
from builder.io.wiring import Wiring
from tests.support import ROOT

LEAST_COMMANDS = 100
"""Least number of commands that the search must find: a broken search would find none and pass."""

_BUILDER = re.compile(r"\./run[ ]+(?P<words>[^\n`\"'#|;)(]*)")

_CLIENT = re.compile(r"(?:python3? (?:\S+/)?ortpacks\.pyz|`ortpacks)[ ]+(?P<words>[^\n`\"'#|;)(]*)")

_SHORT = re.compile(r"\bRun `(?!git )(?P<words>[a-z][^`]*)`")
"""Pattern of commands in the client's own messages."""

_MODULE = re.compile(
    r"\bpython3? -m (?P<words>(?:benchmarks|builder\.inspector|tests|ortpacks_)[^\n`\"'#|;)(]*)"
)


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
        for context in Tasks.from_module(tasks).to_contexts()
    }


@pytest.fixture(scope="module")
def values() -> Mapping[str, Collection[str]]:
    """Return the values of flags that take one of a few."""
    project = Wiring(ROOT).project
    return {
        "--variant": project.packages,
        "--base": {"auto", *project.bases},
        "--origin": {kind.value for kind in Origin},
        "--profile": {kind.value for kind in Profile},
        "--host": {kind.value for kind in Host},
    }


@pytest.fixture
def commands() -> Flags:
    """Return the flags of each of the client's commands, as its help lists them."""
    found = {}
    for name in arguments.COMMANDS:
        with pytest.raises(arguments.HelpError) as wanted:
            arguments.parsed([name, "--help"])
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


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return every text with the path of its file."""
    modules = (*sorted((ROOT / "builder").rglob("*.py")), ROOT / "tasks.py")
    patterns = (
        "*.md",
        "docs/**/*.md",
        "docs/results/*",
        "templates/*",
        "run",
        "builder/**/roles.json",
        ".github/workflows/*.yml",
    )
    pages = sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
    return (
        *((str(path.relative_to(ROOT)), text) for path in modules for text in literals(path)),
        *((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in pages),
    )


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


def wrong_values(words: str, known: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield each value of a flag that is none of the flag's; capitals stand for the user's value."""
    command = _SENTENCE.split(words)[0].split()
    for flag, value in pairwise(command):
        word = value.rstrip(".,:")
        if flag in known and re.fullmatch(r"[a-z][a-z0-9]*", word) and word not in known[flag]:
            yield f"{flag} cannot be {word}"


def wrong_module(words: str) -> Iterator[str]:
    """Yield that a module of ours does not exist, or each flag that its source does not have."""
    module, *rest = words.split()
    name = module.rstrip(".,:").replace(".", "/")
    folders = [ROOT / folder for folder in ("", "service", "runtime")]
    files = [file for folder in folders for end in (".py", "/*.py") for file in folder.glob(f"{name}{end}")]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    if not source:
        yield f"there is no {module}"
    yield from (f"{module} has no {flag}" for flag in flags_of(rest) if flag.lstrip("-") not in source)


def flags_of(command: Sequence[str]) -> Iterator[str]:
    for word in command:
        found = _FLAG.match(word)
        if found:
            yield found[0]


def named(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return the file and the words of every command that the pattern finds."""
    return [(where, found["words"]) for where, text in texts() for found in pattern.finditer(text)]


def test_the_builders_commands_are_there(verbs: Flags) -> None:
    found = named(_BUILDER)
    assert len(found) > LEAST_COMMANDS
    assert [f"{where}: ./run {words}: {what}" for where, words in found for what in wrong(words, verbs)] == []


def test_the_clients_commands_are_there(commands: Flags) -> None:
    found = [*named(_CLIENT), *named(_SHORT)]
    assert len(found) > 10
    assert [f"{where}: {words}: {what}" for where, words in found for what in wrong(words, commands)] == []


def test_the_values_of_the_builders_flags_are_there(values: Mapping[str, Collection[str]]) -> None:
    found = named(_BUILDER)
    assert [f"{where}: {what}" for where, words in found for what in wrong_values(words, values)] == []


def test_the_programs_are_there() -> None:
    """Benchmarks, tests' own programs and the service, by their modules."""
    found = named(_MODULE)
    assert len(found) > 10
    assert [f"{where}: {what}" for where, words in found for what in wrong_module(words)] == []
