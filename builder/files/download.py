"""Downloads of one file, which resume an attempt that broke off, in this run or an earlier one.

Source for conditional ranges: RFC 9110, sections 13.1.5 (If-Range) and 14 (Range).
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import Dict, Iterator, Optional

from builder.errors import IntegrityError, TransferError
from builder.files.digest import CHUNK, Digest, RunningDigest, other_bytes, require_bytes, size_of
from builder.files.disk import disk_errors, require_space
from builder.files.http_client import SIZE, Web, retried, send_request
from builder.files.http_opener import TooSlowError
from builder.formats.text import redacted, shortened

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)")


@dataclass(frozen=True)
class WantedFile:
    """A URL and the size and sha256 that its file must have; each is ``None`` where unknown."""

    url: str
    size: Optional[int] = None
    sha256: Optional[str] = None

    @property
    def shown(self) -> str:
        """Return the URL as messages show it, without a login."""
        return redacted(self.url)


def fetch(wanted: WantedFile, part: Path, web: Web) -> None:
    """Download ``wanted`` to ``part``, from the bytes there on, and verify size and sha256 if both are known.

    Raises ``TransferError`` (not available), ``IntegrityError`` (other bytes than promised; ``part`` is
    removed) or ``DiskError``.
    """
    resumed = size_of(part) > 0
    try:
        with ThreadPoolExecutor(1) as pool:
            running = RunningDigest(pool)
            retried(lambda: _receive(wanted, part, running, web), lambda: size_of(part), web)
            if wanted.size is not None and wanted.sha256 is not None:
                require_bytes(part, Digest(wanted.size, wanted.sha256), wanted.shown, running)
    except IntegrityError:
        forget(part)
        if not resumed:
            raise
        # The bytes of an earlier run may be of another file with that name: start over, once.
        fetch(wanted, part, web)


def validator_file(part: Path) -> Path:
    """Return the path of the file with the ETag or date of the bytes in ``part``, for ``If-Range``."""
    return part.with_name(f"{part.name}.etag")


def forget(part: Path) -> None:
    """Remove the downloaded bytes of a file and their validator."""
    part.unlink(missing_ok=True)
    validator_file(part).unlink(missing_ok=True)


def _receive(wanted: WantedFile, part: Path, running: RunningDigest, web: Web) -> None:
    """Append the bytes of one connection to ``part``.

    Nothing is synced: bytes that a power failure damages do not match the sha256, and are fetched again.
    """
    have = size_of(part)
    if have and have == wanted.size:
        return
    try:
        response = send_request(wanted.url, _conditions(wanted, part, have), web)
    except TransferError as error:
        if getattr(error.__cause__, "code", 0) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            forget(part)  # the server's file is shorter than these bytes
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
    """Return the headers that ask for the remaining bytes; empty to ask for the whole file.

    A validator or a known sha256 is needed to detect that the server's file has changed.
    """
    validator = validator_file(part)
    if have and validator.is_file():
        return {"Range": f"bytes={have}-", "If-Range": validator.read_text(encoding="latin-1")}
    return {"Range": f"bytes={have}-"} if have and wanted.sha256 is not None else {}


def _start_of(response: HTTPResponse, wanted: WantedFile, part: Path, have: int) -> int:
    """Return the offset at which the response begins: ``have`` for 206, 0 for 200.

    Raises ``TransferError`` for another range, whose bytes are then forgotten, and for another status without
    any bytes; ``IntegrityError`` for another size.
    """
    if response.status == HTTPStatus.OK:
        announced = response.headers.get("Content-Length")
        if announced is not None and wanted.size is not None and announced != str(wanted.size):
            raise other_bytes(
                f"{wanted.shown}: size differs", f"{wanted.size} bytes", f"{shortened(announced)} bytes"
            )
        return 0
    if response.status != HTTPStatus.PARTIAL_CONTENT and not have:
        raise TransferError(f"{wanted.shown}: HTTP {response.status}, an answer without a file.")
    answered = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(answered)
    known = {"*", match[2] if match and wanted.size is None else str(wanted.size)}
    if match is None or int(match[1]) != have or match[2] not in known:
        forget(part)
        what = f"{wanted.shown}: asked for bytes {have}-, the server answered {answered!r}"
        raise TransferError(what, retry_after=0.0)
    return have


def _length(response: HTTPResponse) -> int:
    text = response.headers.get("Content-Length", "")
    return int(text) if SIZE.fullmatch(text) else 0


def _arriving(
    response: HTTPResponse, start: int, total: int, wanted: WantedFile, running: RunningDigest, web: Web
) -> Iterator[bytes]:
    """Yield the response's chunks.

    Raises ``TransferError`` where the connection breaks, and ``IntegrityError`` for more bytes than promised.
    Chunks yielded before are in the file by then.
    """
    done = start
    while True:
        try:
            chunk = response.read1(CHUNK)
        except TooSlowError as error:
            raise TransferError(f"{wanted.shown}: {error}", retry_after=0.0) from error
        except (OSError, HTTPException) as error:
            raise _broken_off(wanted, done, total) from error
        if not chunk:
            if not total:  # only now it is known how many bytes there are
                web.progress(done, done)
            return
        if wanted.size is not None and done + len(chunk) > wanted.size:
            sizes = f"{wanted.size} bytes", "more than these"
            raise other_bytes(f"{wanted.shown}: the server sends more than the bytes promised", *sizes)
        running.put(done, chunk)
        done += len(chunk)
        yield chunk
        web.progress(done, total)


def _broken_off(wanted: WantedFile, done: int, total: int) -> TransferError:
    what = f"{wanted.shown}: ended after {done} of {total or 'all'} bytes"
    return TransferError(what, retry_after=0.0)


def _remember(part: Path, headers: HTTPMessage) -> None:
    """Store the validator of these bytes: a strong ETag, the only kind allowed in If-Range, else the date."""
    tag = headers.get("ETag", "")
    validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
    if validator:
        validator_file(part).write_text(validator, encoding="latin-1")
    else:
        validator_file(part).unlink(missing_ok=True)
