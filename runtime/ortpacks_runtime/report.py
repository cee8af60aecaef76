"""The report says how a session got its provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ortpacks_runtime.providers import CPU


@dataclass(frozen=True)
class Step:
    """An attempt to use one provider."""

    provider: str
    taken: bool
    reason: str
    """Reason of the refusal, or the nodes that were placed on the provider."""
    advice: str = ""
    """Advice to the user, from the client's ``doctor``."""


@dataclass
class Report:
    """The provider of a session, and the steps that led to it. It changes when the session is reopened."""

    provider: str = ""
    """Provider in use: ``cpu``, ``cuda`` …"""
    proved: bool = False
    """Whether a run has computed on ``provider``; until then the session was only opened with it."""
    steps: list[Step] = field(default_factory=list)
    device: Mapping[str, Any] | None = None
    """The GPU in use, with its profile, as the client's ``detect`` describes it."""
    libraries: str = ""
    """Package or wheel of the provider's libraries."""
    model: str = ""
    """Path of the opened file, or the number of bytes."""
    dtype: str | None = None
    """Number type of that file; ``None`` if its name does not say it."""
    level: str = "medium"
    options: Mapping[str, str] = field(default_factory=dict)
    """The options of the provider."""
    batch: int | None = None
    """Number of items for the first batch; it is halved when a batch does not fit into the GPU's memory."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes that the warm-up ran, by ONNX Runtime's name of the provider."""
    notes: list[str] = field(default_factory=list)
    loaded: Mapping[str, str] = field(default_factory=dict)
    """Version of each library of ONNX Runtime and CUDA in the process, by path; ``""`` where none is told."""

    @property
    def fallback(self) -> Step | None:
        """The last provider that was refused before the CPU was taken; ``None`` on any other provider."""
        refused = [step for step in self.steps if not step.taken]
        return refused[-1] if refused and self.provider == CPU else None

    def value(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [f"{self.provider}{'' if self.proved else ' (not run yet)'}: {self.libraries}"]
        if self.device:
            lines.append(f"  on GPU {self.device['index']}: {self.device['name']}")
        for step in self.steps:
            lines.append(f"  {step.provider}: {'taken' if step.taken else 'refused'}: {step.reason}")
            lines += [f"    do: {step.advice}"] if step.advice else []
        lines += [f"  in use: {path} {version}".rstrip() for path, version in self.loaded.items()]
        return [*lines, *(f"  note: {note}" for note in self.notes)]
