"""A finding of ``doctor``: what was seen, what it means, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Callable, Iterator, Mapping

from builder.findings.observed import Seen


class Severity(Enum):
    """How bad it is, worst first. An error keeps the GPU from being used, or will give wrong answers."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Advice:
    """What a code stands for; ``{name}`` in a text is filled in from what was seen."""

    severity: Severity
    means: str
    do: str


@dataclass(frozen=True)
class Symptom:
    """One finding. The code is stable: docs/doctor.md has a row for each."""

    code: str
    severity: Severity
    seen: str
    means: str
    do: str


Rule = Callable[[Seen], Iterator[Symptom]]


@dataclass(frozen=True)
class Book:
    """The codes of one family."""

    advice: Mapping[str, Advice]

    def found(self, code: str, seen: str, **values: object) -> Symptom:
        """The symptom ``code``; ``values`` are for its texts."""
        advice = self.advice[code]
        means, do = advice.means.format(**values), advice.do.format(**values)
        return Symptom(code=code, severity=advice.severity, seen=seen, means=means, do=do)
