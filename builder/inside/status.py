"""How far a build's compile is: the line that the build container prints, and what a user reads of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

MARK = "ortpacks-progress: "
"""The beginning of such a line; JSON follows."""


@dataclass(frozen=True, kw_only=True)
class CompileStatus:
    """How far a build's compile is at one moment."""

    done: int
    """Units."""
    total: int
    share: float
    """Of the units' cost in CPU seconds, what is done."""
    minutes: int
    """What is left; 0 where nothing was to compile."""
    at_most: bool
    memory: int
    """MiB that the units which run now have claimed."""
    cached: int
    """Units that ccache answered in this run."""

    @property
    def left(self) -> str:
        """``about 12 min left``; empty where nothing was to compile."""
        return f"{'at most' if self.at_most else 'about'} {self.minutes} min left" if self.minutes else ""

    def __str__(self) -> str:
        words = (f"{self.done}/{self.total} units", self.left, f"{self.memory / 1024:.1f} GiB")
        return ", ".join([*filter(None, words), f"{self.cached} from the cache"])

    def line(self) -> str:
        """The line to print."""
        return MARK + json.dumps(asdict(self), separators=(",", ":"))


def read(line: str) -> CompileStatus:
    """The status of a line that begins with ``MARK``."""
    return CompileStatus(**json.loads(line.removeprefix(MARK)))
