"""Dataclasses are converted to JSON values and back. Each key must be known, each value of its type.

The types are those of the project's formats: ``str``, ``int``, ``float``, ``bool``, ``Optional``,
``Tuple[X, ...]``, ``Mapping[str, X]`` and dataclasses of these. The module needs the standard library only,
Python 3.9 or newer.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping as AbstractMapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice, takewhile
from typing import (
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from builder.errors import ConfigError, ParseError, SchemaError, ValidationError
from builder.formats.text import SURROGATE, printable

T = TypeVar("T")

_WIDTH = 60

MOST_PROBLEMS = 100
"""The most problems of one file that an error names."""

_UNIONS = (Union, getattr(types, "UnionType", Union))
"""``Optional[X]`` and, from Python 3.10 on, ``X | None``."""

_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}

_LARGEST = 2**63
"""The limit for whole numbers. Real sizes and counts are far below; larger values do not fit ``float`` or the
kernel."""


OPTIONAL: Mapping[str, bool] = {"optional": True}
"""``metadata`` of a dataclass's field that files leave out where it has its default."""


def to_json(value: object) -> object:
    """Return the JSON value of a dataclass, tuple, mapping or scalar; keys keep their declared order."""
    if is_dataclass(value):
        named = ((one, getattr(value, one.name)) for one in fields(value))
        return {
            one.name: to_json(item)
            for one, item in named
            if not ("optional" in one.metadata and item == one.default)
        }
    if isinstance(value, AbstractMapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def json_text(value: object) -> str:
    """Return the text of a file with the JSON value of ``value``. The same value gives the same bytes."""
    return json.dumps(to_json(value), indent=2, ensure_ascii=False) + "\n"


def parse_json(text: Union[str, bytes], where: str, advice: str = "") -> object:
    """Return the value of a JSON text, in which no object has a key twice.

    Raises ``ParseError``, whose message begins with ``where`` and ends with ``advice``.
    """
    try:
        return cast("object", json.loads(text, object_pairs_hook=_object))
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{where} is not JSON: {error}. {advice}".rstrip()) from error


def value_at(value: object, path: str) -> object:
    """Return the value under a path of keys, ``a.b.c``; ``None`` if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _object(pairs: List[Tuple[str, object]]) -> Dict[str, object]:
    """Return the pairs as a dictionary. Raises ``ValueError`` for a key that is there twice.

    Of two values one reader takes the first, another the last.
    """
    members: Dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} occurs twice")
        members[key] = value
    return members


def read_document(
    kind: Type[T],
    text: Union[str, bytes],
    where: str,
    known: Sequence[int],
    *,
    advice: str = "",
    older: str = "",
    upgrade: Callable[[object], object] = lambda value: value,
) -> T:
    """Return the ``kind`` that a file's JSON text describes; ``where`` names the file in errors.

    ``known`` are the formats that are read, oldest first; ``upgrade`` turns a value of an older one into one
    of the newest. Raises ``ParseError`` (no JSON, with ``advice``), ``ValidationError`` (another format, with
    the advice ``older`` for one before the first known) and ``SchemaError`` (naming every wrong key).
    """
    value = parse_json(text, where, advice)
    version = value.get("format") if isinstance(value, dict) else None
    if version is not None and (type(version) is not int or version not in known):
        before = type(version) is int and 0 < version < known[0]
        raise ValidationError(
            f"{where} has format {version!r}; this ortpacks reads {' and '.join(map(str, known))}.",
            advice=older if before and older else "Update ortpacks.",
        )
    return from_json(kind, upgrade(value), where)


def require_valid(problems: Iterable[str], where: str, error: Type[ConfigError] = ValidationError) -> None:
    """Raise ``error`` with the first ``MOST_PROBLEMS`` problems, each after ``where``."""
    if lines := [f"{where}: {problem}" for problem in islice(problems, MOST_PROBLEMS)]:
        raise error(lines)


def problem_of_text(parse: Callable[[str], object], text: str, where: str) -> Iterator[str]:
    """Yield ``where: problem`` where ``parse`` raises ``ValueError`` for ``text``."""
    try:
        parse(text)
    except ValueError as error:
        yield f"{where}: {error}"


def from_json(kind: Type[T], value: object, where: str) -> T:
    """Return the ``kind`` that a JSON value describes.

    Raises ``SchemaError`` with the paths of the first ``MOST_PROBLEMS`` wrong keys, after ``where``.
    """
    problems: List[str] = []
    result = _read(kind, value, "", problems)
    if problems:
        shown = [*problems[:MOST_PROBLEMS], *(["and more"] if len(problems) > MOST_PROBLEMS else [])]
        raise SchemaError([f"{where}: {problem}" for problem in shown])
    return cast("T", result)


def _read(kind: object, value: object, where: str, problems: List[str]) -> object:
    """Return the value of the type ``kind``, and add what is wrong to ``problems``."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        item = next(part for part in parts if part is not type(None))
        return None if value is None else _read(item, value, where, problems)
    if origin is tuple:
        return _read_list(parts[0], value, where, problems)
    if origin is AbstractMapping:
        members = _as_object(value, where, problems)
        items = _while_few(members.items(), problems)
        return {key: _read(parts[1], item, _below(where, key), problems) for key, item in items}
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_fields(kind, value, where, problems)
    return _read_scalar(kind, value, where, problems)


def _read_scalar(kind: object, value: object, where: str, problems: List[str]) -> object:
    if type(value) is not kind and not (kind is float and type(value) is int):
        problems.append(f"{where}: {_NAMES[cast('type', kind)]} is wanted, found {_spell(value)}")
    elif isinstance(value, int) and abs(value) >= _LARGEST:
        problems.append(f"{where}: a whole number below 2**63 is wanted")
    elif isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{where}: a finite number is wanted, found {_spell(value)}")
    elif isinstance(value, str) and SURROGATE.search(value):
        problems.append(f"{where}: {_spell(value)} holds half of a surrogate pair, which no file can hold")
    return value


def _read_list(kind: object, value: object, where: str, problems: List[str]) -> object:
    if not isinstance(value, list):
        problems.append(f"{where}: a list is wanted, found {_spell(value)}")
        return ()
    items = _while_few(enumerate(value), problems)
    return tuple(_read(kind, item, f"{where}[{index}]", problems) for index, item in items)


def _while_few(items: Iterable[T], problems: Sequence[str]) -> Iterator[T]:
    """Yield items until there are more than ``MOST_PROBLEMS``: an untrusted file may hold millions."""
    return takewhile(lambda _: len(problems) <= MOST_PROBLEMS, items)


def _read_fields(kind: type, value: object, where: str, problems: List[str]) -> object:
    members, hints = _as_object(value, where, problems), _hints(kind)
    before = len(problems)
    problems += [f"{_below(where, key)}: unknown key" for key in members if key not in hints]
    needed = (one.name for one in fields(kind) if "optional" not in one.metadata)
    problems += [f"{_below(where, key)}: missing" for key in needed if key not in members]
    values = {
        key: _read(hint, members[key], _below(where, key), problems)
        for key, hint in hints.items()
        if key in members
    }
    return kind(**values) if len(problems) == before else None


_hints = cache(get_type_hints)
"""The types of a dataclass's fields; ``get_type_hints`` compiles every annotation each time it is asked."""


def _as_object(value: object, where: str, problems: List[str]) -> Dict[str, object]:
    if isinstance(value, dict):
        return value
    problems.append(f"{where or 'the file'}: an object is wanted, found {_spell(value)}")
    return {}


def _below(where: str, key: str) -> str:
    return printable(f"{where}.{key}" if where else key)


def _spell(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
