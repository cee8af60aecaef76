"""The rules of the sources that were read: what planning and inspecting need without a source.

``DATA`` has an entry for each source. A release whose own source was not read is taken for the newest entry
that stands for it or for an older one. Of such a release nothing is known about launches, so nothing is left
out of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import TypeVar, cast, get_args, get_origin, get_type_hints

from builder.facts.gpu.architectures import Arch
from builder.facts.gpu.compatibility import version_of
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.source_rules import Fact, SourceRules

T = TypeVar("T")

DATA = "builder/facts/ort/known_rules.json"
"""The file of the rules, from the project's root."""


@dataclass(frozen=True)
class ReadSource:
    """A source that was read."""

    source: str
    """Its tag, or its commit and date."""
    first: str
    """The oldest release that it stands for."""
    rules: SourceRules

    @property
    def line(self) -> str:
        """Its release line: ``1.23`` of 1.23.2."""
        return _line_of(self.rules.version)

    @property
    def is_release(self) -> bool:
        """Whether it is the source of the release ``first`` itself."""
        return self.source == f"v{self.first}"


@cache
def read_sources() -> tuple[ReadSource, ...]:
    """Return the sources that were read, the oldest first."""
    text = files("builder.facts.ort").joinpath("known_rules.json").read_text(encoding="utf-8")
    return loads(tuple[ReadSource, ...], text)


def standing_for(version: str) -> ReadSource:
    """Return the source of a release, or the one that stands for it."""
    known = read_sources()
    older = [one for one in known if version_of(one.first) <= version_of(version)]
    return older[-1] if older else known[0]


def read_lines() -> tuple[str, ...]:
    """Return the release lines of the sources that were read: ``1.21``."""
    return tuple(dict.fromkeys(one.line for one in read_sources()))


def is_known(version: str) -> bool:
    """Return whether a source of this version's release line was read."""
    return _line_of(version) in read_lines()


def _line_of(version: str) -> str:
    return ".".join(map(str, version_of(version)[:2]))


def is_read(version: str) -> bool:
    """Return whether the source of this very release was read."""
    return not rules_for(version).stands_in


@cache
def rules_for(version: str) -> SourceRules:
    """Return the rules of a release, or of the source that stands for it, without launches."""
    read = standing_for(version)
    if read.is_release and read.first == version:
        return read.rules
    return replace(read.rules, version=version, launches=(), without_device_code=(), stands_in=True)


def text_of(sources: Iterable[ReadSource], options: Collection[str]) -> str:
    """Return the text of ``DATA`` with these sources, and of their options these and those in demands."""
    kept = [replace(one, rules=_with_options(one.rules, options)) for one in sources]
    return dumps(tuple(sorted(kept, key=lambda one: version_of(one.first))))


def stated(rules: SourceRules, options: Collection[str]) -> object:
    """Return rules as JSON's types, each with its line, without the names of all units; options as above."""
    return cast("object", json.loads(dumps(replace(_with_options(rules, options), units={}))))


def _with_options(rules: SourceRules, names: Collection[str]) -> SourceRules:
    kept = sorted({*names, *rules.demands} & {*rules.options})
    return replace(rules, options={name: rules.options[name] for name in kept})


def dumps(value: object) -> str:
    """Return the JSON text of rules, or of sources with their rules."""
    return json.dumps(value, indent=1, default=_plain) + "\n"


def loads(kind: type[T], text: str) -> T:
    """Return the value of the type ``kind`` from the text that ``dumps`` makes of it."""
    return cast("T", _value(kind, json.loads(text)))


def _plain(value: object) -> object:
    return str(value) if isinstance(value, SourceLine | Arch | Fact) else vars(value)


def _value(kind: object, data: object) -> object:
    """Return the value of the type ``kind`` of which ``_plain`` made ``data``."""
    parts = get_args(kind)
    if NoneType in parts:
        return None if data is None else _value(parts[0], data)
    if isinstance(data, list):
        return tuple(_value(parts[0], item) for item in data)
    if get_origin(kind) is Mapping and isinstance(data, dict):
        return {key: _value(parts[1], item) for key, item in data.items()}
    if isinstance(kind, type) and isinstance(data, dict):
        hints = _hints(kind)
        return kind(**{name: _value(hints[name], item) for name, item in data.items()})
    parse = _PARSED.get(kind)
    return parse(str(data)) if parse else data


_hints = cache(get_type_hints)


def _line(text: str) -> SourceLine:
    file, _, number = text.rpartition(":")
    return SourceLine(file, int(number))


def _fact(text: str) -> Fact:
    line, _, value = text.partition(": ")
    return Fact(value, _line(line))


_PARSED: Mapping[object, Callable[[str], object]] = {SourceLine: _line, Arch: Arch.parse, Fact: _fact}
"""How a value is read that is stored as text."""
