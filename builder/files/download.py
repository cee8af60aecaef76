"""Downloads of one file: gone on with where an earlier attempt or run broke off.

Source for conditional ranges: RFC 9110, sections 13.1.5 (If-Range) and 14 (Range).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import Dict, Iterator, Optional

from builder.errors import IntegrityError, TransferError
from builder.files.digest import CHUNK, Digest, RunningDigest, other_bytes, require_bytes, size_of
from builder.files.disk import disk_errors, require_space
from builder.files.http_client import (
    SIZE,
    RangeRefusedError,
    Response,
    SlowError,
    TooSlowError,
    TransientError,
    Web,
    ask,
    persist,
)
from builder.formats.text import without_userinfo

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")


@dataclass(frozen=True)
class WantedFile:
    """A file under a URL, and its promised bytes: ``size`` and ``sha256`` are ``None`` where unknown."""

    url: str
    size: Optional[int] = None
    sha256: Optional[str] = None

    @property
    def shown(self) -> str:
        """The URL as messages show it."""
        return without_userinfo(self.url)


def fetch(wanted: WantedFile, part: Path, web: Web) -> None:
    """Bring ``wanted`` into ``part``, going on from what is there, and prove what is promised.

    Raises ``TransferError`` (not to be had), ``IntegrityError`` (other bytes than promised; ``part`` is
    removed) or ``DiskError``.
    """
    resumed, running = size_of(part) > 0, RunningDigest()
    try:
        persist(lambda: _receive(wanted, part, running, web), lambda: size_of(part), web)
        if wanted.size is not None and wanted.sha256 is not None:
            require_bytes(part, Digest(wanted.size, wanted.sha256), wanted.shown, running)
    except IntegrityError:
        forget(part)
        if not resumed:
            raise
        # What an earlier run left may come from another file of that name: start over, once.
        fetch(wanted, part, web)


def validator_file(part: Path) -> Path:
    """The file beside ``part`` that keeps the server's ETag or date of its bytes, for ``If-Range``."""
    return part.with_name(f"{part.name}.etag")


def forget(part: Path) -> None:
    """Remove what has arrived of a file."""
    part.unlink(missing_ok=True)
    validator_file(part).unlink(missing_ok=True)


def _receive(wanted: WantedFile, part: Path, running: RunningDigest, web: Web) -> None:
    """Append to ``part`` what one connection brings.

    Nothing is synced: what a power cut spoils is found by its sha256, and fetched again.
    """
    have = size_of(part)
    if have and have == wanted.size:
        return
    try:
        response = ask(wanted.url, _conditions(wanted, part, have), web)
    except RangeRefusedError:
        forget(part)
        raise
    try:
        start = _start_of(response, wanted, part, have)
        total = wanted.size if wanted.size is not None else start + _length(response)
        require_space(part, max(0, total - start))
        with disk_errors(part), part.open("r+b" if start else "wb") as file:
            file.seek(start)
            _remember(part, response.headers)
            file.writelines(_arriving(response, start, total, wanted, running, web))
    finally:
        response.close()
    if size_of(part) < total:
        raise _broken_off(wanted, size_of(part), total)


def _conditions(wanted: WantedFile, part: Path, have: int) -> Dict[str, str]:
    """Headers that ask for the rest, where the server or the sha256 will tell whether it is the same file."""
    validator = validator_file(part)
    if have and validator.is_file():
        return {"Range": f"bytes={have}-", "If-Range": validator.read_text(encoding="latin-1")}
    return {"Range": f"bytes={have}-"} if have and wanted.sha256 is not None else {}


def _start_of(response: Response, wanted: WantedFile, part: Path, have: int) -> int:
    """The offset that the answer begins at: ``have`` for 206, 0 for 200. Any other removes ``part``."""
    if response.status == HTTPStatus.OK:
        announced = response.headers.get("Content-Length")
        if announced is not None and wanted.size is not None and announced != str(wanted.size):
            raise other_bytes(f"{wanted.shown}: size differs", f"{wanted.size} bytes", f"{announced} bytes")
        return 0
    if response.status != HTTPStatus.PARTIAL_CONTENT and not have:
        raise TransferError(f"{wanted.shown}: HTTP {response.status}, which has no file in it.")
    answered = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(answered)
    known = {"*", match[2] if match and wanted.size is None else str(wanted.size)}
    if match is None or int(match[1]) != have or match[2] not in known:
        forget(part)
        raise TransientError(f"{wanted.shown}: asked for bytes {have}-, the server answered {answered!r}")
    return have


def _length(response: Response) -> int:
    """The length of the answer in bytes; 0 where the server does not say."""
    text = response.headers.get("Content-Length", "")
    return int(text) if SIZE.fullmatch(text) else 0


def _arriving(
    response: Response, start: int, total: int, wanted: WantedFile, running: RunningDigest, web: Web
) -> Iterator[bytes]:
    """The answer's chunks. What came before a connection breaks is in the file."""
    done = start
    while True:
        try:
            chunk = response.read1(CHUNK)
        except TooSlowError as error:
            raise SlowError(f"{wanted.shown}: {error}") from error
        except (OSError, HTTPException) as error:
            raise _broken_off(wanted, done, total) from error
        if not chunk:
            return
        if wanted.size is not None and done + len(chunk) > wanted.size:
            sizes = f"{wanted.size} bytes", "more than these"
            raise other_bytes(f"{wanted.shown}: the server sends more than the bytes promised", *sizes)
        running.put(done, chunk)
        done += len(chunk)
        yield chunk
        web.progress(done, total)


def _broken_off(wanted: WantedFile, done: int, total: int) -> TransientError:
    return TransientError(f"{wanted.shown}: ended after {done} of {total or 'all'} bytes")


def _remember(part: Path, headers: HTTPMessage) -> None:
    """Keep what identifies these bytes: a strong ETag, which alone may stand in If-Range, else the date."""
    tag = headers.get("ETag", "")
    validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
    if validator:
        validator_file(part).write_text(validator, encoding="latin-1")
    else:
        validator_file(part).unlink(missing_ok=True)
