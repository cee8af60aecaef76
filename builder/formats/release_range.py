"""Ranges of ONNX Runtime releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from builder.gpu.cuda_toolkits import version_of
from builder.gpu.table import Version


@dataclass(frozen=True)
class ReleaseRange:
    """A range of releases, both ends included; ``None`` is open.

    An end of two numbers stands for all patch releases of its line: ``(1, 24)`` holds 1.24.4.
    """

    first: Optional[Version] = None
    last: Optional[Version] = None

    def __contains__(self, version: str) -> bool:
        numbers = version_of(version)
        above = self.first is None or numbers >= self.first
        return above and (self.last is None or numbers[: len(self.last)] <= self.last)


ALWAYS = ReleaseRange()
