"""Tests of network faults: the installed version stays usable, and the next install succeeds.

``test_faults_disk`` has full disks, ``test_faults_tar`` hostile archives, ``test_faults_kill`` kills.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.files import http_client, http_opener
from tests.doubles import hostile
from tests.doubles.machine import Machine
from tests.doubles.release import Fault, Handler, Server, name_of, serving
from tests.support.faults.client import Ground, Quick, outlive
from tests.support.faults.counted import cases_of

SEED = 20_261_122

ARCHIVE = f"{name_of('modern')}.tar.zst"

TRIES = http_client.FRUITLESS_TRIES

DATE = {"Date": "Sun, 22 Nov 2026 00:00:00 GMT"}

FIRST = hostile.cut_at(300)
"""A fault that sends 300 bytes, so that the next request asks for a range."""


@pytest.fixture
def server(ground: Ground) -> Iterator[Server]:
    with serving(ground.newer.parent) as running:
        yield running


def meet(quick: Quick, server: Server, faults: list[Fault], codes: set[int]) -> str:
    """Run an install that meets all ``faults``, then one that meets none; return the first one's messages."""
    server.faults += faults
    index = f"{server.url}/index.json"
    code = quick.run("install", "--index", index)
    assert code in codes, (code, quick.err)
    said = quick.err
    assert server.faults == [], "a fault was never met"
    assert outlive(quick, index, {0}) == 0
    return said


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_connection_that_ends_at_any_byte_is_gone_on_from_there(
    quick: Quick, server: Server, how: str, number: int
) -> None:
    size = (server.folder / ARCHIVE).stat().st_size
    points = sorted(random.Random(f"{SEED} {how} {number}").sample(range(1, size), 3))  # noqa: S311 any do
    fault = hostile.cut_at if how == "closed" else hostile.reset_at
    meet(quick, server, [fault(point) for point in points], {0})


RANGES: dict[str, tuple[list[Fault], int]] = {
    "200 for 206": ([hostile.whole], 0),
    "a shifted start": ([hostile.ranged(shift=100)], 0),
    "an earlier start": ([hostile.ranged(shift=-100)], 0),
    "another total": ([hostile.ranged(total=7)], 0),
    "no Content-Range": ([hostile.ranged(header="")], 0),
    "a garbled Content-Range": ([hostile.ranged(header="bytes ?-?/*")], 0),
    "other bytes": ([hostile.ranged(flip=1)], 7),
    "more bytes": ([hostile.ranged(more=10)], 7),
    "416": ([hostile.status(416)], 0),
    "416 again and again": ([hostile.status(416), FIRST, hostile.status(416)], 0),
    "204": ([hostile.status(204)], 0),
}


@pytest.mark.parametrize("kind", RANGES)
def test_a_range_that_lies_is_not_believed(quick: Quick, server: Server, kind: str) -> None:
    faults, code = RANGES[kind]
    meet(quick, server, [FIRST, *faults], {code})


def test_a_file_that_was_replaced_meanwhile_is_fetched_anew(quick: Quick, server: Server) -> None:
    meet(quick, server, [hostile.stale], {0})


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 451])
def test_a_final_status_ends_it(quick: Quick, server: Server, code: int) -> None:
    said = meet(quick, server, [hostile.status(code)], {10})
    assert f"HTTP {code}" in said
    assert ("https://USER:PASSWORD@HOST/PATH" in said) == (code in {401, 403})
    assert quick.waits == []


def test_no_message_shows_a_login(tmp_path: Path) -> None:
    """docs/client.md promises this; here the server sends a page instead of an index."""
    (tmp_path / "index.json").write_bytes(b"<html>\xff")
    machine = Machine(tmp_path / "home")
    with serving(tmp_path) as server:
        url = server.url.replace("://", "://user:s3cret@")
        assert machine.run("list", "--json", "--index", f"{url}/index.json") == 2
    assert "not UTF-8 text" in machine.err
    assert "s3cret" not in machine.err + machine.out


@pytest.mark.parametrize("times", [1, TRIES])
@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_status_is_waited_out_or_given_up(
    quick: Quick, server: Server, code: int, times: int
) -> None:
    ends = {10} if times == TRIES else {0}
    meet(quick, server, [hostile.status(code)] * times, ends)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "17"}, 17.0),
        ({"Retry-After": "86400"}, 60.0),
        ({**DATE, "Retry-After": "Sun, 22 Nov 2026 00:00:21 GMT"}, 21.0),
        ({**DATE, "Retry-After": "Sunday, 22-Nov-26 00:00:07 GMT"}, 7.0),
        ({**DATE, "Retry-After": "Sat, 21 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, 1.0),
        ({"Retry-After": "-5"}, 1.0),
    ],
)
def test_retry_after_is_kept_as_seconds_and_as_a_date(
    quick: Quick, server: Server, headers: dict[str, str], wait: float
) -> None:
    meet(quick, server, [_only(503, headers)], {0})
    assert quick.waits == [wait]


