"""Everything that is wrong with one file: collected while it is read, told in one go."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field

from builder.errors import CompatibilityError, ConfigError, SchemaError, ValidationError

_BASIC_FIRST: tuple[type[ConfigError], ...] = (SchemaError, ValidationError, CompatibilityError)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong. ``line`` counts from 1; ``path`` is the key path, empty for the whole file."""

    kind: type[ConfigError]
    line: int
    path: str
    message: str
    found: str = ""
    allowed: str = ""
    hint: str = ""
    """A whole sentence: what to write instead."""

    def render(self, file: str) -> str:
        """One line: ``variants.yaml:12: cuda.version: text is wanted (found 12.9). Quote it: "12.9".``."""
        facts = [f"found {self.found}"] if self.found else []
        facts += [f"allowed: {self.allowed}"] if self.allowed else []
        what = f"{self.message} ({'; '.join(facts)})" if facts else self.message
        hint = f". {self.hint}" if self.hint else ""
        return f"{file}:{self.line}: {self.path or 'the file'}: {what}{hint}"


@dataclass(frozen=True, kw_only=True)
class Problems:
    """The problems of one file so far."""

    file: str
    """The name that messages begin with."""
    found: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """Note a problem and read on."""
        self.found.append(problem)

    def is_clean(self, *paths: str) -> bool:
        """Whether nothing at, below or above these key paths is wrong: their values can be trusted."""
        return not any(_touches(problem.path, path) for problem in self.found for path in paths)

    def raise_if_any(self) -> None:
        """Raise every problem, in the file's order, as the class of the most basic one."""
        if not self.found:
            return
        kind = min((problem.kind for problem in self.found), key=_BASIC_FIRST.index)
        in_order = sorted(self.found, key=lambda problem: problem.line)
        raise kind([problem.render(self.file) for problem in in_order])


def nearest(word: str, words: Iterable[str]) -> str:
    """``Did you mean legacy?`` for ``legcy``; ``""`` where nothing is near."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f"Did you mean {close[0]}?" if close else ""


def _touches(one: str, other: str) -> bool:
    return not one or one == other or _is_below(one, other) or _is_below(other, one)


def _is_below(path: str, parent: str) -> bool:
    return path.startswith((f"{parent}.", f"{parent}["))
