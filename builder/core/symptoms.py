"""From what was seen to findings: the rules of ``doctor``. Every code has a row in docs/doctor.md."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, Mapping, Tuple

from builder.core import (
    signs_absent,
    signs_card,
    signs_container,
    signs_cuda,
    signs_library,
    signs_package,
    signs_trial,
)
from builder.core.seen import MISSING, NONE, Seen
from builder.core.signs_cuda import failures
from builder.core.symptom import Advice, Rule, Severity, Symptom

_FAMILIES = (
    signs_absent,
    signs_card,
    signs_container,
    signs_cuda,
    signs_library,
    signs_package,
    signs_trial,
)
ADVICE: Mapping[str, Advice] = {
    code: advice for family in _FAMILIES for code, advice in sorted(family.BOOK.advice.items())
}
"""Every code there is."""
_CHAIN: Tuple[Rule, ...] = (
    signs_absent.hidden,
    signs_card.ignored,
    *signs_container.CHAIN,
    *signs_absent.CHAIN,
)
_ALWAYS: Tuple[Rule, ...] = (
    signs_absent.stated,
    signs_absent.forbidden,
    *signs_cuda.RULES,
    *signs_card.RULES,
    *signs_container.RULES,
    *signs_package.RULES,
    *signs_library.RULES,
    *signs_trial.RULES,
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
    if seen.reply("libcuda").outcome not in (MISSING, NONE) or failures(seen):
        return []
    return next((found for found in (list(rule(seen)) for rule in _CHAIN) if found), [])


def _run(rules: Iterable[Rule], seen: Seen) -> Iterator[Symptom]:
    for rule in rules:
        yield from rule(seen)
