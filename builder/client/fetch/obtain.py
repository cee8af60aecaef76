"""Brings a package's archive to this machine, whole and proved, in one file or in parts."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from threading import Event
from typing import Deque, Generator, List, Sequence, Tuple

from builder.client.fetch.download import Wanted, fetch
from builder.client.fetch.http import Web
from builder.client.fetch.progress import Tally
from builder.client.fetch.source import Located
from builder.client.files.digest import CHUNK, Growing, require_bytes, size_of
from builder.client.files.folder import Prefix, etag_file
from builder.errors import IntegrityError, TransferError
from builder.formats.index import IndexPackage, IndexPart

AT_ONCE = 3
"""Parts that are fetched side by side."""


def obtain(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """The archive, proved to be the one the index describes. What has arrived before is gone on with.

    Raises ``TransferError`` (not to be had), ``IntegrityError`` (other bytes than promised) or ``DiskError``.
    """
    if package.parts:
        return _joined(package, located, prefix, web)
    return _bring(IndexPart(package.file, package.size, package.sha256), located, prefix, web)


def coming(package: IndexPackage, located: Located, prefix: Prefix) -> int:
    """Bytes that ``obtain`` will still write under the prefix."""
    local = isinstance(located.place, Path)
    sizes = sorted((part.size for part in package.parts), reverse=True)
    beside = 0 if local else sum(sizes[:AT_ONCE])
    rest = max(package.size - size_of(prefix.download(package)), 0)
    return beside + (rest if package.parts or not local else 0)


def _bring(file: IndexPart, located: Located, prefix: Prefix, web: Web) -> Path:
    """One asset, proved: where it lies, or where it was downloaded to."""
    place = located.asset(file.file)
    if isinstance(place, Path):
        if not place.is_file():
            raise TransferError(f"{place}: not there. Packages lie beside their index.json.")
        require_bytes(place, file.size, file.sha256, str(place))
        return place
    piece = prefix.piece(file)
    fetch(Wanted(place, file.size, file.sha256), piece, web)
    return piece


def _joined(package: IndexPackage, located: Located, prefix: Prefix, web: Web) -> Path:
    """The parts in order; ``AT_ONCE`` of them are fetched side by side, and lie beside the archive then."""
    whole = prefix.download(package)
    resumed = size_of(whole) > 0
    missing, digest = _missing(package, size_of(whole)), Growing()
    with closing(_fetched([part for _, part in missing], located, prefix, web)) as pieces:
        for (start, part), piece in zip(missing, pieces):
            _append(piece, whole, start, digest)
            if piece == prefix.piece(part):
                _drop(piece)
    try:
        require_bytes(whole, package.size, package.sha256, package.file, digest)
    except IntegrityError:
        whole.unlink()
        if not resumed:
            raise
        # What an earlier run left may be damaged: start over, once.
        return _joined(package, located, prefix, web)
    return whole


def _missing(package: IndexPackage, have: int) -> List[Tuple[int, IndexPart]]:
    """The parts that do not lie in the archive's first ``have`` bytes, each with where it begins."""
    ends = list(accumulate(part.size for part in package.parts))
    starts = [0, *ends[:-1]]
    return [(start, part) for start, end, part in zip(starts, ends, package.parts) if have < end]


def _fetched(
    parts: Sequence[IndexPart], located: Located, prefix: Prefix, web: Web
) -> Generator[Path, None, None]:
    """Each part in order, proved. The next ones arrive meanwhile; when one fails, they all stop."""
    stop = Event()
    tally = Tally(web.progress, sum(part.size for part in parts), stop)
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


def _append(piece: Path, whole: Path, start: int, digest: Growing) -> None:
    """Put ``piece`` at ``start``, over what a killed run had put there of it."""
    with piece.open("rb") as source, whole.open("r+b" if whole.exists() else "w+b") as target:
        target.seek(start)
        for chunk in iter(lambda: source.read(CHUNK), b""):
            digest.put(target.tell(), chunk)
            target.write(chunk)


def _drop(piece: Path) -> None:
    piece.unlink(missing_ok=True)
    etag_file(piece).unlink(missing_ok=True)
