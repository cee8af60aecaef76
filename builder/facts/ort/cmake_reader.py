"""Readers of ORT's CMake files: which commands of a source run, and which archives its own build downloads.

CMake is not run. ``if``, ``foreach``, ``include`` and ``add_subdirectory`` are followed. A variable that
nothing known has set is unknown, not empty: a command under an unknown condition may run, and is yielded.
Source of the grammar and of ``if``: CMake's manual, ``cmake-language(7)`` and ``if()``.

``cmake/deps.txt`` has a line with name, URL and SHA-1 for each archive that any build needs. ORT's CMake
files use the URL of a line as ``DEP_URL_<name>``; the lines that a build needs are those whose URL is used
under its options. CMake looks for each archive below ``mirror/<host>/<path>`` of the source tree before it
downloads it (``cmake/external/onnxruntime_external_deps.cmake``, from 1.15 on), so a build with all archives
there needs no network. CMake compares their SHA-1 and patches them as in the official build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import dirname, normpath
from typing import NamedTuple

from builder.errors import ParseError

_ADVICE = "Name another version of ONNX Runtime in variants.yaml."

Truth = bool | None
"""Whether a condition holds; ``None`` if it is unknown."""

_TOKENS = re.compile(
    r"#\[(?P<c>=*)\[.*?\](?P=c)\](?P<comment>)|#[^\n]*"
    r"|\[(?P<b>=*)\[\n?(?P<bracket>.*?)\](?P=b)\]"
    r'|"(?P<quoted>(?:[^"\\]|\\.)*)"'
    r"|(?P<paren>[()])"
    r"|(?P<word>(?:\$\{[^}]*\}|\\.|\"(?:[^\"\\]|\\.)*\"|[^\s()#\"\\])+)",
    re.DOTALL,
)

_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_./+-]+)\}")

_FALSE = re.compile(r"|0|OFF|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND", re.IGNORECASE)

_TRUE = re.compile(r"ON|YES|TRUE|Y|[+-]?[1-9][0-9]*", re.IGNORECASE)

_UNKNOWN = "\0"
"""Stands in a value for a part that is not known."""

_MAYBE = "\1"
"""Stands in a list before items that it may have."""

_CONDITIONS = frozenset({"if", "elseif", "while"})

_BLOCKS = {"foreach": "endforeach", "while": "endwhile", "function": "endfunction", "macro": "endmacro"}

LINUX_X64: Mapping[str, str] = {
    **dict.fromkeys(("UNIX", "LINUX", "CMAKE_HOST_UNIX", "CMAKE_HOST_LINUX"), "1"),
    **dict.fromkeys(("CMAKE_SYSTEM_NAME", "CMAKE_HOST_SYSTEM_NAME"), "Linux"),
    **dict.fromkeys(("CMAKE_SYSTEM_PROCESSOR", "CMAKE_HOST_SYSTEM_PROCESSOR"), "x86_64"),
    **dict.fromkeys(
        ("WIN32", "MSVC", "MINGW", "CYGWIN", "APPLE", "IOS", "ANDROID", "CMAKE_CROSSCOMPILING"), ""
    ),
    **dict.fromkeys(("CMAKE_HOST_APPLE", "CMAKE_HOST_WIN32"), ""),
}
"""CMake's variables on the system that compiles. Source: ``cmake-variables(7)``."""


class Argument(NamedTuple):
    """An argument of a command."""

    text: str
    is_quoted: bool


@dataclass(frozen=True)
class Command:
    """A command as its file has it."""

    name: str
    """Its name in lower case."""
    arguments: tuple[Argument, ...]
    file: str
    line: int


class Reached(NamedTuple):
    """A command that runs, or may."""

    command: Command
    is_certain: bool


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
            arguments.append(Argument(token[kind], is_quoted=kind in {"quoted", "bracket"}))
    if name or text[end:].strip():
        raise ParseError(
            f"{file}:{line} is not understood",
            cause="no whole command of CMake's language begins in this line",
            advice=_ADVICE,
        )
    return commands


def reached(
    files: Mapping[str, str], settings: Mapping[str, str], open_settings: Sequence[str] = ()
) -> Iterator[Reached]:
    """Yield the commands that run, or may run, when CMake reads ``CMakeLists.txt``.

    ``files`` are texts by their path below the source directory, ``settings`` the cache's variables, and
    ``open_settings`` names of further ones whose values are unknown. Raises ``ParseError``.
    """
    parsed = {path: commands_in(text, path) for path, text in files.items()}
    run = _Run(parsed, {**LINUX_X64, **settings, **dict.fromkeys(open_settings, _UNKNOWN)})
    yield from run.file("CMakeLists.txt", certain=True)
    for path in sorted(run.unresolved - run.read):
        yield from run.file(path, certain=False)


