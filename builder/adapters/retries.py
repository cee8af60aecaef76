"""Repetition of requests to a host of releases after temporary failures.

No library does the waiting: urllib3's ``Retry`` sees only the headers of one answer and cannot check whether
an upload arrived, and tenacity would replace only the loop of ``Retrier.retry``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from builder.errors import BuilderError, IntegrityError, TransferError
from builder.files.digest import LocalFile
from builder.ports import Reporter

_CHUNK = 1 << 20

_BUNDLE = "Bundle again."

V = TypeVar("V")


class TransientFailure(Exception):  # noqa: N818 - not an error yet: the next attempt may succeed
    """A failed attempt that may be repeated; ``error`` is the class of the error after the last attempt.

    ``wait`` is the pause in seconds before the next attempt; with ``grows`` the pause doubles after each
    attempt. Without ``wait``, ``RetryPolicy`` sets the pause.
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
class RetryPolicy:
    """The limits of repeated attempts; all times are in seconds."""

    attempts: int = 8
    first: float = 10.0
    cap: float = 300.0
    """Longest pause between two attempts when the host names no time."""
    longest: float = 3600.0
    """Longest pause that the host may ask for; a longer one ends the attempts with a ``TransferError``."""
    between_writes: float = 1.0

    def pause(self, failure: TransientFailure, number: int) -> float:
        """Return the seconds to wait after attempt ``number``, counted from 1."""
        if failure.wait is not None and not failure.grows:
            return failure.wait
        first = self.first if failure.wait is None else failure.wait
        return min(first * 2.0 ** (number - 1), max(first, self.cap))


@dataclass(frozen=True, kw_only=True)
class Retrier:
    """A repeater of temporarily failed attempts; each repetition is reported with its reason."""

    reporter: Reporter
    sleep: Callable[[float], None]
    host: str = "GitHub"
    """The host's name in messages."""
    policy: RetryPolicy = field(default_factory=RetryPolicy)

    def retry(
        self, what: str, attempt: Callable[[], V], find_done: Callable[[], V | None] = lambda: None
    ) -> V:
        """Return the result of ``attempt``, repeated after a pause when it raises ``TransientFailure``.

        ``find_done`` is called before each further attempt. A result other than ``None`` means that an
        earlier attempt succeeded and only its answer was lost; that result is returned. Raises
        ``TransientFailure.error`` after the last attempt.
        """
        number = 1
        while True:
            try:
                return attempt()
            except TransientFailure as failure:
                self._pause(what, failure, number)
            result = find_done()
            if result is not None:
                return result
            number += 1

    def _pause(self, what: str, failure: TransientFailure, number: int) -> None:
        wait = self.policy.pause(failure, number)
        if number >= self.policy.attempts:
            advice = f"Gave up after {number} attempts; run it again to go on."
            raise failure.error(what, cause=str(failure), advice=advice) from None
        if wait > self.policy.longest:
            advice = f"{self.host} asks to wait {wait:.0f} s; run it again after that."
            raise TransferError(what, cause=str(failure), advice=advice) from None
        tries = f"attempt {number + 1} of {self.policy.attempts} in {wait:.0f} s"
        self.reporter.warn(f"{what}: {failure}; {tries}")
        self.sleep(wait)


@dataclass(frozen=True)
class FileBody:
    """The bytes of a file from ``start`` on, as a request's body. Each iteration reads the file again."""

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
        raise IntegrityError(f"{self.file.path}: the file got shorter while it was sent", advice=_BUNDLE)

    def _blocks(self) -> Iterator[bytes]:
        """Yield the file's blocks. A disk error becomes an ``IntegrityError``, so that it is not retried."""
        try:
            with self.file.path.open("rb") as stream:
                stream.seek(self.start)
                while block := stream.read(_CHUNK):
                    yield block
        except OSError as error:
            what = f"{self.file.path} cannot be read while it is sent"
            raise IntegrityError(what, cause=error.strerror or str(error), advice=_BUNDLE) from None
