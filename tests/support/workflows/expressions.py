"""GitHub's expressions, as far as this project's workflows use them; anything else is refused.

Python evaluates them, with operators of the same precedence on ``_Value``.
Source: docs.github.com, "Evaluate expressions in workflows and actions".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping

Contexts = Mapping[str, object]
Functions = Mapping[str, Callable[..., object]]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>&&|\|\||==|!=|[!().,\[\]]))"
)
_PYTHON = {"&&": "and", "||": "or", "!": "~", "==": "<<", "!=": ">>", ".": ""}
_WORDS = {"true": True, "false": False, "null": None}
_INSIDE = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_STATUS = re.compile(r"\b(?:success|failure|always|cancelled)\(")


def evaluate(expression: str, contexts: Contexts, functions: Functions) -> object:
    """Return the value of an expression."""
    values: list[object] = []
    python = " ".join(_translated(expression, contexts, {"fromJSON": _from_json, **functions}, values))
    return eval(python, {"__builtins__": {}, "_": values}).raw  # noqa: S307 - of operators and ``values``


def _translated(
    expression: str, contexts: Contexts, functions: Functions, values: list[object]
) -> Iterator[str]:
    """Yield the words of a Python expression, in which ``_[n]`` stands for the n-th of ``values``."""
    before = ""
    for kind, token in _tokens(expression):
        if before == ".":
            yield f"[{token!r}]"
        elif kind == "sign":
            yield _PYTHON.get(token, token)
        else:
            values.append(_value(kind, token, contexts, functions))
            yield f"_[{len(values) - 1}]"
        before = token


def _value(kind: str, token: str, contexts: Contexts, functions: Functions) -> object:
    """Return the value of a text, a number or a name: for a function's, what calls it."""
    if kind != "name":
        return _Value(float(token) if kind == "number" else token[1:-1].replace("''", "'"))
    if token in functions:
        return lambda *given: _Value(functions[token](*(one.raw for one in given)))
    return _Value({**contexts, **_WORDS}[token])


def filled(text: str, contexts: Contexts, functions: Functions) -> object:
    """Return ``text`` with the values of its ``${{ }}``; of one that is all of the text, the value itself."""
    if whole := _INSIDE.fullmatch(text.strip()):
        return evaluate(whole[1], contexts, functions)
    return _INSIDE.sub(lambda found: text_of(evaluate(found[1], contexts, functions)), text)


def holds(condition: str, contexts: Contexts, functions: Functions) -> bool:
    """Return whether an ``if:`` holds. One that asks for no status has ``success() &&`` before it."""
    whole = _INSIDE.fullmatch(condition.strip())
    asked = whole[1] if whole else condition
    if not _STATUS.search(asked) and not functions["success"]():
        return False
    return is_true(evaluate(asked, contexts, functions))


def is_true(value: object) -> bool:
    """Return whether GitHub takes a value for true: lists and objects always are."""
    return isinstance(value, list | dict) or (bool(value) and value == value)  # noqa: PLR0124 - NaN is not


def text_of(value: object) -> str:
    """Return a value as GitHub writes it into text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}"
    assert isinstance(value, str | int)
    return str(value)


def _from_json(text: object) -> object:
    return json.loads(text_of(text))


def _number(value: object) -> float:
    if isinstance(value, str):
        try:
            return float(value.strip() or 0)
        except ValueError:
            return math.nan
    return float(value or 0) if value is None or isinstance(value, bool | int | float) else math.nan


def _equal(left: object, right: object) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    return left is right or _number(left) == _number(right)


class _Value:
    """A value with GitHub's truth, members, and equality as ``<<``."""

    def __init__(self, raw: object) -> None:
        self.raw = raw

    def __bool__(self) -> bool:
        return is_true(self.raw)

    def __invert__(self) -> _Value:
        return _Value(not self)

    def __lshift__(self, other: _Value) -> _Value:
        return _Value(_equal(self.raw, other.raw))

    def __rshift__(self, other: _Value) -> _Value:
        return _Value(not _equal(self.raw, other.raw))

    def __getitem__(self, key: str | _Value) -> _Value:
        return _Value(_of(self.raw, key.raw if isinstance(key, _Value) else key))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each token."""
    at, end = 0, len(expression.rstrip())
    while at < end:
        found = _TOKEN.match(expression, at)
        assert found is not None and found.lastgroup is not None, f"{expression[at:]!r} is not understood"  # noqa: PT018
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _of(value: object, key: object) -> object:
    """Return a value's member; null where there is none, as GitHub does."""
    if isinstance(value, list) and isinstance(key, int | float):
        return value[int(key)] if 0 <= key < len(value) else None
    if isinstance(value, Mapping):
        return next((found for name, found in value.items() if name.lower() == text_of(key).lower()), None)
    return None
