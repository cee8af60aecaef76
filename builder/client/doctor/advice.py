"""The severity, the meaning and the remedy of each of ``doctor``'s codes; ``advice.json`` has the texts.

docs/reference/codes.md has a row for each code, which is made from the same file. A code is never used
twice. What is to be done depends on the place: ``places.json`` has the places.
"""

from __future__ import annotations

import json
import pkgutil
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Mapping, Optional

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
    machine: Optional[str] = None
    """What is mended outside of a container: ``driver`` or ``restart``; ``None``: it is mended in any
    place."""
    at: Mapping[str, str] = field(default_factory=dict)
    """What to do in a place where ``do`` does not help."""
    values: Mapping[str, object] = field(default_factory=dict)
    """The observed values in the advice."""


@dataclass(frozen=True)
class PlaceAdvice:
    """A kind of place that a program runs in, as a virtual machine, a container, or WSL."""

    title: str
    wider: Optional[str] = None
    """The place whose advice fits here too."""
    prefix: str = ""
    """What precedes advice about the machine: where it is to be followed."""
    driver: str = ""
    restart: str = ""
    """What replaces advice of these two kinds, which name Linux' commands."""


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


@lru_cache(1)
def places() -> Mapping[str, PlaceAdvice]:
    """Return the places that advice knows, by name."""
    rows = json.loads(pkgutil.get_data(__name__, "places.json") or b"")
    return {name: PlaceAdvice(**row) for name, row in rows.items()}


def finding(code: str, seen: str, **values: object) -> MachineFinding:
    """Return the finding ``code`` with the observation ``seen``; ``values`` fill its advice."""
    general = catalogue()[code]
    means, do = (text.format(**values).rstrip() for text in (general.means, general.do))
    return replace(general, seen=seen, means=means, do=do, values=values)


def advice_at(general: MachineFinding, place: str) -> str:
    """Return what to do about a finding in ``place``; it contains no step that cannot help there."""
    here = places()[place]
    own = general.at.get(place) or general.at.get(here.wider or place)
    if own:
        return own.format(**general.values)
    if general.machine is None:
        return general.do
    if here.prefix:
        return here.prefix + general.do
    return getattr(here, general.machine) or general.do
