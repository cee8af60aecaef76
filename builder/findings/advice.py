"""A check of ``doctor``: its name, the rules that find something, and what each code means and advises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterator, Mapping, Tuple

from builder.findings.finding import Code, Finding, Severity
from builder.findings.observed import Seen


@dataclass(frozen=True)
class Advice:
    """What a code means and what to do about it; ``{name}`` in a text is filled in from what was seen."""

    severity: Severity
    means: str
    do: str


@dataclass(frozen=True)
class Fixes:
    """The advice of one check by code. docs/doctor.md has a row for each."""

    advice: Mapping[str, Advice]

    def found(self, code: str, seen: str, **values: object) -> Finding:
        """The finding ``code`` with ``seen`` as its message; ``values`` fill the texts of its advice."""
        advice = self.advice[code]
        return Finding(
            code=Code[code],
            path="",
            message=seen,
            severity=advice.severity,
            means=advice.means.format(**values),
            do=advice.do.format(**values),
        )


Rule = Callable[[Seen], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """One topic that ``doctor`` examines."""

    name: str
    group: str
    """What its codes begin with: ``D0`` the driver and the cards, ``D1`` containers and systems, ``D2`` the
    package in use, ``D3`` what is around it, ``D4`` the session."""
    check: Tuple[Rule, ...]
    fix: Fixes
