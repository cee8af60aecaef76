"""The severity, the meaning and the remedy of each of ``doctor``'s codes; ``advice.json`` has the texts.

docs/doctor.md has a row for each code, which is made from the same file. A code is never used twice.
"""

from __future__ import annotations

import json
import pkgutil
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Mapping

from builder.finding import Severity
from builder.formats.missing_kernels import CURE, NO_KERNEL
from builder.formats.package_names import CUDA, SERVED

_SHARED = {"{cure}": CURE, "{no_kernel}": NO_KERNEL, "{served}": ", ".join(SERVED[CUDA])}
"""The texts that other modules use too, by their names in ``advice.json``."""


@dataclass(frozen=True)
class MachineFinding:
    """One observation of ``doctor``, with what it means and what to do."""

    code: str
    severity: Severity
    seen: str
    means: str
    do: str


@lru_cache(1)
def catalogue() -> Mapping[str, MachineFinding]:
    """Return each code's finding in general; a ``{name}`` in a text stands for an observed value."""
    text = (pkgutil.get_data(__name__, "advice.json") or b"").decode()
    for name, shared in _SHARED.items():
        text = text.replace(name, shared)
    return {
        code: MachineFinding(code, **{**row, "severity": Severity(row["severity"])})
        for code, row in json.loads(text).items()
    }


def finding(code: str, seen: str, **values: object) -> MachineFinding:
    """Return the finding ``code`` with the observation ``seen``; ``values`` fill its advice."""
    general = catalogue()[code]
    means, do = (text.format(**values) for text in (general.means, general.do))
    return replace(general, seen=seen, means=means, do=do)
