"""The account of how a session came to its provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One provider that was tried."""

    provider: str
    taken: bool
    reason: str
    """Why it was refused, or what was placed on it."""
    advice: str = ""
    """What to do, by the client's ``doctor``."""


@dataclass
class Report:
    """The provider of a session, and how it came to it. It changes where the session is reopened."""

    provider: str = ""
    """The provider in use: ``cpu``, ``cuda`` …"""
    proved: bool = False
    """Whether a run has computed on ``provider``; until then the session was only opened with it."""
    steps: list[Step] = field(default_factory=list)
    device: Mapping[str, Any] | None = None
    """The GPU in use, with its profile, as the client's ``detect`` describes it."""
    libraries: str = ""
    """The package or wheel that the provider's libraries come from."""
    model: str = ""
    """The file that was opened."""
    dtype: str | None = None
    """The number type of that file; ``None`` where its name does not say it."""
    level: str = "medium"
    options: Mapping[str, str] = field(default_factory=dict)
    """The options of the provider."""
    batch: int | None = None
    """Items to begin a batch with; halved where the GPU's memory did not hold one."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """ONNX Runtime's provider → nodes that the warm-up ran on it."""
    notes: list[str] = field(default_factory=list)

    @property
    def fallback(self) -> Step | None:
        """The last provider that was refused; ``None`` where the first one was taken."""
        refused = [step for step in self.steps if not step.taken]
        return refused[-1] if refused else None

    def value(self) -> dict[str, Any]:
        """The report for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people."""
        told = [f"{self.provider}{'' if self.proved else ' (not run yet)'}: {self.libraries}"]
        if self.device:
            told.append(f"  on GPU {self.device['index']}: {self.device['name']}")
        for step in self.steps:
            told.append(f"  {step.provider}: {'taken' if step.taken else 'refused'}: {step.reason}")
            told += [f"    do: {step.advice}"] if step.advice else []
        return [*told, *(f"  note: {note}" for note in self.notes)]