def _only(code: int, headers: dict[str, str]) -> Fault:
    """Return a fault that answers without the double's own Date header."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.send_response_only(code)
        for key, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(key, value)
        handler.end_headers()

    return fault


REDIRECTS = {
    "to itself": (f"/{ARCHIVE}", 11),
    "to a file": ("file:///etc/passwd", 1),
    "to ftp": ("ftp://127.0.0.1:1/x", 1),
    "nowhere": (None, 1),
    "to no URL": ("http://[", 1),
    "to no port": ("http://127.0.0.1:port/", 1),
    "to nobody": ("http://127.0.0.1:1/", TRIES),
}


@pytest.mark.parametrize("kind", REDIRECTS)
def test_a_redirect_that_leads_nowhere_ends(quick: Quick, server: Server, kind: str) -> None:
    location, times = REDIRECTS[kind]
    server_faults = [hostile.redirect(location)] * times
    if kind == "to itself":  # urllib counts redirects, and each Python version has its own limit
        server.faults += server_faults
        assert quick.run("install", "--index", f"{server.url}/index.json") == 10
        server.faults.clear()
        outlive(quick, f"{server.url}/index.json", {0})
    else:
        meet(quick, server, server_faults, {10})


GARBAGE: dict[str, tuple[Fault, int, int]] = {
    "nothing": (hostile.says(b""), 1, 0),
    "no HTTP": (hostile.says(b"SSH-2.0-OpenSSH_9.2\r\n"), TRIES, 10),
    "half a status line": (hostile.says(b"HTTP/1.1 2"), TRIES, 10),
    "a status that is none": (hostile.says(b"HTTP/1.1 twohundred OK\r\n\r\n"), TRIES, 10),
    "an endless line": (hostile.says(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000), TRIES, 10),
    "a thousand headers": (hostile.says(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"), TRIES, 10),
    "a negative length": (hostile.says(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx"), 1, 7),
    "another length": (hostile.says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789"), 1, 7),
    "a proxy's page": (hostile.status(200), 1, 7),
    "chunks": (hostile.chunked(), 1, 0),
    "a chunk without a length": (hostile.chunked(b"zz\r\n"), 1, 0),
    "a chunk cut short": (hostile.chunked(b"ffff\r\n"), 1, 0),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_an_answer_that_is_none_does_no_harm(quick: Quick, server: Server, kind: str) -> None:
    fault, times, code = GARBAGE[kind]
    meet(quick, server, [fault] * times, {code})


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: SIZE\r\n\r\n"


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 200 OK\r\nX: ", b""], ids=["body", "header", "status"])
def test_a_server_that_dribbles_is_given_up(quick: Quick, server: Server, head: bytes) -> None:
    """A byte a second stays within every socket timeout; the client gives up after five attempts of 30 s."""
    quick.tick = 1.0
    said = meet(quick, server, [hostile.dribbles(head)] * TRIES, {10})
    assert "bytes in 30 s" in said


def test_a_server_that_falls_silent_is_given_up(
    quick: Quick, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_opener, "TIMEOUT_SECONDS", 0.1)
    meet(quick, server, [hostile.silent], {0})


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("how", ["flipped", "truncated"])
def test_an_archive_that_is_spoilt_is_refused_before_anything_is_unpacked(
    quick: Quick, ground: Ground, tmp_path: Path, how: str, number: int
) -> None:
    content = bytearray((ground.newer.parent / ARCHIVE).read_bytes())
    place = random.Random(f"{SEED} {how} {number}").randrange(len(content) * 8)  # noqa: S311 any bit
    if how == "flipped":
        content[place // 8] ^= 1 << place % 8
    else:
        del content[place // 8 :]
    release = tmp_path / "release"
    release.mkdir()
    (release / "index.json").write_bytes(ground.newer.read_bytes())
    (release / ARCHIVE).write_bytes(content)
    with serving(release) as server:
        assert outlive(quick, f"{server.url}/index.json", {7}, cure=str(ground.newer)) == 7


def test_no_fault_has_left_the_tables(request: pytest.FixtureRequest) -> None:
    assert cases_of(request) >= Counter(
        {
            "test_a_connection_that_ends_at_any_byte_is_gone_on_from_there": 60,
            "test_a_range_that_lies_is_not_believed": 11,
            "test_a_final_status_ends_it": 6,
            "test_a_passing_status_is_waited_out_or_given_up": 14,
            "test_retry_after_is_kept_as_seconds_and_as_a_date": 7,
            "test_a_redirect_that_leads_nowhere_ends": 7,
            "test_an_answer_that_is_none_does_no_harm": 12,
            "test_a_server_that_dribbles_is_given_up": 3,
            "test_an_archive_that_is_spoilt_is_refused_before_anything_is_unpacked": 60,
        }
    )
