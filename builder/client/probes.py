"""What a probe answers, and the words for how it went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional, Tuple

from builder.core.device import Device


class Outcome(Enum):
    """How a probe went."""

    FOUND = "found"
    NONE = "none"
    """It works and says there is nothing."""
    MISSING = "missing"
    """The library, program or file is not there."""
    FAILED = "failed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    """Not asked: an earlier probe settled it."""


@dataclass(frozen=True)
class Probe:
    """One question to the machine, kept for the user to read."""

    name: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Report:
    """A probe's answer with what it found."""

    probe: Probe
    devices: Tuple[Device, ...] = ()
    driver: Optional[str] = None


def report(
    name: str, outcome: Outcome, detail: str, devices: Tuple[Device, ...] = (), driver: Optional[str] = None
) -> Report:
    """A ``Report`` with its ``Probe`` in one go."""
    return Report(Probe(name, outcome, detail), devices, driver)
