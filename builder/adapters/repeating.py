"""Requests to a host of releases, repeated while that may help.

No library does the waiting: urllib3's ``Retry`` sees one answer's headers and cannot ask whether an upload
landed, and tenacity would replace the loop of ``Repeater.persist`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from builder.errors import BuilderError, IntegrityError, TransferError
from builder.files.digest import LocalFile
from builder.ports import Reporter

_CHUNK = 1 << 20

V = TypeVar("V")


class Fault(Exception):  # noqa: N818 - not an error yet: the next attempt may do
    """A failed attempt that may be repeated; ``error`` is the class of the error after the last attempt.

    ``wait`` is the pause in seconds; with ``grows`` it doubles each time.
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
    """The limits of repeating; all times are seconds."""

    attempts: int = 8
    first: float = 10.0
    cap: float = 300.0
    """Longest pause of our own between two attempts."""
    longest: float = 3600.0
    """Longest pause GitHub may ask for; more is an error that says when to come back."""
    between_writes: float = 1.0

    def pause(self, fault: Fault, number: int) -> float:
        """The seconds to wait after attempt ``number``."""
        if fault.wait is not None and not fault.grows:
            return fault.wait
        first = self.first if fault.wait is None else fault.wait
        return min(first * 2.0 ** (number - 1), max(first, self.cap))


@dataclass(frozen=True, kw_only=True)
class Repeater:
    """Repeats what failed for the moment, and tells each time why."""

    reporter: Reporter
    sleep: Callable[[float], None]
    host: str = "GitHub"
    """What messages call the one who asks to wait."""
    patience: Patience = field(default_factory=Patience)

    def persist(
        self, what: str, attempt: Callable[[], V], landed: Callable[[], V | None] = lambda: None
    ) -> V:
        """The result of ``attempt``, which is repeated after a pause when it raises ``Fault``.

        ``landed`` is asked before each further attempt: its result stands for an attempt whose answer was
        lost.
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

    def _pause(self, what: str, fault: Fault, number: int) -> None:
        wait = self.patience.pause(fault, number)
        if number >= self.patience.attempts:
            message = f"{what}: {fault}. Gave up after {number} attempts; run it again to go on."
            raise fault.error(message) from None
        if wait > self.patience.longest:
            message = f"{what}: {fault}. {self.host} asks to wait {wait:.0f} s; run it again then."
            raise TransferError(message) from None
        tries = f"attempt {number + 1} of {self.patience.attempts} in {wait:.0f} s"
        self.reporter.warn(f"{what}: {fault}; {tries}")
        self.sleep(wait)


@dataclass(frozen=True)
class FileBody:
    """The bytes of a file, from ``start`` on, as a request's body. Each sending reads them anew."""

    file: LocalFile
    advance: Callable[[int], None]
    start: int = 0

    def __len__(self) -> int:
        return self.file.size - self.start

    def __iter__(self) -> Iterator[bytes]:
        left = len(self)
        for block in self._blocks():
            yield block[:left]
            self.advance(min(len(block), left))
            left -= len(block)
            if left <= 0:
                return
        raise IntegrityError(f"{self.file.path}: the file got shorter while it was sent. Bundle again.")

    def _blocks(self) -> Iterator[bytes]:
        """The file's blocks. A disk error becomes an ``IntegrityError``, so that it is not retried."""
        try:
            with self.file.path.open("rb") as stream:
                stream.seek(self.start)
                while block := stream.read(_CHUNK):
                    yield block
        except OSError as error:
            raise IntegrityError(
                f"{self.file.path} cannot be read while it is sent: {error.strerror}. Bundle again."
            ) from None
