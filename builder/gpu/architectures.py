"""Architectures of code, capabilities of devices, and which runs on which.

Sources: NVIDIA's Blackwell Compatibility Guide 13.0 and "CUDA 12.9 family-specific features" for the rules;
``DEVICE_REQUIREMENT`` in PyTorch's ``torch/cuda/__init__.py`` for the embedded parts that break the rule
"same major, minor at least"; the PTX ISA for what was renamed ("sm_101a renamed to sm_110a from 9.0").
"""

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


_EMBEDDED = {53: (53,), 62: (62,), 72: (72,), 87: (87,), 101: (101, 110), 110: (110,)}
"""Tegra and Thor parts, and where their SASS runs: it and that of the cards of the same major do not mix.

10.1 became 11.0: from CUDA 13 on, the same part and its targets go by the new number.
"""


def runs_sass(code: Arch, device: Capability) -> bool:
    """Whether SASS of ``code`` runs on ``device``: same major and minor at least, ``a`` exactly its own.

    ``f`` code runs on its family, which is the same set as for plain code. Embedded parts run only their own.
    """
    number = device.major * 10 + device.minor
    if code.number in _EMBEDDED or number in _EMBEDDED:
        return number in _EMBEDDED.get(code.number, ())
    if code.suffix == "a":
        return code.number == number
    return code.major == device.major and code.minor <= device.minor


def jits_ptx(code: Arch, device: Capability) -> bool:
    """Whether a driver can compile PTX of ``code`` for ``device``: any newer one; ``a`` and ``f`` as SASS."""
    if code.suffix:
        return runs_sass(code, device)
    return (code.major, code.minor) <= (device.major, device.minor)
