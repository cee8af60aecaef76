"""Tests of servers that never come to the file, send wrong chunk sizes or forge lines of the output.

``tests.fuzz.client`` runs briefly; ``python -m tests.fuzz.client`` is the long run.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.formats.text import shown
from tests.doubles.hostile import CHUNK_SIZES, CHUNKED, ENDLESS, FLOOD, chunked, floods, says
from tests.doubles.release import Fault, Server, serving, write_release
from tests.fuzz.client import run
from tests.fuzz.client_cases import SURFACES
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
def test_self_update_has_limits(
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
    index = json.loads((signed.folder / "index.json").read_text())
    index["packages"][1]["name"] = FORGED
    (signed.folder / "index.json").write_text(json.dumps(index))
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
