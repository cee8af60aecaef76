"""Effects of CMake's commands on variables and targets.

Source: CMake's manual, ``cmake-commands(7)``. A command that may run or not makes what it changes unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from posixpath import basename, dirname, normpath
from typing import NamedTuple

from builder.facts.ort.cmake_language import Argument, Command, SourceLine
from builder.facts.ort.cmake_values import MAYBE, UNKNOWN, Truth, Variables, both, is_open, items, matched

ROOT = "/source"
"""The folder of the source in the values of variables."""

ARCHITECTURES = "CUDA_ARCHITECTURES"
"""The property of the architectures that a target is compiled for."""

_ANSWERING = re.compile(
    r"execute_process|get_\w+|math|find_\w+|cmake_path|try_\w+|check_\w+|separate_arguments|file|string|list"
)
"""Commands that set variables which are named among their arguments."""


_LOCAL = frozenset(
    {"set", "unset", "list", "string", "file", "get_filename_component", "cmake_parse_arguments"}
)
"""Commands that change nothing but variables of the function that runs."""


@dataclass
class BuildTarget:
    """A target of the build."""

    name: str
    line: SourceLine
    architectures: str
    """Its property ``CUDA_ARCHITECTURES``; at first the value of ``CMAKE_CUDA_ARCHITECTURES``."""
    sources: list[str] = field(default_factory=list)
    """The sources that it has."""
    possible: list[str] = field(default_factory=list)
    """Those that it may have."""
    linked: list[str] = field(default_factory=list)
    """What it is linked with."""


class Refusal(NamedTuple):
    """A ``message(FATAL_ERROR ...)`` that is reached, or may be."""

    text: str
    line: SourceLine
    is_certain: bool
    minimum: tuple[str, str]
    """Variable and version of a condition ``VERSION_LESS`` right before it; empty texts for another one."""
    condition: Sequence[str]
    """The words of all conditions under which it is reached."""


class Call(NamedTuple):
    """A command with its words."""

    command: Command
    words: Sequence[str]
    is_certain: bool


@dataclass
class State(Variables):
    """What commands have made: variables, targets and refusals."""

    made: dict[str, BuildTarget] = field(default_factory=dict)
    """The targets by name."""
    refusals: list[Refusal] = field(default_factory=list)
    folders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the source's files by folder, which begins with ``ROOT``."""
    given: Collection[str] = ()
    """Variables that are known from outside: no program's answer changes them."""
    conditions: list[Sequence[Argument]] = field(default_factory=list)
    """The conditions of the branches that are followed."""
    calls: list[Call] = field(default_factory=list)
    """The calls of the functions and macros that run, the first one first."""
    is_called: bool = True
    """Whether the function that runs is certainly called. Its own variables do not depend on that."""
    set_at: dict[str, SourceLine] = field(default_factory=dict)
    """The line that set a variable last."""


def apply(state: State, call: Call) -> None:
    """Change ``state`` by a command."""
    handler = _HANDLERS.get(call.command.name)
    if call.command.name not in _LOCAL or not {"PARENT_SCOPE", "CACHE"}.isdisjoint(call.words):
        call = call._replace(is_certain=call.is_certain and state.is_called)
    if handler is not None and call.words:
        handler(state, call)
    elif _ANSWERING.fullmatch(call.command.name):
        state.forget(call.words, state.given)


def _project(state: State, call: Call) -> None:
    state.project = call.words[0].lower()


def _option(state: State, call: Call) -> None:
    default = ";".join(call.words[2:3]) or "OFF"
    state.set_cached(call.words[0], default if call.is_certain else UNKNOWN)
    state.set_at.setdefault(call.words[0], call.command.place)


def _dependent_option(state: State, call: Call) -> None:
    if len(call.words) > 4:  # noqa: PLR2004
        name, _, value, depends, otherwise = call.words[:5]
        holds: Truth = True if call.is_certain else None
        for condition in filter(str.strip, depends.split(";")):
            words = re.findall(r"[()]|[^\s()]+", condition)
            holds = both(holds, state.holds([Argument(word, is_quoted=False) for word in words]))
        if holds is None or not call.is_certain:
            state.set(name, UNKNOWN)
        elif holds:
            state.set_cached(name, value)
        else:
            state.set(name, otherwise)


def _set(state: State, call: Call) -> None:
    name, *values = call.words
    state.set_at[name] = call.command.place
    is_outer = values[-1:] == ["PARENT_SCOPE"]
    is_cached = "CACHE" in values
    kept = values[: values.index("CACHE")] if is_cached else values[:-1] if is_outer else values
    has_value = is_cached or len(call.command.arguments) > 1 + is_outer
    new = (";".join(kept) if has_value else None) if call.is_certain else UNKNOWN
    if is_cached and "FORCE" not in values:
        state.set_cached(name, new or "")
    elif is_outer and state.outer:
        state.outer[-1][name] = new
    else:
        state.set(name, new)