@dataclass
class _Branch:
    """An ``if`` with its branches: whether an earlier branch ran, and whether this one does."""

    before: Truth
    now: Truth


class _Function(NamedTuple):
    parameters: Sequence[str]
    commands: Sequence[Command]
    is_macro: bool


@dataclass
class _Run:
    files: Mapping[str, Sequence[Command]]
    values: dict[str, str]
    """Values of variables, in which ``_UNKNOWN`` stands for each part that is not known."""
    read: set[str] = field(default_factory=set)
    entered: list[str] = field(default_factory=list)
    """The files that are being read, each for the one before it."""
    unresolved: set[str] = field(default_factory=set)
    """Files that an ``include`` of a name that is not known may mean."""
    functions: dict[str, _Function] = field(default_factory=dict)
    """Functions and macros by name."""
    project: str = ""
    """The project's name in lower case, once ``project`` was read."""

    @cached_property
    def named(self) -> frozenset[str]:
        """Every word that a command other than a condition has: a variable that is set is one of them."""
        commands = (command for commands in self.files.values() for command in commands)
        told = (command for command in commands if command.name not in _CONDITIONS)
        return frozenset(argument.text for command in told for argument in command.arguments)

    def value(self, name: str) -> str:
        """Return a variable's value. One of the project's own variables that no file sets is empty."""
        if name in self.values:
            return self.values[name]
        is_own = bool(self.project) and name.lower().startswith(f"{self.project}_")
        return "" if is_own and name not in self.named else _UNKNOWN

    def file(self, path: str, *, certain: bool) -> Iterator[Reached]:
        self.read.add(path)
        self.entered.append(path)
        yield from self._block(self.files[path], certain=certain)
        self.entered.pop()

    def _block(self, commands: Sequence[Command], *, certain: bool) -> Iterator[Reached]:
        branches: list[_Branch] = []
        position = 0
        while position < len(commands):
            command = commands[position]
            end = position + _length_of_block(commands, position)
            inner, position = commands[position + 1 : end], end + 1
            if self._branches(command, branches) or any(branch.now is False for branch in branches):
                continue
            is_certain = certain and all(branch.now for branch in branches)
            yield Reached(command, is_certain)
            yield from self._run(command, inner, certain=is_certain)

    def _branches(self, command: Command, branches: list[_Branch]) -> bool:
        """Follow ``if``, ``elseif``, ``else`` and ``endif``; return whether the command was one of them."""
        if command.name == "if":
            reaches = all(branch.now is not False for branch in branches)
            holds = self.holds(command.arguments) if reaches else False
            branches.append(_Branch(before=holds, now=holds))
        elif command.name in {"elseif", "else"} and branches:
            last = branches[-1]
            holds = True if command.name == "else" else self.holds(command.arguments)
            last.now = _and(_not(last.before), holds)
            last.before = _or(last.before, holds)
        elif command.name == "endif" and branches:
            branches.pop()
        else:
            return False
        return True

    def _run(self, command: Command, inner: Sequence[Command], *, certain: bool) -> Iterator[Reached]:
        words = [self._text(argument.text) for argument in command.arguments]
        if not words:
            return
        if command.name in {"function", "macro"}:
            self.functions[words[0].lower()] = _Function(words[1:], inner, is_macro=command.name == "macro")
        elif command.name in self.functions:
            yield from self._call(command.name, words, certain=certain)
        elif command.name in _BLOCKS:
            yield from self._loop(words[0], self._items(command, words), inner, certain=certain)
        elif command.name in {"include", "add_subdirectory"}:
            yield from self._enter(command, words[0], certain=certain)
        else:
            self._assign(command.name, words, certain=certain)

    def _assign(self, name: str, words: Sequence[str], *, certain: bool) -> None:
        if name == "project":
            self.project = words[0].lower()
        elif name == "option":
            self.values.setdefault(words[0], (";".join(words[2:3]) or "OFF") if certain else _UNKNOWN)
        elif name == "cmake_dependent_option" and len(words) > 4:  # noqa: PLR2004
            self._dependent_option(*words[:5], certain=certain)
        elif name == "set":
            self._set(words[0], words[1:], certain=certain)
        elif name == "list" and len(words) > 1:
            self._change_list(words, certain=certain)

    def _call(self, name: str, words: Sequence[str], *, certain: bool) -> Iterator[Reached]:
        function = self.functions.pop(name)  # while it runs: nothing of ONNX Runtime's calls itself
        before = dict(self.values)
        given = dict(zip(function.parameters, words, strict=False))
        self.values |= {**given, "ARGN": ";".join(words[len(function.parameters) :])}
        yield from self._block(function.commands, certain=certain)
        if not function.is_macro:
            self.values = before
        self.functions[name] = function

    def _loop(
        self, name: str, items: Sequence[str], inner: Sequence[Command], *, certain: bool
    ) -> Iterator[Reached]:
        before = self.value(name)
        for item in items:
            certain = certain and item not in {_MAYBE, _UNKNOWN}
            if item != _MAYBE:
                self.values[name] = item
                yield from self._block(inner, certain=certain)
        self.values[name] = before  # policy CMP0124 from CMake 3.21 on

    def _items(self, command: Command, words: Sequence[str]) -> Sequence[str]:
        """Return the values that a loop's variable takes, each once; what is not known for other loops."""
        if command.name != "foreach" or len(words) < 2 or words[1] == "RANGE":  # noqa: PLR2004
            return (_UNKNOWN,)
        texts: Sequence[str]
        if words[1:3] == ["IN", "LISTS"]:
            texts = [self.value(name) for name in words[3:]]
        else:
            texts = words[3:] if words[1:3] == ["IN", "ITEMS"] else words[1:]
        return tuple(dict.fromkeys(item for text in texts for item in text.split(";")))

    def _enter(self, command: Command, name: str, *, certain: bool) -> Iterator[Reached]:
        here = dirname(command.file)
        if _UNKNOWN in name:
            pattern = re.escape(name).replace(re.escape(_UNKNOWN), ".*")
            self.unresolved |= {path for path in self.files if re.fullmatch(pattern, f"/{path}")}
            return
        if command.name == "add_subdirectory":
            places = [f"{here}/{name}/CMakeLists.txt"]
        else:
            folders = dict.fromkeys(("", here, *sorted({dirname(path) for path in self.files})))
            places = [f"{folder}/{name}{end}" for folder in folders for end in ("", ".cmake")]
        known = (place for place in (normpath(place.lstrip("/")) for place in places) if place in self.files)
        if (path := next(known, None)) and path not in self.entered:
            yield from self.file(path, certain=certain)

    def _dependent_option(
        self, name: str, _: str, value: str, depends: str, otherwise: str, *, certain: bool
    ) -> None:
        conditions = filter(str.strip, depends.split(";"))
        holds: Truth = True if certain else None
        for condition in conditions:
            words = re.findall(r"[()]|[^\s()]+", condition)
            holds = _and(holds, self.holds([Argument(word, is_quoted=False) for word in words]))
        if holds is None or not certain:
            self.values[name] = _UNKNOWN
        elif holds:
            self.values.setdefault(name, value)
        else:
            self.values[name] = otherwise

    def _set(self, name: str, values: Sequence[str], *, certain: bool) -> None:
        if "PARENT_SCOPE" in values:
            return
        is_cached = "CACHE" in values
        new = ";".join(values[: values.index("CACHE")] if is_cached else values) if certain else _UNKNOWN
        if is_cached and "FORCE" not in values:
            self.values.setdefault(name, new)
        else:
            self.values[name] = new

    def _change_list(self, words: Sequence[str], *, certain: bool) -> None:
        action, name, *items = words
        if action == "APPEND":
            more = items if certain else (_MAYBE, *items)
            self.values[name] = ";".join(filter(None, (self.value(name), *more)))
        else:
            self.values[words[-1] if action in {"LENGTH", "GET", "FIND", "JOIN"} else name] = _UNKNOWN

    def _text(self, text: str) -> str:
        known = _REFERENCE.sub(lambda match: self.value(match[1]), text)
        return re.sub(r"\$(?:ENV|CACHE)?\{.*\}", _UNKNOWN, known)

    def holds(self, arguments: Sequence[Argument]) -> Truth:
        """Return whether a condition holds. ``AND`` and ``OR`` are of one rank, as in CMake."""
        rest = list(arguments)
        holds = self._compound(rest)
        return None if rest else holds

    def _compound(self, rest: list[Argument]) -> Truth:
        holds = self._single(rest)
        while rest and not rest[0].is_quoted and rest[0].text in {"AND", "OR"}:
            join = _and if rest.pop(0).text == "AND" else _or
            holds = join(holds, self._single(rest))
        return holds

    def _single(self, rest: list[Argument]) -> Truth:
        if not rest:
            return None
        first = rest.pop(0)
        if not first.is_quoted and first.text == "NOT":
            return _not(self._single(rest))
        if not first.is_quoted and first.text == "(":
            holds = self._compound(rest)
            while rest and rest.pop(0).text != ")":
                holds = None  # something that is not understood
            return holds
        if not first.is_quoted and first.text in {"TARGET", "DEFINED", "EXISTS", "COMMAND", "POLICY", "TEST"}:
            if rest:
                rest.pop(0)
            return None
        if rest and not rest[0].is_quoted and rest[0].text not in {"AND", "OR", ")"}:
            operator = rest.pop(0).text
            right = rest.pop(0) if rest else first
            return self._compared(first, operator, right)
        return self._is_true(first)

    def _compared(self, left: Argument, operator: str, right: Argument) -> Truth:
        value = self._operand(left)
        other = self._operand(right) if operator == "STREQUAL" else self._text(right.text)
        if _is_open(value + other) or operator not in {"STREQUAL", "MATCHES"}:
            return None
        if operator == "STREQUAL":
            return value == other
        try:
            return re.search(other, value) is not None
        except re.error:  # CMake's own dialect
            return None

    def _operand(self, argument: Argument) -> str:
        text = self._text(argument.text)
        if argument.is_quoted or argument.text != text:
            return text
        return self.value(text) if re.fullmatch(r"[A-Za-z_]\w*", text) else text

    def _is_true(self, argument: Argument) -> Truth:
        text = self._text(argument.text)
        if _TRUE.fullmatch(text):
            return True
        if _FALSE.fullmatch(text):
            return False
        value = self.value(text)
        return None if _is_open(value) else _FALSE.fullmatch(value) is None


