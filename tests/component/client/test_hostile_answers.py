"""Tests of servers that never come to the file, send wrong chunk sizes or forge lines of the output.

Package indexes are such servers too: pip ends, with exit code 10 and one document.

``tests.fuzz.client`` runs briefly; ``python -m tests.fuzz.client`` is the long run.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.formats.text import shown
from tests.doubles.hostile import CHUNK_SIZES, CHUNKED, ENDLESS, FLOOD, LINE, chunked, dribbles, floods, says
from tests.doubles.machine import Machine
from tests.doubles.release import Fault, Server, change_index, serving, write_release
from tests.doubles.wheels import CUDNN
from tests.fuzz.client import run
from tests.fuzz.client_cases import SURFACES
from tests.support import ROOT
from tests.support.factories.signed_release import Signed

WRONG: dict[str, Fault] = {
    **CHUNK_SIZES,
    "-5 after bytes": says(CHUNKED + b"2\r\nhe\r\n-5\r\nllo\r\n0\r\n\r\n"),
}

DOCUMENTS = ("index.json", "targets.json", "2.root.json", "ortpacks-legacy-1.23.2-cuda12.9-linux-x64.tar.zst")


@pytest.fixture
def server(signed: Signed) -> Iterator[Server]:
    with serving(signed.folder) as running:
        yield running


def failed(signed: Signed, server: Server, *argv: str) -> str:
    """Return the message of a command that ends with exit code 10 and one JSON document."""
    assert signed.run(argv[0], f"{server.url}/index.json", "--json", *argv[1:]) == 10, signed.machine.err
    error = json.loads(signed.machine.out)["error"]
    assert error["code"] == 10
    return str(error["message"])


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("kind", [*ENDLESS, *WRONG])
def test_what_is_not_the_file_has_an_end(signed: Signed, server: Server, document: str, kind: str) -> None:
    """A server that floods is given up at once: it will flood again."""
    server.always[document] = {**ENDLESS, **WRONG}[kind]
    told = failed(signed, server, "install")
    assert told.startswith("127.0.0.1 sends ") if kind in ENDLESS else document in told
    assert all(sent < FLOOD for sent in server.flooded)
    assert sum(path == f"/{document}" for path, _ in server.requests) <= (1 if kind in ENDLESS else 6)


@pytest.mark.parametrize("flags", [[], ["--trust-unsigned"]])
@pytest.mark.parametrize("kind", [*ENDLESS, "-5", "a body"])
def test_self_update_ends(
    signed: Signed, server: Server, tmp_path: Path, kind: str, flags: list[str]
) -> None:
    program = signed.machine.program = tmp_path / "ortpacks.pyz"
    program.write_bytes(b"the old one")
    (signed.folder / "ortpacks.pyz").write_bytes(b"the new one")
    (signed.folder / "SHA256SUMS").write_text(f"{'0' * 64}  ortpacks.pyz\n")
    signed.sign()
    body = floods(b"HTTP/1.1 200 OK\r\n\r\n", b"x")
    server.always["ortpacks.pyz"] = {**ENDLESS, **WRONG, "a body": body}[kind]
    failed(signed, server, "self-update", *flags)
    assert all(sent < FLOOD for sent in server.flooded)
    assert program.read_bytes() == b"the old one"
    assert {path.name for path in tmp_path.iterdir()} <= {"ortpacks.pyz", "release", "home"}


def test_lines_that_come_slowly_are_no_progress(signed: Signed, server: Server) -> None:
    """8 KiB a second of them is faster than the least that a file may take."""
    signed.machine.tick = 1.0
    server.always["index.json"] = ENDLESS["100 Continue"]
    assert "bytes in 30 s" in failed(signed, server, "select")


def test_the_body_of_a_redirect_is_not_read(signed: Signed, server: Server) -> None:
    server.always["moved.json"] = floods(b"HTTP/1.1 302 Found\r\nLocation: /index.json\r\n\r\n", b"x")
    assert signed.run("select", f"{server.url}/moved.json", "--trust-unsigned") == 0
    assert server.flooded[0] < FLOOD


FORGED = "x\n  Installed"
"""A value whose second line looks like one of the client's own."""


def named_in_the_index(signed: Signed, server: Server) -> None:
    change_index(signed.folder, "modern", name=FORGED)
    signed.sign()
    server.always[DOCUMENTS[-1]] = WRONG["-5"]


def named_in_the_manifest(signed: Signed, server: Server) -> None:
    write_release(signed.folder, spoil=lambda manifest: manifest.update(provider=FORGED))
    signed.sign()


def continued_header(signed: Signed, server: Server) -> None:
    server.always[DOCUMENTS[-1]] = says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n   Installed\r\n\r\nhello")


@pytest.mark.parametrize("forge", [named_in_the_index, named_in_the_manifest, continued_header])
def test_no_line_is_forged(signed: Signed, server: Server, forge: Callable[[Signed, Server], None]) -> None:
    forge(signed, server)
    assert signed.run("install", f"{server.url}/index.json") in {7, 10}
    told = shown(signed.machine.err)
    assert "Installed" in told
    assert [line for line in told.splitlines() if line.lstrip().startswith("Installed")] == []


def test_honest_chunks_of_a_byte_are_taken(signed: Signed, server: Server) -> None:
    """Their body has three bytes of lines for each byte."""
    server.always |= {path.name: chunked(size=1) for path in signed.folder.iterdir()}
    assert signed.run("install", f"{server.url}/index.json") == 0, signed.machine.err


CASES, SEED = 60, 7


@pytest.mark.parametrize("surface", SURFACES)
def test_the_client_takes_or_refuses_what_is_hostile(surface: str) -> None:
    found = run(CASES, SEED, (surface,))
    assert not found.broken, f"seed {SEED}: {found.broken[0]}"
    assert CASES // 4 < found.refused < CASES, found


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


FLOODS: dict[str, Fault] = {
    **ENDLESS,
    "headers": floods(OK, LINE),
    "a body": floods(OK + b"\r\n", b"x"),
    "a body in chunks": floods(CHUNKED, b"10000\r\n" + b"x" * 0x10000 + b"\r\n"),
}

OTHERS: dict[str, Fault] = {
    "drips of lines": dribbles(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 1200, 0.05),
    "drips of a body": dribbles(OK + b"Content-Length: 20000\r\n\r\n", b"x", 1200, 0.05),
    **{name: CHUNK_SIZES[name] for name in ("-5", "no number", "huge")},
}

WHEEL_PAGE, WHEEL_FILE = f"simple/{CUDNN.name}", f"files/{CUDNN.file}"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "index/files").mkdir(parents=True)
    (tmp_path / "index" / WHEEL_FILE).write_bytes(CUDNN.content)
    page = f'<a href="/{WHEEL_FILE}">{CUDNN.file}</a>'.encode()
    with serving(tmp_path / "index") as server:
        server.always[WHEEL_PAGE] = says(
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


@pytest.mark.parametrize(
    "place",
    [pytest.param(WHEEL_PAGE, id="page"), pytest.param(WHEEL_FILE, id="wheel", marks=pytest.mark.thorough)],
)
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