def _unset(state: State, call: Call) -> None:
    state.set(call.words[0], None if call.is_certain else UNKNOWN)


def _list(state: State, call: Call) -> None:
    action, name, *rest = [*call.words, "", ""][: max(2, len(call.words))]
    before = state.value(name)
    if action == "APPEND":
        more = rest if call.is_certain else [MAYBE, *rest]
        state.set(name, ";".join(filter(None, (before, *more))))
    elif action in {"FILTER", "REMOVE_ITEM", "REMOVE_DUPLICATES"}:
        after = _reduced(action, before, rest)
        state.set(name, after if call.is_certain or after == UNKNOWN else f"{MAYBE};{before}")
    elif action == "LENGTH" and call.is_certain and not is_open(before):
        state.set(rest[0], str(len(items(before))))
    else:
        state.forget((name, *rest), state.given)


def _reduced(action: str, value: str, rest: Sequence[str]) -> str:
    """Return a list without the items that ``FILTER``, ``REMOVE_ITEM`` or ``REMOVE_DUPLICATES`` removes."""
    kept = items(value)
    if action == "REMOVE_DUPLICATES":
        return ";".join(dict.fromkeys(kept))
    if action == "REMOVE_ITEM":
        gone = {item for word in rest for item in items(word)}
        return UNKNOWN if is_open("".join(gone)) else ";".join(item for item in kept if item not in gone)
    if [*rest[:2], ""][1] != "REGEX":
        return UNKNOWN
    results = [(item, is_open(item) or matched(rest[2], item)[0]) for item in kept]
    if any(is_found is None for _, is_found in results):
        return UNKNOWN
    return ";".join(item for item, is_found in results if is_open(item) or is_found is (rest[0] == "INCLUDE"))


def _string(state: State, call: Call) -> None:
    match list(call.words) if call.is_certain else []:
        case ["REGEX", "MATCH", pattern, output, *texts]:
            is_found, groups = matched(pattern, "".join(texts))
            state.set(output, UNKNOWN if is_found is None else "".join(groups[:1]))
        case ["REPLACE", old, new, output, *texts]:
            text = "".join(texts)
            state.set(output, UNKNOWN if is_open(old + new + text) else text.replace(old, new))
        case ["TOLOWER" | "TOUPPER" as action, text, output]:
            state.set(output, text.lower() if action == "TOLOWER" else text.upper())
        case ["APPEND", output, *texts]:
            state.set(output, "".join((state.value(output), *texts)))
        case _:
            state.forget(call.words, state.given)


def _file(state: State, call: Call) -> None:
    action, output, *patterns = [*call.words, "", ""][: max(2, len(call.words))]
    if action not in {"GLOB", "GLOB_RECURSE"}:
        state.forget(call.words, state.given)
        return
    patterns = [pattern for pattern in patterns if pattern != "CONFIGURE_DEPENDS"]
    is_known = call.is_certain and not is_open("".join(patterns)) and "RELATIVE" not in patterns
    is_deep = action == "GLOB_RECURSE"
    found = {path for pattern in patterns for path in _files(pattern, state.folders, is_deep=is_deep)}
    state.set(output, ";".join(sorted(found)) if is_known else UNKNOWN)


def _files(pattern: str, folders: Mapping[str, Sequence[str]], *, is_deep: bool) -> Iterator[str]:
    folder, name = dirname(normpath(pattern)), re.compile(translate(basename(pattern)))
    for there, names in folders.items():
        if there == folder or (is_deep and there.startswith(f"{folder}/")):
            yield from (f"{there}/{file}" for file in names if name.match(file))


