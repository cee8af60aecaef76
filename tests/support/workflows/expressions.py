"""GitHub's expressions, as far as this project's workflows use them; anything else is refused.

Source: docs.github.com, "Evaluate expressions in workflows and actions".
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Contexts = Mapping[str, object]
Functions = Mapping[str, Callable[..., object]]
Known = TypeVar("Known")

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>&&|\|\||==|!=|[!().,\[\]]))"
)
_PYTHON = {"&&": "and", "||": "or", "!": "~"}
"""Python's operators with the same precedence."""
_WORDS = {"true": True, "false": False, "null": None}
_INSIDE = re.compile(r"\$\{\{((?:(?!\}\}).)*)\}\}", re.DOTALL)
_STATUS = re.compile(r"\b(?:success|failure|always|cancelled)\(")


class ExpressionError(Exception):
    """The expression is wrong, or has a part that this module does not know."""


def evaluate(expression: str, contexts: Contexts, functions: Functions) -> object:
    """Return the value of an expression. Raises ``ExpressionError``."""
    tokens = list(_tokens(expression))
    python = " ".join(
        _PYTHON.get(token, token) if kind == "sign" else f"_{place}"
        for place, (kind, token) in enumerate(tokens)
    )
    try:
        tree = ast.parse(python.replace(", )", ", ,"), mode="eval")  # Python allows a comma at the end
        return _Values(tokens, contexts, {"fromJSON": _from_json, **functions}).of(tree.body)
    except (SyntaxError, ExpressionError) as error:
        raise ExpressionError(f"{expression.strip()!r}: {error}") from error


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


@dataclass(frozen=True)
class _Values:
    """Values of an expression's parts, given as Python's tree of it: ``_0`` stands for its first token."""

    tokens: Sequence[tuple[str, str]]
    contexts: Contexts
    functions: Functions

    def of(self, node: ast.expr) -> object:
        """Return a part's value; all operands are evaluated, so that none has anything unknown."""
        match node:
            case ast.BoolOp(op=joint, values=[first, *rest]):
                value = self.of(first)
                for other in map(self.of, rest):
                    value = other if is_true(value) == isinstance(joint, ast.And) else value
            case ast.Compare(left=left, ops=signs, comparators=rights):
                value = self.of(left)
                for sign, right in zip(signs, map(self.of, rights), strict=True):
                    value = _equal(value, right) == isinstance(sign, ast.Eq)
            case ast.UnaryOp(operand=operand):
                value = not is_true(self.of(operand))
            case ast.Attribute(value=whole, attr=member):
                value = _of(self.of(whole), self._named(member))
            case ast.Subscript(value=whole, slice=key):
                value = _of(self.of(whole), self.of(key))
            case ast.Call(func=ast.Name(id=function), args=arguments):
                value = self._known(self.functions, function)(*map(self.of, arguments))
            case ast.Name(id=leaf):
                value = self._leaf(leaf)
            case _:
                raise ExpressionError("it has a part that is not understood")
        return value

    def _leaf(self, place: str) -> object:
        kind, token = self.tokens[int(place[1:])]
        if kind == "name":
            return _WORDS[token] if token in _WORDS else self._known(self.contexts, place)
        return float(token) if kind == "number" else token[1:-1].replace("''", "'")

    def _named(self, place: str) -> str:
        kind, token = self.tokens[int(place[1:])]
        if kind != "name":
            raise ExpressionError(f"{token} is not the name of a member")
        return token

    def _known(self, all_known: Mapping[str, Known], place: str) -> Known:
        name = self._named(place)
        if name not in all_known:
            raise ExpressionError(f"{name} is not known")
        return all_known[name]


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each token."""
    at, end = 0, len(expression.rstrip())
    while at < end:
        found = _TOKEN.match(expression, at)
        if found is None or found.lastgroup is None:
            raise ExpressionError(f"{expression.strip()!r}: {expression[at:].strip()!r} is not understood")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _of(value: object, key: object) -> object:
    """Return a value's member; null where there is none, as GitHub does."""
    if isinstance(value, list) and isinstance(key, int | float):
        return value[int(key)] if 0 <= key < len(value) else None
    if isinstance(value, Mapping):
        return next((found for name, found in value.items() if name.lower() == text_of(key).lower()), None)
    return None
