"""Variables and conditions of CMake, of which a part may be unknown.

A variable that nothing known has set is unknown, not empty. Sources: CMake's manual, ``cmake-language(7)``,
``if()``, ``list()`` and ``string()``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from builder.facts.ort.cmake_language import Argument

Truth = bool | None
"""Whether a condition holds; ``None`` if it is unknown."""

UNKNOWN = "\0"
"""Stands in a value for a part that is not known."""

MAYBE = "\1"
"""Stands in a list before items that it may have."""

_DOLLAR = "\2"
"""Stands in a text for a dollar sign that begins no reference."""

_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_./+-]+)\}")

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

_NAME = re.compile(r"[A-Za-z_]\w*")

_FALSE = re.compile(r"|0|OFF|NO|FALSE|N|IGNORE|NOTFOUND|.*-NOTFOUND", re.IGNORECASE)

_TRUE = re.compile(r"ON|YES|TRUE|Y|[+-]?[1-9][0-9]*", re.IGNORECASE)

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")

_ORDERS = {
    "EQUAL": (0,),
    "LESS": (-1,),
    "GREATER": (1,),
    "LESS_EQUAL": (-1, 0),
    "GREATER_EQUAL": (0, 1),
}
"""The orders of two values, as -1, 0 or 1, for which a comparison holds."""

_NESTED = 4
"""How deep a reference is followed: ``${${X}}`` is two deep."""


def is_open(value: str) -> bool:
    """Return whether a part of a value is unknown."""
    return UNKNOWN in value or MAYBE in value


def is_name(word: str) -> bool:
    """Return whether a word can be the name of a variable."""
    return _NAME.fullmatch(word) is not None


def items(text: str) -> list[str]:
    """Return the items of a list that are not empty."""
    return [item for item in text.split(";") if item]


def negated(value: Truth) -> Truth:
    """Return the negation; unknown for unknown."""
    return None if value is None else not value


def both(one: Truth, other: Truth) -> Truth:
    """Return whether both hold."""
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def either(one: Truth, other: Truth) -> Truth:
    """Return whether at least one of them holds."""
    return negated(both(negated(one), negated(other)))


def matched(pattern: str, text: str) -> tuple[Truth, Sequence[str]]:
    """Return whether a pattern of CMake's is found in a text, and the match and its groups; else none."""
    if is_open(pattern + text):
        return None, ()
    try:
        match = re.search(pattern, text)
    except re.error:  # CMake's own dialect
        return None, ()
    return match is not None, [match[0], *(group or "" for group in match.groups())] if match else ()


