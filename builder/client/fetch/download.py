"""Downloads one file of known size and sha256, going on from what an earlier run left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import Dict, Iterable, Iterator

from builder.client.fetch.http import (
    RangeRefusedError,
    Response,
    SlowError,
    TransientError,
    Web,
    ask,
    persist,
)
from builder.client.fetch.pace import TooSlowError
from builder.client.files.digest import CHUNK, Growing, require_bytes, size_of
from builder.client.files.folder import etag_file
from builder.errors import DiskError, IntegrityError

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Wanted:
    """The bytes an index promises under a URL."""

    url: str
    size: int
    sha256: str


def fetch(wanted: Wanted, part: Path, web: Web) -> None:
    """Bring ``wanted`` into ``part``, going on from what is there, and prove size and sha256.

    Raises ``TransferError`` (not to be had), ``IntegrityError`` (other bytes than promised; ``part`` is
    removed) or ``DiskError``.
    """
    resumed, digest = size_of(part) > 0, Growing()
    try:
        persist(lambda: _receive(wanted, part, digest, web), lambda: size_of(part), web)
        require_bytes(part, wanted.size, wanted.sha256, wanted.url, digest)
    except IntegrityError:
        _forget(part)
        if not resumed:
            raise
        # What an earlier run left may come from another file of that name: start over, once.
        fetch(wanted, part, web)


def _receive(wanted: Wanted, part: Path, digest: Growing, web: Web) -> None:
    """One connection's worth of bytes, appended to ``part``."""
    have = size_of(part)
    if have == wanted.size:
        return
    try:
        response = ask(wanted.url, _range(part, have), web)
    except RangeRefusedError:
        _forget(part)
        raise
    try:
        start = _start_of(response, wanted, part, have)
        _append(_arriving(response, start, wanted, digest, web), part, start, response.headers)
    finally:
        response.close()
    if size_of(part) < wanted.size:
        raise TransientError(f"{wanted.url}: ended after {size_of(part)} of {wanted.size} bytes")


def _range(part: Path, have: int) -> Dict[str, str]:
    if not have:
        return {}
    tag = etag_file(part)
    condition = {"If-Range": tag.read_text(encoding="latin-1")} if tag.is_file() else {}
    return {"Range": f"bytes={have}-", **condition}


def _start_of(response: Response, wanted: Wanted, part: Path, have: int) -> int:
    """Where in the file the answer begins: 206 at ``have``, 200 at 0. Anything else: start over."""
    if response.status == HTTPStatus.OK:
        announced = response.headers.get("Content-Length", str(wanted.size))
        if announced != str(wanted.size):
            raise IntegrityError(
                f"{wanted.url}: size differs.\n    wanted: {wanted.size} bytes\n    got:    {announced} bytes"
            )
        return 0
    answered = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(answered)
    if match is None or int(match[1]) != have or match[2] not in {"*", str(wanted.size)}:
        _forget(part)
        raise TransientError(f"{wanted.url}: asked for bytes {have}-, the server answered {answered!r}")
    return have


def _append(chunks: Iterable[bytes], part: Path, start: int, headers: HTTPMessage) -> None:
    """Not synced: what a power cut spoils is found by its sha256, and fetched again."""
    try:
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            _remember_tag(part, headers)
            file.writelines(chunks)
    except OSError as error:
        raise DiskError(f"{part}: cannot be written: {error.strerror or error}") from error


def _arriving(response: Response, start: int, wanted: Wanted, digest: Growing, web: Web) -> Iterator[bytes]:
    """What comes, to the end of the answer; a broken connection just ends it, what came is kept."""
    done = start
    while True:
        chunk = _next(response, wanted)
        if not chunk:
            return
        if done + len(chunk) > wanted.size:
            raise IntegrityError(f"{wanted.url}: the server sends more than the {wanted.size} bytes promised")
        digest.put(done, chunk)
        done += len(chunk)
        yield chunk
        web.progress(done, wanted.size)


def _next(response: Response, wanted: Wanted) -> bytes:
    """The next bytes; none where the answer, or its connection, has ended."""
    try:
        return response.read1(CHUNK)
    except TooSlowError as error:
        raise SlowError(f"{wanted.url}: {error}") from error
    except (OSError, HTTPException):
        return b""


def _remember_tag(part: Path, headers: HTTPMessage) -> None:
    """Only a strong tag may be used with If-Range (RFC 9110, 13.1.5)."""
    tag = headers.get("ETag", "")
    if tag.startswith('"'):
        etag_file(part).write_text(tag, encoding="latin-1")
    else:
        etag_file(part).unlink(missing_ok=True)


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    etag_file(part).unlink(missing_ok=True)
