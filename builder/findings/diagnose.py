"""From what was seen to findings: the rules of ``doctor``. Every code has a row in docs/doctor.md."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Mapping, Tuple

from builder.findings import (
    check_cards,
    check_container,
    check_cuda,
    check_driver,
    check_libraries,
    check_package,
    check_session,
)
from builder.findings.check_cuda import failures
from builder.findings.observed import Outcome, Seen
from builder.findings.symptom import Advice, Rule, Severity, Symptom

_FAMILIES = (
    check_driver,
    check_cards,
    check_container,
    check_cuda,
    check_libraries,
    check_package,
    check_session,
)

ADVICE: Mapping[str, Advice] = {
    code: advice for family in _FAMILIES for code, advice in sorted(family.BOOK.advice.items())
}
"""Every code there is."""

_CHAIN: Tuple[Rule, ...] = (
    check_driver.hidden,
    check_cards.ignored,
    *check_container.CHAIN,
    *check_driver.CHAIN,
)

_ALWAYS: Tuple[Rule, ...] = (
    check_driver.stated,
    check_driver.forbidden,
    *check_cuda.RULES,
    *check_cards.RULES,
    *check_container.RULES,
    *check_package.RULES,
    *check_libraries.RULES,
    *check_session.RULES,
)


def diagnose(seen: Seen) -> Tuple[Symptom, ...]:
    """All findings, worst first, then by code. One cause is told once, not its consequences."""
    found: Dict[Tuple[str, str], Symptom] = {}
    for symptom in (*_why_blind(seen), *_run(_ALWAYS, seen)):
        found.setdefault((symptom.code, symptom.seen), symptom)
    order = list(Severity)
    return tuple(sorted(found.values(), key=lambda one: (order.index(one.severity), one.code)))


def _why_blind(seen: Seen) -> Iterable[Symptom]:
    """Why CUDA has no GPU, where it was asked, has none, and nothing failed with a number of its own."""
    if seen.reply("libcuda").outcome not in (Outcome.MISSING, Outcome.NONE) or failures(seen):
        return []
    return next((found for found in (list(rule(seen)) for rule in _CHAIN) if found), [])


def _run(rules: Iterable[Rule], seen: Seen) -> Iterator[Symptom]:
    for rule in rules:
        yield from rule(seen)
