"""Tests of faults during downloads: each ends in the right bytes or in an error with expected and
actual values."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.files import http_client, http_opener
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, Fault, Handler, Server, name_of, serving, write_release

ARCHIVE = f"{name_of('modern')}.tar.zst"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(write_release(tmp_path / "release").parent) as running:
        yield running


def install(machine: Machine, server: Server) -> int:
    return machine.run("install", "--index", f"{server.url}/index.json")


def cut(size: int) -> Fault:
    return lambda handler, content: handler.answer(200, content, {"ETag": '"x"'}, cut=size)


def status(code: int, headers: dict[str, str] | None = None) -> Fault:
    return lambda handler, content: handler.answer(code, b"sorry", headers)


def ranges(server: Server) -> list[str | None]:
    return [headers.get("Range") for path, headers in server.requests if path.endswith(".zst")]


def whole(machine: Machine) -> bool:
    return (machine.lib / "libonnxruntime.so.1").read_bytes() == FILES[
        "lib/libonnxruntime.so.1"
    ] and not machine.litter()


def test_a_connection_that_ends_anywhere_is_gone_on_from_there(machine: Machine, server: Server) -> None:
    size = (server.folder / ARCHIVE).stat().st_size
    points = sorted(random.Random(7).sample(range(1, size), 12))  # noqa: S311 any points do

    def until(point: int) -> Fault:
        def serve(handler: Handler, content: bytes) -> None:
            start = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
            told = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
            handler.answer(206 if start else 200, content[start:], told, cut=point - start)

        return serve

    server.faults += [until(point) for point in points]
    assert install(machine, server) == 0, machine.err
    assert ranges(server) == [None, *(f"bytes={point}-" for point in points)]
    assert whole(machine)


def test_a_resume_names_the_bytes_it_has(machine: Machine, server: Server) -> None:
    def first(handler: Handler, content: bytes) -> None:
        handler.answer(200, content, {"ETag": '"stale"'}, cut=300)

    server.faults.append(first)
    assert install(machine, server) == 0, machine.err
    resumed = server.requests[-1][1]
    assert (resumed["Range"], resumed["If-Range"]) == ("bytes=300-", '"stale"')
    assert whole(machine)  # the tag did not match: the server sent 200 and the whole file


def shifted(handler: Handler, content: bytes) -> None:
    handler.answer(206, content[200:], {"Content-Range": f"bytes 200-{len(content) - 1}/{len(content)}"})


@pytest.mark.parametrize("fault", [shifted, status(416)], ids=["a shifted range", "416"])
def test_what_is_not_the_rest_starts_over(machine: Machine, server: Server, fault: Fault) -> None:
    server.faults += [cut(300), fault]
    assert install(machine, server) == 0, machine.err
    assert ranges(server) == [None, "bytes=300-", None]
    assert whole(machine)


def test_a_server_that_always_breaks_before_where_it_came_is_given_up(
    machine: Machine, server: Server
) -> None:
    server.faults += [cut(300 if number % 2 else 200) for number in range(50)]
    assert install(machine, server) == 10
    assert len(server.faults) > 40, "only the first two brought anything new"


def test_bytes_of_another_file_in_the_part_are_thrown_away(machine: Machine, server: Server) -> None:
    server.faults.append(cut(300))
    server.faults += [status(404)]
    assert install(machine, server) == 10
    (part,) = (machine.prefix / ".ortpacks" / "downloads").glob("*.part")
    part.write_bytes(b"?" * 300)
    part.with_name(part.name + ".etag").unlink()
    assert install(machine, server) == 0, machine.err
    assert whole(machine)


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_transient_statuses_are_tried_again(machine: Machine, server: Server, code: int) -> None:
    server.faults += [status(code), status(code)]
    assert install(machine, server) == 0, machine.err
    assert machine.waits == [1.0, 2.0]


def test_a_server_that_stays_broken_is_given_up(machine: Machine, server: Server) -> None:
    server.faults += [status(503)] * 5
    assert install(machine, server) == 10
    assert "HTTP 503" in machine.err
    assert len(machine.waits) == 4


def test_another_size_is_refused_before_it_is_read(machine: Machine, server: Server) -> None:
    server.faults.append(lambda handler, content: handler.answer(200, content + b"x"))
    assert install(machine, server) == 7
    assert "size differs" in machine.err


def test_a_flipped_bit_is_refused_before_anything_is_unpacked(machine: Machine, server: Server) -> None:
    archive = bytearray((server.folder / ARCHIVE).read_bytes())
    archive[len(archive) // 2] ^= 1
    (server.folder / ARCHIVE).write_bytes(archive)
    assert install(machine, server) == 7
    assert "wanted: " in machine.err
    assert not list((machine.prefix / "versions").iterdir())
    assert machine.litter() == []


def test_redirects_are_followed(machine: Machine, server: Server) -> None:
    server.faults.append(lambda handler, content: handler.answer(302, b"", {"Location": f"/{ARCHIVE}"}))
    assert install(machine, server) == 0, machine.err


def test_no_server_is_a_transfer_error(machine: Machine) -> None:
    assert machine.run("select", "--index", "http://127.0.0.1:1/index.json") == 10
    assert "Connection refused" in machine.err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("<html>", "not JSON"),
        ("[]", "object"),
        ('{"format": 5}', "format 5; this ortpacks reads 3 and 4. Update"),
        (
            '{"format": 2}',
            "format 2; this ortpacks reads 3 and 4. Install with the ortpacks.pyz of that",
        ),
    ],
)
def test_an_index_that_is_none_is_refused(machine: Machine, server: Server, text: str, word: str) -> None:
    (server.folder / "index.json").write_text(text)
    assert install(machine, server) == 2
    assert word in machine.err


def test_a_byte_a_connection_is_not_followed_for_ever(machine: Machine, server: Server) -> None:
    size = (server.folder / ARCHIVE).stat().st_size

    def one(handler: Handler, content: bytes) -> None:
        start = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
        told = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        handler.answer(206 if start else 200, content[start:], told, cut=1)

    server.faults += [one] * size
    assert install(machine, server) == 10
    assert f"ended after 50 of {size} bytes (tried 50 times)" in machine.err


def test_a_server_that_does_not_answer_is_told_before_it_is_given_up(
    machine: Machine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(http_opener, "TIMEOUT_SECONDS", 0.5)
    server.faults += [lambda handler, content: time.sleep(0.8)] * 5
    assert install(machine, server) == 10
    url = f"{server.url}/{ARCHIVE}"
    told = [line for line in machine.err.splitlines() if line.startswith(url)]
    assert told[:2] == [f"{url}: no answer yet", f"{url}: timed out; trying again in 1 s"]
    assert told.count(told[0]) == 5


def test_what_is_tried_again_is_told(machine: Machine, server: Server) -> None:
    server.faults += [status(503), status(503, {"Retry-After": "7"}), cut(300)]
    assert install(machine, server) == 0, machine.err
    url = f"{server.url}/{ARCHIVE}"
    told = [line for line in machine.err.splitlines() if "trying again" in line]
    assert told[:2] == [
        f"{url}: HTTP 503 Service Unavailable; trying again in 1 s",
        f"{url}: HTTP 503 Service Unavailable; trying again in 7 s",
    ]
    assert told[2].startswith(f"{url}: ended after 300 of ")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:abc/index.json", "not a URL that can be opened"),
        ("http://127.0.0.1:99999/index.json", "not a URL that can be opened"),
        ("http://a b/index.json", "not a URL that can be opened"),
        ("http://no-such-host.invalid/index.json", "Check the name, and the network."),
        ("HTTPS/index.json", "is asked with http://"),
        ("http://user:s3/cret@HOST/index.json", "%2F"),
        ("http://user:s3 cret@127.0.0.1:x/index.json", "%20"),
        ("http://user:s3cret@[::1/index.json", "not a URL"),
        ("http://user:s3cret@127.0.0.1:x/index.json", "not a URL"),
    ],
)
def test_what_cannot_get_better_is_tried_once(machine: Machine, server: Server, url: str, words: str) -> None:
    host = server.url.removeprefix("http://")
    url = url.replace("HTTPS", f"https://{host}").replace("HOST", host)
    assert machine.run("select", "--index", url) in {2, 10}
    assert words in machine.err
    assert machine.waits == []
    assert "s3" not in machine.err
