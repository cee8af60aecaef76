"""All checks of ``doctor`` are run on the observations of a machine."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, Tuple

from builder.findings import check_container, check_cuda, check_driver, check_libraries, check_package
from builder.findings.check_cuda import failures
from builder.findings.finding import Finding, Severity
from builder.findings.observations import Observations, Outcome

Rule = Callable[[Observations], Iterator[Finding]]

_RULES: Tuple[Rule, ...] = (
    *check_driver.RULES,
    *check_container.RULES,
    *check_cuda.RULES,
    *check_libraries.RULES,
    *check_package.RULES,
)

_CAUSES: Tuple[Rule, ...] = (
    check_driver.hidden_gpus,
    check_driver.dropped_by_driver,
    *check_container.CAUSES,
    *check_driver.CAUSES,
)
"""Reasons for which CUDA has no GPU. The first rule with a finding names the cause, and later ones would name
consequences."""


def diagnose(observed: Observations) -> Tuple[Finding, ...]:
    """Return all findings, worst first, then by code. A cause is reported without its consequences."""
    always = (finding for rule in _RULES for finding in rule(observed))
    found: Dict[Tuple[str, str], Finding] = {}
    for finding in (*_why_no_gpu(observed), *always):
        found.setdefault((finding.code.name, finding.message), finding)
    order = list(Severity)
    return tuple(sorted(found.values(), key=lambda one: (order.index(one.severity), one.code.name)))


def _why_no_gpu(observed: Observations) -> Iterable[Finding]:
    """Return the cause of CUDA having no GPU; empty where CUDA lists a GPU or failed with a number."""
    if observed.reply("libcuda").outcome not in (Outcome.MISSING, Outcome.NONE) or failures(observed):
        return []
    return next((found for found in (list(rule(observed)) for rule in _CAUSES) if found), [])
