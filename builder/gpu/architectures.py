"""Value types for architectures of code and compute capabilities of devices."""

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
        """Return the capability that a text like ``"8.6"`` names. Raises ``ValueError`` for other text."""
        match = _CAPABILITY.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a compute capability like 8.6")
        return cls(int(match[1]), int(match[2]))

    @property
    def number(self) -> int:
        """The number of the architecture for this capability: ``86`` for 8.6."""
        return self.major * 10 + self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, order=True)
class Arch:
    """Architecture of SASS or PTX: the ``90a`` of ``sm_90a`` and of ``compute_90a``."""

    major: int
    minor: int
    suffix: str = ""
    """``""``, ``"a"`` (exactly this capability) or ``"f"`` (the family that begins here)."""

    @classmethod
    def parse(cls, text: str) -> Arch:
        """Return the architecture that ``"86"``, ``"sm_90a"`` or ``"compute_120f"`` names.

        Raises ``ValueError`` for other text.
        """
        match = _ARCH.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not an architecture like 86, sm_90a or compute_120")
        return cls(int(match[1]), int(match[2]), match[3])

    @property
    def number(self) -> int:
        """The number without suffix: ``86`` for ``sm_86``, ``90`` for ``sm_90a``."""
        return self.major * 10 + self.minor

    def __str__(self) -> str:
        return f"{self.number}{self.suffix}"
