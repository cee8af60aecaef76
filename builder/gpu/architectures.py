"""Architectures of code and compute capabilities of devices, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ARCH = re.compile(r"(?:sm_|compute_)?(\d{1,2})(\d)([af]?)")

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")


@dataclass(frozen=True, order=True)
class Capability:
    """Compute capability of a device, e.g. ``8.6``."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Read ``"8.6"``; ``ValueError`` on anything else."""
        match = _CAPABILITY.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a compute capability like 8.6")
        return cls(int(match[1]), int(match[2]))

    @property
    def number(self) -> int:
        """``86`` for 8.6: the number of the architecture that is made for it."""
        return self.major * 10 + self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, order=True)
class Arch:
    """Architecture of code: ``sm_86``, ``sm_90a``, ``compute_120f`` without saying SASS or PTX."""

    major: int
    minor: int
    suffix: str = ""
    """``""``, ``"a"`` (exactly this capability) or ``"f"`` (this family)."""

    @classmethod
    def parse(cls, text: str) -> Arch:
        """Read ``"86"``, ``"sm_90a"`` or ``"compute_120f"``; ``ValueError`` on anything else."""
        match = _ARCH.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not an architecture like 86, sm_90a or compute_120")
        return cls(int(match[1]), int(match[2]), match[3])

    @property
    def number(self) -> int:
        """``86`` for ``sm_86``, ``90`` for ``sm_90a``."""
        return self.major * 10 + self.minor

    def __str__(self) -> str:
        return f"{self.number}{self.suffix}"