def by_folder(listing: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return the names of files by folder, as in ``State.folders``; the paths are below the source's root."""
    folders: dict[str, list[str]] = {}
    for path in listing:
        folders.setdefault(dirname(f"{ROOT}/{path}"), []).append(basename(path))
    return folders


def _filename_component(state: State, call: Call) -> None:
    match list(call.words):
        case [output, name, "ABSOLUTE" | "REALPATH"] if name.startswith("/") and not is_open(name):
            state.set(output, normpath(name))
        case [output, name, "DIRECTORY" | "PATH"] if not is_open(name):
            state.set(output, dirname(name))
        case [output, name, "NAME"] if not is_open(name):
            state.set(output, basename(name))
        case words:
            state.forget(words[:1], state.given)


def _parse_arguments(state: State, call: Call) -> None:
    words = list(call.words)
    if words[0] == "PARSE_ARGV":
        first = int(words[1]) if words[1:] and words[1].isdigit() else 0
        words = [*words[2:], *(state.calls[-1].words[first:] if state.calls else ())]
    prefix, *kinds = [*words, "", "", "", ""][:4]
    flags, ones, manys = (items(kind) for kind in kinds)
    given: dict[str, list[str]] = {}
    current = ""
    for word in words[4:]:
        if word in {*flags, *ones, *manys}:
            given[word] = []
            current = "" if word in flags else word
        elif current:
            given[current].append(word)
            current = "" if current in ones else current
    for name in (*flags, *ones, *manys):
        value = ";".join(given[name]) if name in given and (name in flags or given[name]) else None
        if name in flags:
            value = "TRUE" if name in given else "FALSE"
        state.set(f"{prefix}_{name}", value if call.is_certain else UNKNOWN)


def _add_library(state: State, call: Call) -> None:
    name, *rest = call.words
    kinds = {"STATIC", "SHARED", "MODULE", "OBJECT", "INTERFACE", "IMPORTED", "ALIAS", "GLOBAL", "UNKNOWN"}
    sources = [word for word in rest if word not in {*kinds, "EXCLUDE_FROM_ALL"}]
    target = BuildTarget(name, _place(state, call), state.value(f"CMAKE_{ARCHITECTURES}"))
    _add_sources(state.made.setdefault(name, target), sources, call)
    if call.is_certain:
        state.targets = {*state.targets, name}


def _place(state: State, call: Call) -> SourceLine:
    """Return the line outside any function that leads to a call."""
    return (state.calls[0] if state.calls else call).command.place


def _target_sources(state: State, call: Call) -> None:
    target = state.made.get(call.words[0])
    if target:
        sources = [word for word in call.words[1:] if word not in {"PRIVATE", "PUBLIC", "INTERFACE"}]
        _add_sources(target, sources, call)


def _add_sources(target: BuildTarget, sources: Sequence[str], call: Call) -> None:
    end = sources.index(MAYBE) if MAYBE in sources else len(sources)
    end = end if call.is_certain else 0
    target.sources += sources[:end]
    target.possible += sources[end:]


def _link(state: State, call: Call) -> None:
    target = state.made.get(call.words[0])
    if target:
        target.linked += [word for word in call.words[1:] if word not in {"PRIVATE", "PUBLIC", "INTERFACE"}]


def _target_properties(state: State, call: Call) -> None:
    if "PROPERTIES" not in call.words:
        return
    middle = call.words.index("PROPERTIES")
    properties = call.words[middle + 1 :]
    pairs = dict(zip(properties[::2], properties[1::2], strict=False))
    if ARCHITECTURES in pairs:
        _set_architectures(state, call.words[:middle], pairs[ARCHITECTURES], call)


def _property(state: State, call: Call) -> None:
    if call.words[0] == "TARGET" and "PROPERTY" in call.words:
        middle = call.words.index("PROPERTY")
        if call.words[middle + 1 : middle + 2] == [ARCHITECTURES]:
            names = [name for name in call.words[1:middle] if not name.startswith("APPEND")]
            is_appended = len(names) < middle - 1
            value = ";".join(call.words[middle + 2 :])
            _set_architectures(state, names, UNKNOWN if is_appended else value, call)


def _set_architectures(state: State, names: Sequence[str], value: str, call: Call) -> None:
    for name in names:
        if name in state.made:
            state.made[name].architectures = value if call.is_certain else UNKNOWN
            state.made[name].line = _place(state, call)


def _message(state: State, call: Call) -> None:
    if call.words[0] == "FATAL_ERROR":
        last = state.conditions[-1] if state.conditions else ()
        words = [argument.text for argument in last]
        at = words.index("VERSION_LESS") if "VERSION_LESS" in words else 0
        minimum = (words[at - 1], state.operand(last[at + 1])) if 0 < at < len(words) - 1 else ("", "")
        asked = [argument.text for condition in state.conditions for argument in condition]
        text = "".join(call.words[1:])
        state.refusals.append(Refusal(text, call.command.place, call.is_certain, minimum, asked))


_HANDLERS: Mapping[str, Callable[[State, Call], None]] = {
    "project": _project,
    "option": _option,
    "cmake_dependent_option": _dependent_option,
    "set": _set,
    "unset": _unset,
    "list": _list,
    "string": _string,
    "file": _file,
    "get_filename_component": _filename_component,
    "cmake_parse_arguments": _parse_arguments,
    "add_library": _add_library,
    "target_sources": _target_sources,
    "target_link_libraries": _link,
    "set_target_properties": _target_properties,
    "set_property": _property,
    "message": _message,
}
