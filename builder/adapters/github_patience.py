"""When a request to GitHub is tried again, and how long is waited before it.

Sources: docs.github.com "Best practices for using the REST API" and "Rate limits for the REST API".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from builder.core.ports import Reporter
from builder.errors import BuilderError, TransferError

V = TypeVar("V")


class Fault(Exception):  # noqa: N818 - not an error yet: the next attempt may do
    """An attempt that may do better next time; ``error`` is what it is when there is no next time.

    ``wait`` seconds are to pass before it: exactly, or with ``grows`` twice as many each time.
    """

    def __init__(
        self,
        message: str,
        *,
        wait: float | None = None,
        grows: bool = False,
        error: type[BuilderError] = TransferError,
    ) -> None:
        self.wait = wait
        self.grows = grows
        self.error = error
        super().__init__(message)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to keep trying; all times in seconds."""

    attempts: int = 8
    first: float = 10.0
    cap: float = 300.0
    """Longest pause of our own between two attempts."""
    longest: float = 3600.0
    """Longest pause GitHub may ask for; more is an error that says when to come back."""
    between_writes: float = 1.0

    def pause(self, fault: Fault, number: int) -> float:
        """Seconds to wait after the ``number``-th attempt."""
        if fault.wait is not None and not fault.grows:
            return fault.wait
        first = self.first if fault.wait is None else fault.wait
        return min(first * 2.0 ** (number - 1), max(first, self.cap))


class Retries:
    """Attempts with pauses between them, and writes that keep apart; ``clock`` tells Unix time."""

    def __init__(
        self,
        *,
        reporter: Reporter,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
        patience: Patience,
    ) -> None:
        self._reporter = reporter
        self._sleep = sleep
        self._clock = clock
        self._patience = patience
        self._last_write: float | None = None

    def persist(
        self, what: str, attempt: Callable[[], V], landed: Callable[[], V | None] = lambda: None
    ) -> V:
        """The result of ``attempt``, tried again after a pause on ``Fault``.

        ``landed`` is asked before each further attempt whether the last one went through after all.
        """
        number = 1
        while True:
            try:
                return attempt()
            except Fault as fault:
                self._pause(what, fault, number)
            result = landed()
            if result is not None:
                return result
            number += 1

    def pace(self) -> None:
        """Wait until the next write may be sent, and count it as sent."""
        if self._last_write is not None:
            self._sleep(max(0.0, self._last_write + self._patience.between_writes - self._clock()))
        self._last_write = self._clock()

    def _pause(self, what: str, fault: Fault, number: int) -> None:
        patience = self._patience
        wait = patience.pause(fault, number)
        if number >= patience.attempts:
            raise fault.error(
                f"{what}: {fault}. Gave up after {number} attempts; run it again to go on."
            ) from None
        if wait > patience.longest:
            raise TransferError(
                f"{what}: {fault}. GitHub asks to wait {wait:.0f} s; run it again then."
            ) from None
        self._reporter.warn(f"{what}: {fault}; attempt {number + 1} of {patience.attempts} in {wait:.0f} s")
        self._sleep(wait)