@dataclass
class Variables:
    """The variables of a run of CMake, of all scopes."""

    values: dict[str, str | None]
    """Values by name, in which ``UNKNOWN`` stands for each unknown part; ``None``: known to be unset."""
    named: Collection[str] = ()
    """Every word that a command other than a condition has: a variable that is set is one of them."""
    targets: Collection[str] = ()
    """Names of the targets that were certainly made."""
    project: str = ""
    """The project's name in lower case, once ``project`` was read."""
    outer: list[dict[str, str | None]] = field(default_factory=list)
    """The variables of the callers of the function that runs, the nearest one last."""

    def value(self, name: str) -> str:
        """Return a variable's value. One of the project's own variables that no file sets is empty."""
        if name in self.values:
            return self.values[name] or ""
        is_own = bool(self.project) and name.lower().startswith(f"{self.project}_")
        return "" if is_own and name not in self.named else UNKNOWN

    def text(self, argument: Argument) -> str:
        """Return an argument with its references and escapes resolved."""
        if argument.is_raw or not ("$" in argument.text or "\\" in argument.text):
            return argument.text
        known = _ESCAPE.sub(_unescaped, argument.text)
        for _ in range(_NESTED):
            known = _REFERENCE.sub(lambda match: self.value(match[1]), known)
        return re.sub(r"\$(?:ENV|CACHE)?\{.*\}", UNKNOWN, known).replace(_DOLLAR, "$")

    def words(self, arguments: Iterable[Argument]) -> list[str]:
        """Return the words that a command gets: a list in an argument without quotes is several."""
        words: list[str] = []
        for argument in arguments:
            text = self.text(argument)
            words += [text] if argument.is_quoted else items(text)
        return words

    def set(self, name: str, value: str | None) -> None:
        """Set a variable in the scope that runs."""
        self.values[name] = value

    def set_cached(self, name: str, value: str) -> None:
        """Set a variable of the cache, which all scopes see, unless it has a value."""
        for scope in (*self.outer, self.values):
            if scope.get(name) is None:
                scope[name] = value

    def forget(self, words: Iterable[str], given: Collection[str] = ()) -> None:
        """Make each variable that one of the words may name unknown, without those of ``given``."""
        for word in words:
            if is_name(word) and word not in given:
                self.values[word] = UNKNOWN

    def holds(self, arguments: Sequence[Argument]) -> Truth:
        """Return whether a condition holds. ``AND`` and ``OR`` are of one rank, as in CMake."""
        rest = list(arguments)
        holds = self._compound(rest)
        return None if rest else holds

    def _compound(self, rest: list[Argument]) -> Truth:
        holds = self._single(rest)
        while rest and not rest[0].is_quoted and rest[0].text in {"AND", "OR"}:
            join = both if rest.pop(0).text == "AND" else either
            holds = join(holds, self._single(rest))
        return holds

    def _single(self, rest: list[Argument]) -> Truth:
        if not rest:
            return None
        first = rest.pop(0)
        if not first.is_quoted and first.text == "NOT":
            return negated(self._single(rest))
        if not first.is_quoted and first.text == "(":
            holds = self._compound(rest)
            while rest and rest.pop(0).text != ")":
                holds = None  # something that is not understood
            return holds
        if not first.is_quoted and first.text in {"TARGET", "DEFINED", "EXISTS", "COMMAND", "POLICY", "TEST"}:
            return self._exists(first.text, self.text(rest.pop(0))) if rest else None
        if rest and not rest[0].is_quoted and rest[0].text not in {"AND", "OR", ")"}:
            operator = rest.pop(0).text
            right = rest.pop(0) if rest else first
            return self._compared(first, operator, right)
        return self._is_true(first)

    def _exists(self, kind: str, name: str) -> Truth:
        if kind == "TARGET" and name in self.targets:
            return True
        if kind == "DEFINED" and name in self.values:
            return None if self.values[name] == UNKNOWN else self.values[name] is not None
        return None

    def _compared(self, left: Argument, operator: str, right: Argument) -> Truth:
        value = self.operand(left)
        if operator == "MATCHES":
            return self._matches(value, self.text(right))
        if operator == "IN_LIST":
            return _is_in(value, self.value(self.text(right)))
        other = self.operand(right)
        if is_open(value + other):
            return None
        if operator == "STREQUAL":
            return value == other
        order = _order(operator, value, other)
        return None if order is None else order in _ORDERS[operator.removeprefix("VERSION_")]

    def _matches(self, value: str, pattern: str) -> Truth:
        is_found, groups = matched(pattern, value)
        if is_found is None:
            groups = [UNKNOWN] * 10
        self.values |= {f"CMAKE_MATCH_{number}": group for number, group in enumerate(groups)}
        return is_found

    def operand(self, argument: Argument) -> str:
        """Return one side of a comparison: a variable's value, or the text itself."""
        text = self.text(argument)
        if argument.is_quoted:
            return text
        if argument.text != text:
            return self.values.get(text) or text
        return self.value(text) if is_name(text) else text

    def _is_true(self, argument: Argument) -> Truth:
        text = self.text(argument)
        if _TRUE.fullmatch(text):
            return True
        if _FALSE.fullmatch(text):
            return False
        value = self.value(text)
        return None if is_open(value) else _FALSE.fullmatch(value) is None


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r", "$": _DOLLAR}.get(match[1], match[1])


def _is_in(value: str, listed: str) -> Truth:
    if is_open(value):
        return None
    is_certain = value in listed.partition(MAYBE)[0].split(";")
    return is_certain or (None if is_open(listed) else False)


def _order(operator: str, left: str, right: str) -> int | None:
    """Return the order of two values as -1, 0 or 1; ``None`` for an operator that is not known.

    What is no number is in no order with another value, for which 2 stands.
    """
    if operator.removeprefix("VERSION_") not in _ORDERS:
        return None
    if operator.startswith("VERSION_"):
        pairs = zip_longest(*(map(_leading, text.split(".")) for text in (left, right)), fillvalue=0)
        return next((_sign(one - other) for one, other in pairs if one != other), 0)
    if not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)):
        return 2
    return _sign(float(left) - float(right))


def _leading(text: str) -> int:
    digits = re.match(r"\d*", text)
    return int(digits[0]) if digits and digits[0] else 0


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


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
