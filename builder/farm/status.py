"""Status of a build's compile, as a line that the build container prints and as text for the user."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

MARK = "ortpacks-progress: "
"""The beginning of a status line; JSON follows."""


@dataclass(frozen=True, kw_only=True)
class CompileStatus:
    """The progress of a build's compile at one moment."""

    done: int
    """Number of finished units."""
    total: int
    """Number of units, finished ones included."""
    share: float
    """Finished share of the units' cost, from 0 to 1."""
    minutes: int
    """Estimated minutes left; 0 where there was nothing to compile."""
    at_most: bool
    """Whether ``minutes`` is an upper limit."""
    memory: int
    """MiB that the running units have claimed."""
    cached: int
    """Number of cache hits for whole units in this run."""

    @property
    def left(self) -> str:
        """The time left as text, ``about 12 min left``; empty where there was nothing to compile."""
        return f"{'at most' if self.at_most else 'about'} {self.minutes} min left" if self.minutes else ""

    def __str__(self) -> str:
        words = (f"{self.done}/{self.total} units", self.left, f"{self.memory / 1024:.1f} GiB")
        return ", ".join([*filter(None, words), f"{self.cached} from the cache"])

    def line(self) -> str:
        """Return the line that the build container prints."""
        return MARK + json.dumps(asdict(self), separators=(",", ":"))


def read(line: str) -> CompileStatus:
    """Return the status in a line that begins with ``MARK``."""
    return CompileStatus(**json.loads(line.removeprefix(MARK)))
