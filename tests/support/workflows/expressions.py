"""GitHub's expressions, as far as this project's workflows use them; anything else is refused.

Source: docs.github.com, "Evaluate expressions in workflows and actions".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import NoReturn

Contexts = Mapping[str, object]
Functions = Mapping[str, Callable[..., object]]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>&&|\|\||==|!=|[!().,\[\]]))"
)
_WORDS = {"true": True, "false": False, "null": None}
_INSIDE = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_STATUS = re.compile(r"\b(?:success|failure|always|cancelled)\(")


class ExpressionError(Exception):
    """The expression is wrong, or has a part that this module does not know."""


def evaluate(expression: str, contexts: Contexts, functions: Functions) -> object:
    """Return the value of an expression. Raises ``ExpressionError``."""
    return _Reader(expression, contexts, {"fromJSON": _from_json, **functions}).whole()


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
    if isinstance(value, str | int):
        return str(value)
    raise ExpressionError(f"no text can be made of {value!r}")


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


class _Reader:
    """A parser by recursive descent, which evaluates as it reads: no operand has a side effect."""

    def __init__(self, expression: str, contexts: Contexts, functions: Functions) -> None:
        self._expression, self._contexts, self._functions = expression, contexts, functions
        self._tokens: list[tuple[str, str]] = []
        at, end = 0, len(expression.rstrip())
        while at < end:
            found = _TOKEN.match(expression, at)
            if found is None or found.lastgroup is None:
                self._refuse(expression[at:].strip())
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()

    def whole(self) -> object:
        value = self._any()
        if self._tokens:
            self._refuse(self._tokens[0][1])
        return value

    def _refuse(self, what: str) -> NoReturn:
        raise ExpressionError(f"{self._expression.strip()!r}: {what!r} is not understood")

    def _take(self, *signs: str) -> str:
        """Return the next token and remove it if it is one of the signs, else return empty text."""
        if self._tokens and self._tokens[0][0] == "sign" and self._tokens[0][1] in signs:
            return self._tokens.pop(0)[1]
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            self._refuse(self._tokens[0][1] if self._tokens else "its end")

    def _any(self) -> object:
        value = self._all()
        while self._take("||"):
            other = self._all()
            value = value if is_true(value) else other
        return value

    def _all(self) -> object:
        value = self._compared()
        while self._take("&&"):
            other = self._compared()
            value = other if is_true(value) else value
        return value

    def _compared(self) -> object:
        value = self._negated()
        while sign := self._take("==", "!="):
            value = _equal(value, self._negated()) == (sign == "==")
        return value

    def _negated(self) -> object:
        return not is_true(self._negated()) if self._take("!") else self._member()

    def _member(self) -> object:
        value = self._first()
        while sign := self._take(".", "["):
            if sign == ".":
                kind, key = self._tokens.pop(0) if self._tokens else ("", "its end")
                if kind != "name":
                    self._refuse(key)
                value = _of(value, key)
            else:
                value = _of(value, self._any())
                self._need("]")
        return value

    def _first(self) -> object:
        if self._take("("):
            value = self._any()
            self._need(")")
            return value
        kind, token = self._tokens.pop(0) if self._tokens else ("", "its end")
        if kind == "text":
            return token[1:-1].replace("''", "'")
        if kind == "number":
            return float(token)
        if kind != "name":
            self._refuse(token)
        if token in _WORDS:
            return _WORDS[token]
        if self._take("("):
            return self._call(token)
        if token not in self._contexts:
            self._refuse(token)
        return self._contexts[token]

    def _call(self, name: str) -> object:
        arguments: list[object] = []
        while not self._take(")"):
            if arguments:
                self._need(",")
            arguments.append(self._any())
        if name not in self._functions:
            self._refuse(f"{name}()")
        return self._functions[name](*arguments)


def _of(value: object, key: object) -> object:
    """Return a value's member; null where there is none, as GitHub does."""
    if isinstance(value, list) and isinstance(key, int | float):
        return value[int(key)] if 0 <= key < len(value) else None
    if isinstance(value, Mapping):
        return next((found for name, found in value.items() if name.lower() == text_of(key).lower()), None)
    return None
