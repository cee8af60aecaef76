"""versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Tuple

Version = Tuple[int, ...]


@dataclass(frozen=True)
class Span:
    """A range of releases, both ends included; ``None`` is open.

    An end of two numbers stands for all patch releases of its line: ``(1, 24)`` holds 1.24.4.
    """

    first: Optional[Version] = None
    last: Optional[Version] = None

    def __contains__(self, version: str) -> bool:
        numbers = parse(version)
        above = self.first is None or numbers >= self.first
        return above and (self.last is None or numbers[: len(self.last)] <= self.last)


ALWAYS = Span()


def parse(version: str) -> Version:
    """``(1, 23, 2)`` of ``1.23.2``."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
