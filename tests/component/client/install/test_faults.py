"""Tests of network faults: the installed version stays usable, and the next install succeeds.

``test_faults_disk`` has full disks, ``test_faults_tar`` hostile archives, ``test_kill`` kills.
"""

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.files import http_client, http_opener
from tests.doubles import hostile
from tests.doubles.release import Fault, Handler, Server, name_of, serving
from tests.support.faults.client import Ground, Quick, outlive, require_cured
from tests.support.tables import table

SEED = 20_261_122

ARCHIVE = f"{name_of('modern')}.tar.zst"

TRIES = http_client.FRUITLESS_TRIES


FIRST = hostile.cut_at(300)
"""A fault that sends 300 bytes, so that the next request asks for a range."""


@pytest.fixture
def server(ground: Ground) -> Iterator[Server]:
    with serving(ground.newer.parent) as running:
        yield running


def install(quick: Quick, server: Server) -> int:
    return quick.run("install", "--index", f"{server.url}/index.json")


def ranges(server: Server) -> list[str | None]:
    return [headers.get("Range") for path, headers in server.requests if path.endswith(".zst")]


def meet(quick: Quick, server: Server, faults: list[Fault], code: int) -> str:
    """Run an install that meets all ``faults``, then one that meets none; return the first one's messages."""
    server.faults += faults
    assert install(quick, server) == code, quick.err
    said = quick.err
    assert server.faults == [], "a fault was never met"
    assert outlive(quick, f"{server.url}/index.json", {0}) == 0
    return said


@pytest.mark.parametrize("number", range(30))
@pytest.mark.parametrize("fault", [hostile.cut_at, hostile.reset_at], ids=["closed", "reset"])
def test_cut_at_any_byte(quick: Quick, server: Server, fault: Callable[[int], Fault], number: int) -> None:
    size = (server.folder / ARCHIVE).stat().st_size
    points = sorted(random.Random(f"{SEED} {number}").sample(range(1, size), 3))  # noqa: S311 any do
    meet(quick, server, [fault(point) for point in points], 0)
    if fault is hostile.cut_at:  # a reset loses bytes that were sent
        assert ranges(server) == [None, *(f"bytes={point}-" for point in points)]


def test_a_resume_takes_a_file_that_was_replaced_meanwhile(quick: Quick, server: Server) -> None:
    meet(quick, server, [hostile.stale], 0)
    resumed = next(headers for _, headers in server.requests if "Range" in headers)
    assert (resumed["Range"], resumed["If-Range"]) == ("bytes=300-", '"stale"')


RANGES: dict[str, tuple[list[Fault], int]] = {
    "a shifted start": ([hostile.ranged(shift=100)], 0),
    "an earlier start": ([hostile.ranged(shift=-100)], 0),
    "416": ([hostile.status(416)], 0),
    "200 for 206": ([hostile.whole], 0),
    "another total": ([hostile.ranged(total=7)], 0),
    "no Content-Range": ([hostile.ranged(header="")], 0),
    "a garbled Content-Range": ([hostile.ranged(header="bytes ?-?/*")], 0),
    "other bytes": ([hostile.ranged(flip=1)], 7),
    "more bytes": ([hostile.ranged(more=10)], 7),
    "416 again and again": ([hostile.status(416), FIRST, hostile.status(416)], 0),
    "204": ([hostile.status(204)], 0),
}


@pytest.mark.parametrize("kind", RANGES)
def test_a_range_that_lies_is_not_believed(quick: Quick, server: Server, kind: str) -> None:
    faults, code = RANGES[kind]
    meet(quick, server, [FIRST, *faults], code)
    if "start" in kind or kind == "416":
        assert ranges(server) == [None, "bytes=300-", None], "it starts over"


def test_a_server_that_always_breaks_before_where_it_came_is_given_up(quick: Quick, server: Server) -> None:
    server.faults += [hostile.cut_at(300 if number % 2 else 200) for number in range(50)]
    assert install(quick, server) == 10
    assert len(server.faults) > 40, "only the first two brought anything new"


def test_a_byte_a_connection_is_not_followed_for_ever(quick: Quick, server: Server) -> None:
    size = (server.folder / ARCHIVE).stat().st_size

    def one(handler: Handler, content: bytes) -> None:
        hostile.cut_at(hostile.start_of(handler) + 1)(handler, content)

    server.faults += [one] * size
    assert install(quick, server) == 10
    assert f"ended after 50 of {size} bytes (tried 50 times)" in quick.err


def test_bytes_of_another_file_in_the_part_are_thrown_away(quick: Quick, server: Server) -> None:
    server.faults += [FIRST, hostile.status(404)]
    assert install(quick, server) == 10
    (part,) = (quick.prefix / ".ortpacks" / "downloads").glob("*.part")
    part.write_bytes(b"?" * 300)
    require_cured(quick, f"{server.url}/index.json")


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 451])
def test_a_final_status_ends_it(quick: Quick, server: Server, code: int) -> None:
    said = meet(quick, server, [hostile.status(code)], 10)
    assert f"HTTP {code}" in said
    assert ("https://USER:PASSWORD@HOST/PATH" in said) == (code in {401, 403})
    assert quick.waits == []


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_status_is_waited_out_until_it_stays(quick: Quick, server: Server, code: int) -> None:
    meet(quick, server, [hostile.status(code)] * 2, 0)
    assert quick.waits == [1.0, 2.0]
    shutil.rmtree(quick.prefix)
    server.faults += [hostile.status(code)] * TRIES
    assert install(quick, server) == 10
    assert f"HTTP {code}" in quick.err
    assert len(quick.waits) == 2 + TRIES - 1


