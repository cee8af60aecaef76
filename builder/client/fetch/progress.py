"""How far a download is: summed over what arrives side by side, and told with rate and time left."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Callable, Dict, Optional

from builder.errors import TransferError

EVERY_SECONDS = 0.2
"""Between two lines."""

SETTLED_SECONDS = 2.0
"""Before that, a rate says nothing."""

Report = Callable[[int, int], None]
"""``report(done, total)`` in bytes."""


@dataclass
class Tally:
    """Adds up what several threads have received; ``stop`` ends all of them at their next bytes."""

    report: Report
    total: int
    stop: Event
    _done: Dict[int, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def of(self, number: int) -> Report:
        """What the thread of file ``number`` reports to. Raises ``TransferError`` once ``stop`` is set."""

        def received(done: int, total: int) -> None:  # noqa: ARG001 the shape of ``Report``
            if self.stop.is_set():
                raise TransferError("Stopped, because another part of the archive did not come through.")
            with self._lock:
                self._done[number] = done
                self.report(sum(self._done.values()), self.total)

        return received

    def pausing(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        """``sleep`` in steps, so that ``stop`` ends it."""

        def pause(seconds: float) -> None:
            while seconds > 0 and not self.stop.is_set():
                sleep(min(seconds, 1.0))
                seconds -= 1.0

        return pause


@dataclass
class Meter:
    """Writes progress over one line of a terminal."""

    write: Callable[[str], None]
    clock: Callable[[], float]
    """Seconds, of any origin."""
    _begun: float = 0.0
    _first: int = 0
    _told: Optional[float] = None
    _total: int = -1

    def __call__(self, done: int, total: int) -> None:
        """Tell it, but not too often."""
        now = self.clock()
        if total != self._total or done < self._first:
            self._begun, self._first, self._told, self._total = now, done, None, total
        if done < total and self._told is not None and now - self._told < EVERY_SECONDS:
            return
        self._told = now
        end = "\n" if done == total else ""
        self.write(f"\r{spelled(done, total, done - self._first, now - self._begun):<70}{end}")


def spelled(done: int, total: int, fresh: int, seconds: float) -> str:
    """One line; ``fresh`` of the ``done`` bytes came within ``seconds``."""
    line = f"{done * 100 // total:3d} % of {total / 2**20:.1f} MiB"
    if seconds < SETTLED_SECONDS or fresh <= 0:
        return line
    rate = fresh / seconds
    left = f", {duration((total - done) / rate)} left" if done < total else f" in {duration(seconds)}"
    return f"{line}, {rate / 2**20:.1f} MiB/s{left}"


def duration(seconds: float) -> str:
    """``8 s``, ``2 min 05 s``, ``1 h 20 min``."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
