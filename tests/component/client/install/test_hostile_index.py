"""Tests of package indexes that never come to the wheel: pip ends, with exit code 10 and one document."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doubles.hostile import CHUNK_SIZES, CHUNKED, ENDLESS, FLOOD, LINE, floods, says
from tests.doubles.machine import Machine
from tests.doubles.release import Fault, Handler, Server, serving, write_release
from tests.doubles.wheels import CUDNN
from tests.support import ROOT

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


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
    **ENDLESS,
    "headers": floods(OK, LINE),
    "a body": floods(OK + b"\r\n", b"x"),
    "a body in chunks": floods(CHUNKED, b"10000\r\n" + b"x" * 0x10000 + b"\r\n"),
}

OTHERS: dict[str, Fault] = {
    "drips of lines": drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drips of a body": drips(OK + b"Content-Length: 20000\r\n\r\n", b"x"),
    **{name: CHUNK_SIZES[name] for name in ("-5", "no number", "huge")},
}

PAGE, FILE = f"simple/{CUDNN.name}", f"files/{CUDNN.file}"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "index/files").mkdir(parents=True)
    (tmp_path / "index" / FILE).write_bytes(CUDNN.content)
    page = f'<a href="/{FILE}">{CUDNN.file}</a>'.encode()
    with serving(tmp_path / "index") as server:
        server.always[PAGE] = says(
            OK + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
        )
        yield server


@pytest.fixture
def machine(tmp_path: Path, index: Server, request: pytest.FixtureRequest) -> Machine:
    """A machine whose pip makes one attempt, and whose server may take 1 s or 30 s for little."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from builder.files import http_opener\n"
        f"http_opener.WINDOW_SECONDS = {1.0 if 'drips' in request.node.name else 30.0}\n"
        "sys.path.pop()\n"
    )
    env = {"PIP_INDEX_URL": f"{index.url}/simple", "PIP_RESUME_RETRIES": "0", "NO_PROXY": "*"}
    return Machine(tmp_path / "home", pip={**env, "PYTHONPATH": str(tmp_path / "site")})


@pytest.fixture
def release(tmp_path: Path) -> str:
    return str(write_release(tmp_path / "release", layouts=("thin",), wheels=(CUDNN,)))


def test_an_honest_index_is_served(machine: Machine, release: str) -> None:
    assert machine.run("install", "--index", release) == 0, machine.err


@pytest.mark.parametrize("place", [PAGE, FILE], ids=["page", "wheel"])
@pytest.mark.parametrize("kind", [*FLOODS, *OTHERS])
def test_the_endless_is_left(machine: Machine, index: Server, release: str, kind: str, place: str) -> None:
    index.always[place] = {**FLOODS, **OTHERS}[kind]
    begin = time.monotonic()
    assert machine.run("install", "--index", release, "--json") == 10, machine.err
    assert time.monotonic() - begin < 50
    assert machine.litter() == []
    error = json.loads(machine.out)["error"]
    assert error["code"] == 10
    assert "http_opener.py" not in error["message"], "no traceback"
    assert all(sent < FLOOD for sent in index.flooded)
    if kind != "headers":  # of which http.client reads 100
        assert ("The package index sends" if kind in FLOODS else CUDNN.name) in error["message"]
