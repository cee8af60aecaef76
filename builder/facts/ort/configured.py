"""What CMake makes of a source, read from the trace of its run (``io.cmake``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from posixpath import join, normpath

FOLDER = "cmake"
"""The folder of a source with its CMake files."""

LIST = "CMAKE_CUDA_ARCHITECTURES"
"""The variable with the architectures of all targets that name none of their own."""

_ENTERING = frozenset({"include", "_include", "add_subdirectory"})
"""Commands that run a file: no functions."""


@dataclass(frozen=True, order=True)
class SourceLine:
    """A line of a source."""

    file: str
    """Its path below the root of the source."""
    number: int

    @classmethod
    def at(cls, file: str, text: str, place: int) -> SourceLine:
        """Return the line of a place in the text of a file."""
        return cls(file, text.count("\n", 0, place) + 1)

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class Call:
    """A command that CMake ran."""

    name: str
    """Its name in lower case."""
    words: tuple[str, ...]
    line: SourceLine
    depth: int
    """How many calls and files it is in."""


@dataclass(frozen=True)
class BuildTarget:
    """What CMake would build."""

    architectures: str
    """The architectures of its CUDA code, as a list of CMake's."""
    sources: tuple[str, ...]
    """Paths of its sources below the root of the source."""


@dataclass(frozen=True)
class Configured:
    """What CMake made of a source with some settings."""

    calls: Sequence[Call]
    """The commands of the source's own files that ran, in order."""
    targets: Mapping[str, BuildTarget]
    values: Mapping[str, str]
    """What variables were in the end: ``LIST`` and ``CMAKE_CXX_STANDARD``."""
    missing: Sequence[str]
    """Commands and files that CMake did not find, and went on without."""

    @property
    def refusals(self) -> Sequence[Call]:
        """The commands with which the source refuses; CMake went on after them."""
        return [call for call in self.calls if call.name == "message" and call.words[:1] == ("FATAL_ERROR",)]

    @property
    def refused(self) -> frozenset[SourceLine]:
        """The lines of the refusals."""
        return frozenset(call.line for call in self.refusals)

    def before(self, call: Call) -> Iterator[Call]:
        """Yield the commands that ran before one, the last one first."""
        return reversed(self.calls[: self.calls.index(call)])

    def set_at(self, variable: str) -> SourceLine | None:
        """Return the last line that set a variable; ``None`` if none did."""
        setters = (call for call in reversed(self.calls) if call.name in {"set", "list", "string"})
        return next((call.line for call in setters if variable in call.words[:2]), None)

    def made_at(self, target: str) -> SourceLine:
        """Return the line, outside any function, that led to the last command on a target's architectures.

        If there is none, to its first command.
        """
        own = [call for call in self.calls if target in call.words[:2]]
        last = [call for call in own if "CUDA_ARCHITECTURES" in call.words]
        outermost = call = last[-1] if last else own[0]
        for one in self.before(call):
            if one.depth < call.depth:
                call = one
                outermost = outermost if call.name in _ENTERING else call
        return outermost.line


def read_trace(lines: Iterable[str], root: str, reader: str, unknown: Iterable[str]) -> Configured | None:
    """Return what CMake made, by the lines of its trace in JSON; ``None`` if it did not come to the end.

    ``root`` is the source's folder, ``reader`` the path of ``io/reader.cmake``, whose calls of ``answer`` say
    what there is. ``unknown``: the commands that CMake does not know.
    """
    calls: list[Call] = []
    answers: list[Sequence[str]] = []
    for entry in map(json.loads, lines):
        file, name = entry.get("file", ""), entry.get("cmd", "").lower()
        if file.startswith(f"{root}/"):
            line = SourceLine(file.removeprefix(f"{root}/"), entry["line"])
            calls.append(Call(name, tuple(entry["args"]), line, entry["global_frame"]))
        elif file == reader and name == "answer":
            answers.append(entry["args"])
    if ["END"] not in answers:
        return None
    targets = {
        words[1]: BuildTarget(words[2], tuple(_below(root, source) for source in words[3].split(";")))
        for words in answers
        if words[0] == "TARGET"
    }
    values = {words[1]: words[2] for words in answers if words[0] == "VALUE"}
    missing = [words[1] for words in answers if words[0] == "MISSING"]
    return Configured(calls, targets, values, [*unknown, *missing])


def _below(root: str, source: str) -> str:
    return normpath(join(root, FOLDER, source)).removeprefix(f"{root}/")


class Trace(Enum):
    """What is traced of a run of CMake, which takes half of its time."""

    VALUES = "--trace-expand"
    """All commands, with values in place of references."""
    WRITTEN = "--trace"
    """All commands as they are written; what CMake made is not known."""
    NOTHING = ""
    """No command."""


Configure = Callable[[Mapping[str, str], Trace], Configured]
"""Lets CMake configure a source with some variables. Raises ``ParseError``."""
