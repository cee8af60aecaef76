"""One file over HTTP: resumed where it broke off, tried again where that can help.

Source for conditional ranges: RFC 9110, sections 13.1.5 (If-Range) and 14 (Range).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import requests
import urllib3.exceptions

from builder.adapters.files.part_file import disk_errors, require_space
from builder.errors import DiskError, TransferError
from builder.formats.addresses import without_userinfo
from builder.ports import Reporter

_CHUNK = 1 << 18

_TIMEOUT = (20, 60)
"""Seconds to connect, and between two bytes."""

_TRIES = 5

_TRANSIENT = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class NotThereError(TransferError):
    """The server answers and does not have the file."""


class _FaultError(Exception):
    """An attempt that may do better next time."""


class HttpTransfer:
    """Downloads with ``requests``, which honours the machine's proxy and certificate settings."""

    def __init__(self, *, reporter: Reporter, sleep: Callable[[float], None]) -> None:
        self._reporter = reporter
        self._sleep = sleep
        self._session = requests.Session()

    def download(self, url: str, dest: Path, *, size: int = 0) -> None:
        """Bring ``url`` to ``dest``, going on from ``<dest>.part``. ``size`` in bytes, 0 when not known.

        Only the count of bytes is verified. Raises ``NotThereError``, ``TransferError``, ``DiskError``.
        """
        part = dest.with_name(f"{dest.name}.part")
        require_space(part, max(0, size - _size(part)))
        failures = 0
        while True:
            before = _size(part)
            try:
                self._attempt(url, part, size)
                break
            except DiskError:
                part.unlink(missing_ok=True)  # on a full disk the space is worth more than the bytes
                raise
            except _FaultError as fault:
                failures = 1 if _size(part) > before else failures + 1
                self._pause(url, failures, fault)
        part.replace(dest)

    def _pause(self, url: str, failures: int, fault: _FaultError) -> None:
        """Wait 1, 2, 4, 8 s; an attempt that got further starts the count anew."""
        if failures == _TRIES:
            raise TransferError(
                f"{without_userinfo(url)}: {fault}, {_TRIES} times in a row. Check the network, then run the "
                "same command again."
            ) from fault
        self._reporter.say(f"{without_userinfo(url)}: {fault}; trying again")
        self._sleep(2.0 ** (failures - 1))

    def _attempt(self, url: str, part: Path, size: int) -> None:
        have, headers = _conditions(part)
        try:
            with self._session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
                start = _start(url, response, part, have)
                total = size or start + _length(response)
                require_space(part, max(0, total - start))
                _remember(part, response)
                with self._reporter.progress(url.rpartition("/")[2], total) as advance:
                    advance(start)
                    _receive(response, part, start, advance)
        except (requests.exceptions.SSLError, requests.exceptions.ProxyError) as error:
            raise TransferError(
                f"{without_userinfo(url)}: {_why(error)}. Check the machine's certificates and proxy."
            ) from error
        except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
            raise _FaultError(_why(error)) from error
        except requests.RequestException as error:
            raise TransferError(f"{without_userinfo(url)}: {_why(error)}.") from error


def _conditions(part: Path) -> tuple[int, dict[str, str]]:
    """Bytes we have, and the headers that ask for the rest only if the file is still the same."""
    plain = {"Accept-Encoding": "identity"}
    validator = _validator_file(part)
    have = _size(part)
    if have == 0 or not validator.is_file():
        return 0, plain
    return have, {**plain, "Range": f"bytes={have}-", "If-Range": validator.read_text(encoding="latin-1")}


def _start(url: str, response: requests.Response, part: Path, have: int) -> int:
    """Where this answer's bytes belong, or an exception that says what is wrong with it."""
    status = response.status_code
    if status == HTTPStatus.OK:
        return 0
    if status == HTTPStatus.PARTIAL_CONTENT:
        found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        if found and int(found[1]) == have:
            return have
    if status in {HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE}:
        part.unlink(missing_ok=True)
        raise _FaultError(f"the server answers {status} with the wrong range")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _TRANSIENT:
        raise _FaultError(f"the server answers {status}")
    if status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        raise NotThereError(f"{without_userinfo(url)} is not there ({status}).")
    raise TransferError(f"{without_userinfo(url)}: the server answers {status} {response.reason}.")


def _remember(part: Path, response: requests.Response) -> None:
    """Keep what identifies these bytes: a strong ETag, else the date; with neither nothing is resumed."""
    tag = response.headers.get("ETag", "W/")
    validator = response.headers.get("Last-Modified", "") if tag.startswith("W/") else tag
    with disk_errors(part):
        if validator:
            _validator_file(part).write_text(validator, encoding="latin-1")
        else:
            _validator_file(part).unlink(missing_ok=True)


def _receive(response: requests.Response, part: Path, start: int, advance: Callable[[int], None]) -> None:
    """Append to the part file. The bytes are taken as sent: a ``.tar.gz`` stays one."""
    with disk_errors(part), part.open("ab" if start else "wb") as file:
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            file.write(chunk)
            advance(len(chunk))


def _length(response: requests.Response) -> int:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isdigit() else 0


def _validator_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.validator")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _why(error: Exception) -> str:
    """The cause in words, without the wrappers around it."""
    cause = error.args[0] if error.args else error
    reason = getattr(cause, "reason", cause)
    return without_userinfo(f"{type(error).__name__}: {reason}")
