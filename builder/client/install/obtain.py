"""A package's archive, brought here whole and proved, in one file or in parts; and how progress is shown."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from threading import Event, Lock
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

from builder.client.install.prefix import LIBRARY, Prefix, clear_parts
from builder.client.install.source import Located
from builder.errors import IntegrityError, TransferError
from builder.files.digest import Digest, RunningDigest, chunks_in, require_bytes, size_of
from builder.files.disk import remove
from builder.files.download import WantedFile, fetch, forget, validator_file
from builder.files.http_client import Web
from builder.formats.index import IndexPackage
from builder.formats.parts import StoredFile

AT_ONCE = 3
"""Parts that are fetched side by side."""


def obtain(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """The archive, proved to be the one the index describes. What has arrived before is gone on with.

    Raises ``TransferError`` (not to be had), ``IntegrityError`` (other bytes than promised) or ``DiskError``.
    """
    if package.parts:
        return _joined(package, located, prefix, web)
    return _bring(package, located, prefix, web)


def coming(package: IndexPackage, located: Located, prefix: Prefix) -> int:
    """The number of bytes that ``obtain`` will still write under the prefix."""
    local = isinstance(located.place, Path)
    sizes = sorted((part.size for part in package.parts), reverse=True)
    parts_size = 0 if local else sum(sizes[:AT_ONCE])
    rest = max(package.size - size_of(prefix.piece(package)), 0)
    return parts_size + (rest if package.parts or not local else 0)


def _bring(file: Union[StoredFile, IndexPackage], located: Located, prefix: Prefix, web: Web) -> Path:
    """One asset, proved: where it lies, or where it was downloaded to."""
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
    """The parts in order; ``AT_ONCE`` of them are fetched side by side, and lie beside the archive then."""
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
        # What an earlier run left may be damaged: start over, once.
        return _joined(package, located, prefix, web)
    return whole


def _missing(package: IndexPackage, have: int) -> List[Tuple[int, StoredFile]]:
    """The parts that do not lie in the archive's first ``have`` bytes, each with where it begins."""
    ends = list(accumulate(part.size for part in package.parts))
    starts = [0, *ends[:-1]]
    return [(start, part) for start, end, part in zip(starts, ends, package.parts) if have < end]


def _fetched(
    parts: Sequence[StoredFile], located: Located, prefix: Prefix, web: Web
) -> Generator[Path, None, None]:
    """Each part in order, proved. The next ones arrive meanwhile; when one fails, they all stop."""
    stop = Event()
    tally = ProgressTally(web.progress, sum(part.size for part in parts), stop)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting: Deque[Future[Path]] = deque()
        try:
            for number, part in enumerate(parts):
                own = replace(web, progress=tally.of(number), sleep=tally.pausing(web.sleep))
                waiting.append(pool.submit(_bring, part, located, prefix, own))
                if len(waiting) == AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            stop.set()
            raise


def _append(piece: Path, whole: Path, start: int, running: RunningDigest) -> None:
    """Put ``piece`` at ``start``, over what a killed run had put there of it."""
    with piece.open("rb") as source, whole.open("r+b" if whole.exists() else "w+b") as target:
        target.seek(start)
        for chunk in chunks_in(source):
            running.put(target.tell(), chunk)
            target.write(chunk)


def remove_leftovers(prefix: Prefix, packages: Iterable[IndexPackage]) -> None:
    """Remove what dead installs left, but not what an install of ``packages`` can go on with.

    Only with the lock held.
    """
    clear_parts(prefix)
    kept = {path for package in packages for path in _arriving(prefix, package)}
    for path in prefix.downloads.iterdir():
        if path not in kept and path.suffix != LIBRARY:
            remove(path)


def _arriving(prefix: Prefix, package: IndexPackage) -> Iterator[Path]:
    for path in (prefix.piece(package), *map(prefix.piece, package.parts)):
        yield path
        yield validator_file(path)


EVERY_SECONDS = 0.2
"""Between two lines."""

SETTLED_SECONDS = 2.0
"""Before that, a rate says nothing."""

Report = Callable[[int, int], None]
"""``report(done, total)`` in bytes."""


@dataclass
class ProgressTally:
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
    _written_at: Optional[float] = None
    _total: int = -1

    def __call__(self, done: int, total: int) -> None:
        """Write the line, unless the last one is too fresh."""
        now = self.clock()
        if total != self._total or done < self._first:
            self._begun, self._first, self._written_at, self._total = now, done, None, total
        if done < total and self._written_at is not None and now - self._written_at < EVERY_SECONDS:
            return
        self._written_at = now
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