def _is_open(value: str) -> bool:
    return _UNKNOWN in value or _MAYBE in value


def _length_of_block(commands: Sequence[Command], start: int) -> int:
    """Return how many commands after ``start`` belong to its block, its end included; 0 if it opens none."""
    opening = commands[start].name
    closing = _BLOCKS.get(opening)
    if closing is None:
        return 0
    depth = 0
    for number, command in enumerate(commands[start:]):
        depth += (command.name == opening) - (command.name == closing)
        if depth == 0:
            return number
    raise ParseError(
        f"{commands[start].file}:{commands[start].line}: {opening} has no {closing}", advice=_ADVICE
    )


def _not(value: Truth) -> Truth:
    return None if value is None else not value


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _or(one: Truth, other: Truth) -> Truth:
    return _not(_and(_not(one), _not(other)))


FOLDER = "cmake"
"""The folder of the source tree with the list and the CMake files."""

_LIST = "deps.txt"

_USE = re.compile(r"\$\{DEP_URL_(\w+)\}")

_SHA1 = re.compile(r"[0-9a-fA-F]{40}")

_URL = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._+~-]+)+")


class Download(NamedTuple):
    """An archive that ORT's build downloads."""

    url: str
    sha1: str
    """Hex SHA-1 of its bytes, in lower case."""


