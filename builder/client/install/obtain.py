"""A package's archive is fetched whole or in parts, and verified; progress is shown on one line."""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Event, Lock, Thread
from typing import (
    Callable,
    Deque,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from builder.client.install.prefix import LIBRARY, Prefix, empty
from builder.client.install.source import Located
from builder.errors import IntegrityError, TransferError
from builder.files.digest import Digest, RunningDigest, chunks_in, require_bytes, size_of
from builder.files.disk import remove
from builder.files.download import WantedFile, fetch, forget, validator_file
from builder.files.http_client import Web
from builder.formats.index import IndexPackage
from builder.formats.parts import StoredFile

AT_ONCE = 3
"""Number of parts that are fetched at the same time."""

LISTEN_SECONDS = 1.0
"""Seconds between two wake-ups of the main thread while it waits; on Windows an interrupt takes effect
then."""


def obtain(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """Return the path of the archive, whose bytes are verified against the index.

    A download that broke off is resumed. Raises ``TransferError`` (not available), ``IntegrityError`` (other
    bytes than promised) or ``DiskError``.
    """
    if package.parts:
        return _joined(package, located, prefix, web)
    return _bring(package, located, prefix, web)


def bytes_to_write(package: IndexPackage, located: Located, prefix: Prefix) -> int:
    """Return the number of bytes that ``obtain`` will still write under the prefix."""
    local = isinstance(located.place, Path)
    sizes = sorted((part.size for part in package.parts), reverse=True)
    parts_size = 0 if local else sum(sizes[:AT_ONCE])
    rest = max(package.size - size_of(prefix.piece(package)), 0)
    return parts_size + (rest if package.parts or not local else 0)


def _bring(file: Union[StoredFile, IndexPackage], located: Located, prefix: Prefix, web: Web) -> Path:
    """Return the path of one verified asset: its own path, or the path of its download."""
    place = located.asset(file.file)
    if isinstance(place, Path):
        if not place.is_file():
            raise TransferError(
                f"{place}: not there.", advice="Copy it there: packages lie beside their index.json."
            )
        require_bytes(place, Digest(file.size, file.sha256), str(place))
        return place
    piece = prefix.piece(file)
    fetch(WantedFile(place, file.size, file.sha256), piece, web)
    return piece


def _joined(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """Fetch the parts, ``AT_ONCE`` of them at a time, append them in order, and return the archive's path."""
    whole = prefix.piece(package)
    resumed = size_of(whole) > 0
    missing, running = _missing(package, size_of(whole)), RunningDigest()
    with closing(_fetched([part for _, part in missing], located, prefix, web)) as pieces:
        for (start, part), piece in zip(missing, pieces):
            _append(piece, whole, start, running)
            if piece == prefix.piece(part):
                forget(piece)
    try:
        require_bytes(whole, Digest(package.size, package.sha256), package.file, running)
    except IntegrityError:
        whole.unlink()
        if not resumed:
            raise
        # The bytes of an earlier run may be damaged: start over, once.
        return _joined(package, located, prefix, web)
    return whole


def _missing(package: IndexPackage, have: int) -> List[Tuple[int, StoredFile]]:
    """Return the parts that end behind the archive's first ``have`` bytes, each with its offset."""
    ends = list(accumulate(part.size for part in package.parts))
    starts = [0, *ends[:-1]]
    return [(start, part) for start, end, part in zip(starts, ends, package.parts) if have < end]


def _fetched(
    parts: Sequence[StoredFile], located: Located, prefix: Prefix, web: Web
) -> Generator[Path, None, None]:
    """Yield the path of each verified part in order, while the next ones are fetched.

    An error in one part stops all of them.
    """
    tally = ProgressTally(web.progress, sum(part.size for part in parts))
    waiting: Deque[Future[Path]] = deque()
    try:
        for number, part in enumerate(parts):
            waiting.append(_begun(partial(_bring, part, located, prefix, tally.web_of(number, web))))
            if len(waiting) == AT_ONCE:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    finally:
        tally.stop()


def _begun(work: Callable[[], Path]) -> Future[Path]:
    """Run ``work`` in a daemon thread and return its future: the program may end while a server stalls."""
    future: Future[Path] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 it is raised where the result is asked for
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def _next(waiting: Deque[Future[Path]]) -> Path:
    """Wait for the first of ``waiting``, remove it and return its result. Raises the error of any of them."""
    pending = set(waiting)
    while not waiting[0].done():
        arrived, pending = wait(pending, LISTEN_SECONDS, FIRST_COMPLETED)
        for future in arrived:
            future.result()
    return waiting.popleft().result()


def _append(piece: Path, whole: Path, start: int, running: RunningDigest) -> None:
    """Write ``piece`` into ``whole`` at ``start``, over bytes that an interrupted run wrote there."""
    with piece.open("rb") as source, whole.open("r+b" if whole.exists() else "w+b") as target:
        target.seek(start)
        for chunk in chunks_in(source):
            running.put(target.tell(), chunk)
            target.write(chunk)


def remove_leftovers(prefix: Prefix, packages: Iterable[IndexPackage]) -> None:
    """Remove the files of interrupted installs, unless an install of ``packages`` can resume them.

    The lock must be held.
    """
    empty(prefix.parts)
    kept = {path for package in packages for path in _arriving(prefix, package)}
    for path in prefix.downloads.iterdir():
        if path not in kept and path.suffix != LIBRARY:
            remove(path)


def _arriving(prefix: Prefix, package: IndexPackage) -> Iterator[Path]:
    for path in (prefix.piece(package), *map(prefix.piece, package.parts)):
        yield path
        yield validator_file(path)


EVERY_SECONDS = 0.2
"""The shortest time in seconds between two progress lines."""

SETTLED_SECONDS = 2.0
"""Seconds before which no rate is shown, because it is not yet stable."""

Report = Callable[[int, int], None]
"""``report(done, total)`` in bytes."""


@dataclass
class ProgressTally:
    """The sum of the bytes that several threads have received, and the switch that stops the threads."""

    report: Report
    total: int
    _done: Dict[int, int] = field(default_factory=dict)
    _stopped: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def stop(self) -> None:
        """Stop every thread at its next bytes or its next try. No thread reports anything afterwards."""
        with self._lock:
            self._stopped.set()

    def web_of(self, number: int, web: Web) -> Web:
        """Return ``web`` for the thread of file ``number``. After ``stop`` it raises ``TransferError``."""

        def received(done: int, total: int) -> None:  # noqa: ARG001 the shape of ``Report``
            with self._going():
                self._done[number] = done
                self.report(sum(self._done.values()), self.total)

        def say(line: str) -> None:
            with self._going():
                web.say(line)

        def pause(seconds: float) -> None:
            while seconds > 0:
                with self._going():
                    pass
                web.sleep(min(seconds, 1.0))
                seconds -= 1.0

        return replace(web, progress=received, say=say, sleep=pause)

    @contextmanager
    def _going(self) -> Iterator[None]:
        with self._lock:
            if self._stopped.is_set():
                raise TransferError("Stopped, because another part of the archive could not be fetched.")
            yield


@dataclass
class Meter:
    """A progress line that is written over and over on one line of a terminal."""

    write: Callable[[str], None]
    clock: Callable[[], float]
    """Seconds since any fixed moment."""
    columns: Callable[[], int]
    """The terminal's current width in columns."""
    _begun: float = 0.0
    _first: int = 0
    _written_at: Optional[float] = None
    _total: int = -1

    def __call__(self, done: int, total: int) -> None:
        """Write the line, unless the last one is younger than ``EVERY_SECONDS``."""
        now = self.clock()
        if total != self._total or done < self._first:
            self._begun, self._first, self._written_at, self._total = now, done, None, total
        if done < total and self._written_at is not None and now - self._written_at < EVERY_SECONDS:
            return
        self._written_at = now
        end = "\n" if done == total else ""
        width = max(self.columns() - 1, 1)
        line = progress_line(done, total, done - self._first, now - self._begun)
        self.write(f"\r{line[:width]:<{width}}{end}")


def progress_line(done: int, total: int, fresh: int, seconds: float) -> str:
    """Return the progress line. ``fresh`` of the ``done`` bytes were received within ``seconds``.

    ``total`` is 0 where the server does not say how many bytes there are.
    """
    size = total or done
    line = f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
    if total:
        line = f"{done * 100 // total:3d} % of {line}"
    if seconds < SETTLED_SECONDS or fresh <= 0:
        return line
    rate = fresh / seconds
    left = f", {duration((total - done) / rate)} left" if done < total else f" in {duration(seconds)}"
    return f"{line}, {rate / 2**20:.1f} MiB/s{left}"


def duration(seconds: float) -> str:
    """Return a duration as text: ``8 s``, ``2 min 05 s``, ``1 h 20 min``."""
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
