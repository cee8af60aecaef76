"""The plain shapes of YAML and JSON, read strictly: text, whole number, choice, list, mapping, section.

A reader that finds something wrong reports it and returns an empty value of its type, so that reading goes on
and one run shows everything. To the caller, an empty value means "reported already".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import TypeVar

import yaml

from builder.config.cursor import NULL, Cursor, line_of, shorten
from builder.config.problems import nearest
from builder.errors import SchemaError, ValidationError

INT = "tag:yaml.org,2002:int"

_TEXT = "tag:yaml.org,2002:str"
_BOOL = "tag:yaml.org,2002:bool"
_BOOLEANS = ("true", "false")
_MERGE = "tag:yaml.org,2002:merge"
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")

E = TypeVar("E", bound=Enum)


def text(cursor: Cursor) -> str:
    """The text here."""
    node = cursor.node
    if node is None:
        return ""
    if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT:
        cursor.report(SchemaError, "text is wanted", hint=_quote_it(node))
        return ""
    if not node.value:
        cursor.report(ValidationError, "may not be empty", found="")
    return str(node.value)


def matching(cursor: Cursor, pattern: re.Pattern[str], message: str, allowed: str) -> str:
    """The text here, all of which matches ``pattern``; else ``message`` and what is ``allowed``."""
    value = text(cursor)
    if value and pattern.fullmatch(value) is None:
        cursor.report(ValidationError, message, allowed=allowed)
        return ""
    return value


def number(cursor: Cursor, *, least: int, most: int) -> int:
    """The whole number here, within its bounds."""
    node = cursor.node
    if node is None:
        return 0
    if node.tag != INT or _NUMBER.fullmatch(node.value) is None:
        cursor.report(SchemaError, "a whole number is wanted")
        return 0
    value = int(node.value)
    if not least <= value <= most:
        cursor.report(ValidationError, "out of range", allowed=f"{least} to {most}")
    return value


def one_of(cursor: Cursor, words: Collection[str]) -> str:
    """The text here, which is one of ``words``."""
    word = text(cursor)
    if word and word not in words:
        allowed = ", ".join(words)
        cursor.report(ValidationError, "not one of the choices", allowed=allowed, hint=nearest(word, words))
        return ""
    return word


def choice(cursor: Cursor, options: type[E]) -> E:
    """The member of an enumeration that is named here; its first when reported."""
    by_name = {str(option.value): option for option in options}
    return by_name.get(one_of(cursor, by_name), next(iter(options)))


def choices(cursor: Cursor, options: type[E]) -> tuple[E, ...]:
    """The members of an enumeration that the list here names, each once, in the enumeration's order."""
    words = [str(option.value) for option in options]
    named: dict[str, Cursor] = {}
    for place in items(cursor):
        word = one_of(place, words)
        if word and named.setdefault(word, place) is not place:
            place.report(ValidationError, "named twice", hint="Keep one of the two.")
    return tuple(option for option in options if str(option.value) in named)


def flag(cursor: Cursor) -> bool:
    """``true`` or ``false``; false where nothing stands."""
    node = cursor.node
    if node is None:
        return False
    if node.tag != _BOOL or node.value not in _BOOLEANS:
        cursor.report(SchemaError, "true or false is wanted")
        return False
    return bool(node.value == "true")


def items(cursor: Cursor) -> list[Cursor]:
    """The places of the list here, which has at least one."""
    if cursor.node is None:
        return []
    if not isinstance(cursor.node, yaml.SequenceNode):
        cursor.report(SchemaError, "a list is wanted")
        return []
    if not cursor.node.value:
        cursor.report(ValidationError, "at least one item is needed")
    return [cursor.item(index, node) for index, node in enumerate(cursor.node.value)]


def entries(cursor: Cursor) -> dict[str, Cursor]:
    """The places of the mapping here by key, each key once."""
    if cursor.node is None:
        return {}
    if not isinstance(cursor.node, yaml.MappingNode):
        cursor.report(SchemaError, "a mapping is wanted")
        return {}
    found: dict[str, Cursor] = {}
    for key, place in _pairs(cursor, cursor.node):
        first = found.setdefault(key, place)
        if first is not place:
            message = f"this key stands in line {first.line} already"
            place.report(SchemaError, message, found="", hint="Keep one of the two.")
    return found


def section(cursor: Cursor, keys: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Cursor]:
    """The place of every one of ``keys`` and ``optional``; unknown and missing keys are reported."""
    known = (*keys, *optional)
    found = entries(cursor)
    _report_unknown(found, known)
    places = {key: found.get(key) or cursor.entry(key, None, cursor.line) for key in known}
    if isinstance(cursor.node, yaml.MappingNode):
        for key in keys:
            if key not in found:
                places[key].report(SchemaError, "missing key")
    return places


def _report_unknown(found: dict[str, Cursor], known: Sequence[str]) -> None:
    for key, place in found.items():
        if key not in known:
            hint = nearest(key, _not_given(known, found)) or nearest(key, known)
            place.report(SchemaError, "unknown key", found="", allowed=", ".join(known), hint=hint)


def _not_given(known: Iterable[str], found: dict[str, Cursor]) -> list[str]:
    return [key for key in known if key not in found]


def _pairs(cursor: Cursor, mapping: yaml.MappingNode) -> Iterator[tuple[str, Cursor]]:
    for key, value in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            cursor.report(SchemaError, f"a key that is not text stands in line {line_of(key)}", found="")
        elif key.tag == _MERGE:
            place = cursor.entry(key.value, value, line_of(key))
            place.report(SchemaError, "merge keys are not read", found="", hint="Write the entries out.")
        else:
            yield key.value, cursor.entry(key.value, value, line_of(key))


def _quote_it(node: yaml.Node) -> str:
    is_plain = isinstance(node, yaml.ScalarNode) and node.tag != NULL
    return f'Quote it: "{shorten(node.value)}".' if is_plain else ""
