"""Value types for architectures of code and compute capabilities of devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Tuple

_ARCH = re.compile(r"(?:sm_|compute_)?(\d{1,2})(\d)([af]?)")

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")

_AS_PEOPLE_WRITE = re.compile(r"(?:sm_|compute_)?([0-9]{1,2})\.?([0-9])([af]?)")


@dataclass(frozen=True, order=True)
class Capability:
    """Compute capability of a device, e.g. ``8.6``."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Return the capability that a document writes as ``"8.6"``. Raises ``ValueError`` for other text."""
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
        """Return the architecture that a document writes as ``"86"``, ``"sm_90a"`` or ``"compute_120f"``.

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


def sm_names(arches: Iterable[Arch]) -> str:
    """Return architectures as text: ``sm_103, sm_121``."""
    return ", ".join(f"sm_{arch}" for arch in arches)


def architectures(text: str) -> Tuple[Arch, ...]:
    """Return the architectures of a flag: ``86``, ``8.6``, ``sm_86`` or ``compute_86``, commas between them.

    Raises ``ValueError`` that names the first word that is no architecture.
    """
    wanted = "an architecture like 86, 8.6, sm_86 or 90a"
    return tuple(_spelled(word, wanted, suffixes=("", "a", "f")) for word in text.split(","))


def capabilities(text: str) -> Tuple[Capability, ...]:
    """Return the capabilities of a flag, in the spellings that ``architectures`` reads, without a suffix.

    Raises ``ValueError`` that names the first word that is no capability.
    """
    arches = [_spelled(word, "a compute capability like 8.6", suffixes=("",)) for word in text.split(",")]
    return tuple(Capability(arch.major, arch.minor) for arch in arches)


def _spelled(word: str, wanted: str, *, suffixes: Tuple[str, ...]) -> Arch:
    match = _AS_PEOPLE_WRITE.fullmatch(word.strip())
    if match is None or match[3] not in suffixes:
        raise ValueError(f"{word!r} is not {wanted}")
    return Arch(int(match[1]), int(match[2]), match[3])