def archives(
    files: Mapping[str, str], settings: Mapping[str, str], open_settings: Sequence[str]
) -> tuple[Download, ...]:
    """Return the archives that builds with these settings need, sorted by URL.

    ``files`` are the texts of ``deps.txt`` and of the CMake files below ``FOLDER``, by their path in it;
    settings are as for ``reached``. An archive that is used under a condition that cannot be decided is
    needed. Raises ``ParseError`` for a file that cannot be read, and for a use without a line in the list.
    """
    listed = _listed(files.get(_LIST, ""))
    downloads = set()
    scripts = {path: text for path, text in files.items() if path != _LIST}
    try:
        run = list(reached(scripts, settings, open_settings))
    except ParseError as error:
        error.what = f"{FOLDER}/{error.what}"  # the reader knows paths below the folder
        raise
    for command, is_certain in run:
        for name in (name for argument in command.arguments for name in _USE.findall(argument.text)):
            if name in listed:
                downloads.add(_archive(name, *listed[name]))
            elif is_certain:
                raise _not_understood(f"{command.file}:{command.line}", f"{_LIST} has no line for {name}")
    if not downloads:
        raise _not_understood("CMakeLists.txt", f"nothing of {_LIST} is downloaded by it")
    return tuple(sorted(downloads))


def _listed(text: str) -> dict[str, tuple[int, str, str]]:
    """Return number, URL and SHA-1 of the list's lines, by name."""
    by_name = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        name, *rest = map(str.strip, line.split(";"))
        if len(rest) != 2 or not _SHA1.fullmatch(rest[1]):  # noqa: PLR2004
            raise _not_understood(f"{_LIST}:{number}", f"{line!r} is not name;URL;SHA-1")
        by_name[name] = (number, rest[0], rest[1].lower())
    return by_name


def _archive(name: str, number: int, url: str, sha1: str) -> Download:
    if not _URL.fullmatch(url):
        raise _not_understood(f"{_LIST}:{number}", f"the address of {name} is no plain https URL")
    return Download(url, sha1)


def _not_understood(place: str, cause: str) -> ParseError:
    return ParseError(
        f"{FOLDER}/{place} of ONNX Runtime's source is not understood",
        cause=cause,
        advice="Name another version in variants.yaml.",
    )


def mirrored(url: str) -> str:
    """Return the path, below the source tree, where ORT's CMake looks for the archive of a URL."""
    return f"mirror/{url.removeprefix('https://')}"
