"""Tests of package indexes that never come to the wheel: pip ends, with exit code 10 and one document."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.hostile import FLOOD, floods, says
from tests.doubles.machine import Machine
from tests.doubles.release import Fault, Handler, Server, serving, write_release
from tests.doubles.wheels import CUDNN
from tests.support import ROOT

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def drips(head: bytes, piece: bytes) -> Fault:
    """Return a fault that sends ``head``, and ``piece`` 20 times a second for a minute."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.close_connection = True
        with suppress(OSError):
            handler.wfile.write(head)
            for _ in range(1200):
                handler.wfile.write(piece)
                time.sleep(0.05)

    return fault


FLOODS: dict[str, Fault] = {
    "100 Continue": floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": floods(OK, b"X: y\r\n"),
    "trailers": floods(CHUNKED + b"1\r\nx\r\n0\r\n", b"X: y\r\n"),
    "chunk extensions": floods(CHUNKED, b"1;" + b"x" * 60_000 + b"\r\nx\r\n"),
    "a body": floods(OK + b"\r\n", b"x"),
    "a body in chunks": floods(CHUNKED, b"10000\r\n" + b"x" * 0x10000 + b"\r\n"),
}

DRIPS: dict[str, Fault] = {
    "lines": drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": drips(OK + b"Content-Length: 20000\r\n\r\n", b"x"),
}

SIZES = {"-5": b"-5\r\nhello\r\n", "no number": b"five\r\nhello\r\n", "huge": b"f" * 40 + b"\r\nhello\r\n"}

PAGE, FILE = f"simple/{CUDNN.name}", f"files/{CUDNN.file}"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "index/files").mkdir(parents=True)
    (tmp_path / "index" / FILE).write_bytes(CUDNN.content)
    page = f'<a href="/{FILE}">{CUDNN.file}</a>'.encode()
    with serving(tmp_path / "index") as server:
        server.always[PAGE] = says(OK + b"Content-Length: %d\r\n\r\n%s" % (len(page), page))
        yield server


@pytest.fixture
def window(request: pytest.FixtureRequest) -> float:
    """Seconds that a server may take for little; 30, unless a test says otherwise."""
    return float(getattr(request, "param", 30.0))


@pytest.fixture
def machine(tmp_path: Path, index: Server, window: float) -> Machine:
    """A machine whose pip makes one attempt."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from builder.files import http_opener\n"
        f"http_opener.WINDOW_SECONDS = {window}\n"
        "sys.path.pop()\n"
    )
    env = {"PIP_INDEX_URL": f"{index.url}/simple", "PIP_RESUME_RETRIES": "0", "NO_PROXY": "*"}
    return Machine(tmp_path / "home", pip={**env, "PYTHONPATH": str(tmp_path / "site")})


@pytest.fixture
def release(tmp_path: Path) -> str:
    return str(write_release(tmp_path / "release", layouts=("thin",), wheels=(CUDNN,)))


def failed(machine: Machine, release: str) -> str:
    """Return the message of an install that ends with exit code 10 and one JSON document."""
    begin = time.monotonic()
    assert machine.run("install", "--index", release, "--json") == 10, machine.err
    assert time.monotonic() - begin < 50
    assert machine.litter() == []
    error = json.loads(machine.out)["error"]
    assert error["code"] == 10
    assert "http_opener.py" not in error["message"], "no traceback"
    return str(error["message"])


def test_an_honest_index_is_served(machine: Machine, release: str) -> None:
    assert machine.run("install", "--index", release) == 0, machine.err


@pytest.mark.parametrize("place", [PAGE, FILE], ids=["page", "wheel"])
@pytest.mark.parametrize("kind", FLOODS)
def test_what_has_no_end_is_left(
    machine: Machine, index: Server, release: str, kind: str, place: str
) -> None:
    index.always[place] = FLOODS[kind]
    told = failed(machine, release)
    assert all(sent < FLOOD for sent in index.flooded)
    assert "The package index sends" in told or kind == "headers"  # of which http.client reads 100


@pytest.mark.parametrize("place", [PAGE, FILE], ids=["page", "wheel"])
@pytest.mark.parametrize("kind", DRIPS)
@pytest.mark.parametrize("window", [1.0], indirect=True)
def test_what_drips_is_left(machine: Machine, index: Server, release: str, kind: str, place: str) -> None:
    index.always[place] = DRIPS[kind]
    failed(machine, release)


@pytest.mark.parametrize("place", [PAGE, FILE], ids=["page", "wheel"])
@pytest.mark.parametrize("size", SIZES)
def test_a_chunk_size_that_is_none_is_a_message(
    machine: Machine, index: Server, release: str, size: str, place: str
) -> None:
    index.always[place] = says(CHUNKED + SIZES[size] + b"0\r\n\r\n")
    assert CUDNN.name in failed(machine, release)