@pytest.mark.parametrize(("headers", "wait"), table("client/retry-after.txt"))
def test_retry_after_is_kept(quick: Quick, server: Server, headers: str, wait: str) -> None:
    """The answer has no other Date header."""
    said = headers.replace("; ", "\r\n")
    answer = f"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n{said}\r\n\r\n"
    meet(quick, server, [hostile.says(answer.encode())], 0)
    assert quick.waits == [float(wait)]


@pytest.mark.parametrize(("kind", "location", "times"), table("client/redirects.txt"))
def test_a_redirect_is_followed_or_ends(
    quick: Quick, server: Server, kind: str, location: str, times: str
) -> None:
    place = location.replace("ARCHIVE", f"/{ARCHIVE}") or None
    server.faults += [hostile.redirect(place)] * int(times.replace("TRIES", str(TRIES)))
    assert install(quick, server) == (0 if kind == "to the file" else 10)
    if kind != "to itself":  # urllib counts redirects, and each Python version has its own limit
        assert server.faults == []
    server.faults.clear()
    outlive(quick, f"{server.url}/index.json", {0})


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: SIZE\r\n\r\n"

GARBAGE: dict[str, tuple[Fault, int, int]] = {
    "nothing": (hostile.says(b""), 1, 0),
    "no HTTP": (hostile.says(b"SSH-2.0-OpenSSH_9.2\r\n"), TRIES, 10),
    "half a status line": (hostile.says(b"HTTP/1.1 2"), TRIES, 10),
    "a status that is none": (hostile.says(b"HTTP/1.1 twohundred OK\r\n\r\n"), TRIES, 10),
    "an endless line": (hostile.says(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000), TRIES, 10),
    "a thousand headers": (hostile.says(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"), TRIES, 10),
    "a body that dribbles": (hostile.dribbles(HEAD), TRIES, 10),
    "a header that dribbles": (hostile.dribbles(b"HTTP/1.1 200 OK\r\nX: "), TRIES, 10),
    "a status that dribbles": (hostile.dribbles(b""), TRIES, 10),
    "a negative length": (hostile.says(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx"), 1, 7),
    "another length": (hostile.says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n123456789"), 1, 7),
    "a proxy's page": (hostile.status(200), 1, 7),
    "chunks": (hostile.chunked(), 1, 0),
    "a chunk without a length": (hostile.chunked(b"zz\r\n"), 1, 0),
    "a chunk cut short": (hostile.chunked(b"ffff\r\n"), 1, 0),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_an_answer_that_is_none_does_no_harm(quick: Quick, server: Server, kind: str) -> None:
    """A byte a second stays within every socket timeout; the client gives up after five attempts of 30 s."""
    fault, times, code = GARBAGE[kind]
    quick.tick = 1.0 if "dribbles" in kind else 0.0
    said = meet(quick, server, [fault] * times, code)
    assert ("bytes in 30 s" in said) == ("dribbles" in kind)


def test_a_silent_server_is_given_up(quick: Quick, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_opener, "TIMEOUT_SECONDS", 0.1)
    meet(quick, server, [hostile.silent], 0)


def test_no_answer_is_told_of(quick: Quick, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(http_opener, "TIMEOUT_SECONDS", 0.3)
    server.faults += [lambda handler, content: time.sleep(0.5)] * TRIES
    assert install(quick, server) == 10
    url = f"{server.url}/{ARCHIVE}"
    told = [line for line in quick.err.splitlines() if line.startswith(url)]
    assert told[:2] == [f"{url}: no answer yet", f"{url}: timed out; trying again in 1 s"]
    assert told.count(told[0]) == TRIES


@pytest.mark.parametrize(("url", "words"), table("client/no-places.txt"))
def test_what_cannot_get_better_is_tried_once(quick: Quick, server: Server, url: str, words: str) -> None:
    host = server.url.removeprefix("http://")
    url = url.replace("HTTPS", f"https://{host}").replace("HOST", host)
    assert quick.run("select", "--index", url) in {2, 10}
    assert words in quick.err
    assert quick.waits == []
    assert "s3" not in quick.err


@pytest.mark.parametrize("how", ["flipped", "truncated"])
@pytest.mark.parametrize("number", range(30))
def test_spoilt_bytes_are_told(quick: Quick, ground: Ground, tmp_path: Path, how: str, number: int) -> None:
    release = shutil.copytree(ground.newer.parent, tmp_path / "release")
    content = bytearray((release / ARCHIVE).read_bytes())
    place = random.Random(f"{SEED} {how} {number}").randrange(len(content) * 8)  # noqa: S311 any bit
    if how == "flipped":
        content[place // 8] ^= 1 << place % 8
    else:
        del content[place // 8 :]
    (release / ARCHIVE).write_bytes(content)
    before = list((quick.prefix / "versions").iterdir())
    with serving(release) as server:
        assert install(quick, server) == 7
    assert "wanted: " in quick.err
    assert list((quick.prefix / "versions").iterdir()) == before
    assert quick.litter() == []
    require_cured(quick, str(ground.newer))
