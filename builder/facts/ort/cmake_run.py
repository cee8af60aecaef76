"""What CMake would do with a source, found out without CMake: the commands that run, variables and targets.

``if``, ``foreach``, ``include``, ``add_subdirectory``, functions and macros are followed. A command under an
unknown condition may run, and is yielded; what it sets is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import dirname, normpath
from typing import NamedTuple

from builder.facts.ort.cmake_commands import ROOT, Call, State, apply
from builder.facts.ort.cmake_language import Argument, Command, commands_in, length_of_block
from builder.facts.ort.cmake_values import LINUX_X64, MAYBE, UNKNOWN, Truth, both, either, negated

_CONDITIONS = frozenset({"if", "elseif", "while"})

_LOOPS = frozenset({"foreach", "while"})

_EXITS = frozenset({"break", "continue", "return"})

FOLDER = "cmake"
"""The folder of a source with its CMake files."""


class Reached(NamedTuple):
    """A command that runs, or may."""

    command: Command
    is_certain: bool


Parsed = Mapping[str, Sequence[Command]]
"""The commands of CMake files by their path below ``FOLDER``."""


def parsed(files: Mapping[str, str]) -> Parsed:
    """Return the commands of CMake files. Raises ``ParseError``."""
    return {path: commands_in(text, path) for path, text in files.items()}


def reached(
    files: Mapping[str, str], settings: Mapping[str, str], open_settings: Sequence[str] = ()
) -> Iterator[Reached]:
    """Yield the commands that run, or may run, when CMake reads ``CMakeLists.txt``.

    ``files`` are texts by their path below the source directory, ``settings`` the cache's variables, and
    ``open_settings`` names of further ones whose values are unknown. Raises ``ParseError``.
    """
    values = {**LINUX_X64, **settings, **dict.fromkeys(open_settings, UNKNOWN)}
    yield from _Run(parsed(files), State(dict(values))).whole()


def configured(
    files: Parsed,
    settings: Mapping[str, str],
    folders: Mapping[str, Sequence[str]],
    *,
    unset: Sequence[str] = (),
) -> State:
    """Return what CMake would have made at the end of ``CMakeLists.txt``.

    ``folders``: the source's files, as ``by_folder`` returns them. ``unset``: variables that are known to
    have no value. Raises ``ParseError``.
    """
    here = f"{ROOT}/{FOLDER}"
    roots = dict.fromkeys(("PROJECT_SOURCE_DIR", "CMAKE_SOURCE_DIR", "CMAKE_CURRENT_SOURCE_DIR"), here)
    values = {**LINUX_X64, **roots, **settings, **dict.fromkeys(unset)}
    state = State(values, folders=folders, given=frozenset(settings))
    for _ in _Run(files, state).whole():
        pass
    return state


@dataclass
class _Branch:
    """An ``if`` with its branches: whether an earlier branch ran, and whether this one does."""

    before: Truth
    now: Truth
    condition: Sequence[Argument]


class _Function(NamedTuple):
    parameters: Sequence[str]
    commands: Sequence[Command]
    is_macro: bool


@dataclass
class _Run:
    files: Parsed
    state: State
    read: set[str] = field(default_factory=set)
    entered: list[str] = field(default_factory=list)
    """The files that are being read, each for the one before it."""
    unresolved: set[str] = field(default_factory=set)
    """Files that an ``include`` of a name that is not known may mean."""
    functions: dict[str, _Function] = field(default_factory=dict)
    """Functions and macros by name."""
    exit: str = ""
    """``break``, ``continue`` or ``return`` if one was reached, until what it ends is left."""
    doubts: set[str] = field(default_factory=set)
    """Those of them that may have been reached: what follows them may not run."""

    def whole(self) -> Iterator[Reached]:
        commands = (command for commands in self.files.values() for command in commands)
        told = (command for command in commands if command.name not in _CONDITIONS)
        self.state.named = frozenset(argument.text for command in told for argument in command.arguments)
        yield from self._file("CMakeLists.txt", certain=True)
        for path in sorted(self.unresolved - self.read):
            yield from self._file(path, certain=False)

    def _file(self, path: str, *, certain: bool) -> Iterator[Reached]:
        self.read.add(path)
        self.entered.append(path)
        yield from self._until("return", self.files[path], certain=certain)
        self.entered.pop()

    def _until(self, end: str, commands: Sequence[Command], *, certain: bool) -> Iterator[Reached]:
        """Run commands that the command ``end`` leaves."""
        before = end in self.doubts
        yield from self._block(commands, certain=certain)
        self.exit = "" if self.exit == end else self.exit
        if not before:
            self.doubts.discard(end)

    def _block(self, commands: Sequence[Command], *, certain: bool) -> Iterator[Reached]:
        branches: list[_Branch] = []
        position = 0
        while position < len(commands) and not self.exit:
            command = commands[position]
            end = position + length_of_block(commands, position)
            inner, position = commands[position + 1 : end], end + 1
            if self._branches(command, branches) or any(branch.now is False for branch in branches):
                continue
            is_certain = certain and all(branch.now for branch in branches) and not self.doubts
            conditions = [branch.condition for branch in branches]
            self.state.conditions += conditions
            yield Reached(command, is_certain and self.state.is_called)
            yield from self._run(command, inner, certain=is_certain)
            del self.state.conditions[len(self.state.conditions) - len(conditions) :]

    def _branches(self, command: Command, branches: list[_Branch]) -> bool:
        """Follow ``if``, ``elseif``, ``else`` and ``endif``; return whether the command was one of them."""
        if command.name == "if":
            reaches = all(branch.now is not False for branch in branches)
            holds = self.state.holds(command.arguments) if reaches else False
            branches.append(_Branch(before=holds, now=holds, condition=command.arguments))
        elif command.name in {"elseif", "else"} and branches:
            last = branches[-1]
            is_done = last.before is True or any(branch.now is False for branch in branches[:-1])
            holds = command.name == "else" or (False if is_done else self.state.holds(command.arguments))
            last.now, last.condition = both(negated(last.before), holds), command.arguments
            last.before = either(last.before, holds)
        elif command.name == "endif" and branches:
            branches.pop()
        else:
            return False
        return True

    def _run(self, command: Command, inner: Sequence[Command], *, certain: bool) -> Iterator[Reached]:
        words = self.state.words(command.arguments)
        if command.name in _EXITS:
            self.exit = command.name if certain else ""
            self.doubts |= set() if certain else {command.name}
        elif command.name in self.functions:
            yield from self._call(Call(command, words, certain))
        elif command.name in {"function", "macro"} and words:
            self.functions[words[0].lower()] = _Function(words[1:], inner, is_macro=command.name == "macro")
        elif command.name in _LOOPS and words:
            yield from self._loop(words[0], self._items(command, words), inner, certain=certain)
        elif command.name in {"include", "add_subdirectory"} and words:
            yield from self._enter(command, words[0], certain=certain)
        else:
            apply(self.state, Call(command, words, certain))

    def _call(self, call: Call) -> Iterator[Reached]:
        name = call.command.name
        function = self.functions.pop(name)  # while it runs: nothing of ONNX Runtime's calls itself
        state = self.state
        given = dict(zip(function.parameters, call.words, strict=False))
        given |= {"ARGN": ";".join(call.words[len(function.parameters) :]), "ARGV": ";".join(call.words)}
        state.calls.append(call)
        if function.is_macro:
            before = {parameter: state.values.get(parameter, UNKNOWN) for parameter in given}
            state.values.update(given)
            yield from self._block(function.commands, certain=call.is_certain)
            state.values |= before
        else:
            state.outer.append(state.values)
            state.values = {**state.values, **given}
            was_called, state.is_called = state.is_called, state.is_called and call.is_certain
            doubts, self.doubts = self.doubts, set()
            yield from self._until("return", function.commands, certain=True)
            self.doubts, state.is_called = doubts, was_called
            state.values = state.outer.pop()
        state.calls.pop()
        self.functions[name] = function

    def _loop(
        self, name: str, values: Sequence[str], inner: Sequence[Command], *, certain: bool
    ) -> Iterator[Reached]:
        before = self.state.values.get(name, UNKNOWN)
        doubted = "break" in self.doubts
        for value in values:
            certain = certain and value not in {MAYBE, UNKNOWN}
            if value != MAYBE and self.exit != "break":
                self.state.set(name, value)
                yield from self._until("continue", inner, certain=certain)
        self.exit = "" if self.exit == "break" else self.exit
        if not doubted:
            self.doubts.discard("break")
        self.state.set(name, before)  # policy CMP0124 from CMake 3.21 on

    def _items(self, command: Command, words: Sequence[str]) -> Sequence[str]:
        """Return the values that a loop's variable takes, each once; what is not known for other loops."""
        if command.name != "foreach" or len(words) < 2 or words[1] == "RANGE":  # noqa: PLR2004
            return (UNKNOWN,) if command.name != "foreach" or len(words) > 1 else ()
        texts: Sequence[str]
        if words[1:3] == ["IN", "LISTS"]:
            texts = [self.state.value(name) for name in words[3:]]
        else:
            texts = words[3:] if words[1:3] == ["IN", "ITEMS"] else words[1:]
        return tuple(dict.fromkeys(item for text in texts for item in text.split(";") if item))

    def _enter(self, command: Command, name: str, *, certain: bool) -> Iterator[Reached]:
        here = dirname(command.file)
        if UNKNOWN in name:
            pattern = re.escape(name).replace(re.escape(UNKNOWN), ".*")
            self.unresolved |= {path for path in self.files if re.fullmatch(pattern, f"/{path}")}
            return
        name = name.removeprefix(f"{ROOT}/{FOLDER}/")
        if command.name == "add_subdirectory":
            places = [f"{here}/{name}/CMakeLists.txt"]
        else:
            folders = dict.fromkeys(("", here, *sorted({dirname(path) for path in self.files})))
            places = [f"{folder}/{name}{end}" for folder in folders for end in ("", ".cmake")]
        known = (place for place in (normpath(place.lstrip("/")) for place in places) if place in self.files)
        if (path := next(known, None)) and path not in self.entered:
            yield from self._file(path, certain=certain)
