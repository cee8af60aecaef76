"""Tests of compile caches as ccache uses them: HTTP in the container, the agent here, codes of objects."""

import errno
import hmac
import os
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer, ThreadingUnixStreamServer
from unittest.mock import Mock

import pytest

from builder import errors
from builder.compile.compile_cache import CompileCache, CompileCaches, FolderCache, compile_cache, served
from builder.errors import (
    BuilderError,
    CheckFailedError,
    DiskError,
    IntegrityError,
    TransferError,
    ValidationError,
)
from builder.farm import agent, storage
from builder.io.wiring import COMPILE_CACHE_KEY
from tests.support.cache_servers import KEY, KEYS, ccache
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Told
from tests.support.tables import table
from tests.support.tls_server import unknown_tls_server

CUT = TransferError("broken does not answer", cause="cut")


def failing(folder: Path, error: BuilderError, **methods: object) -> FolderCache:
    """Return a cache whose ``put`` raises an error, and whose other methods are these or a folder's."""
    cache = FolderCache(folder)
    for name, effect in {"put": error, **methods}.items():
        setattr(cache, name, Mock(side_effect=effect))
    return cache


def test_what_one_build_puts_another_one_gets(tmp_path: Path) -> None:
    reporter, value = FakeReporter(), bytes(range(256)) * 9000
    caches = CompileCaches(shared=FolderCache(tmp_path))
    with ccache(caches, reporter) as one:
        assert one.variables["CCACHE_RESHARE"] == "1"
        assert one.ask("GET", KEY) == (404, b"")
        assert one.ask("HEAD", KEY) == (404, b"")
        assert one.ask("PUT", KEY, value) == (201, b"")
    assert reporter.lines == [f"{tmp_path}: 0 of 1 objects found, 1 new"]
    with ccache(caches, reporter) as two:
        assert two.ask("HEAD", KEY) == (200, b"")
        assert two.ask("GET", KEY) == (200, value)
        assert two.ask("GET", KEY) == (200, value), "over the connection that is kept"
    assert reporter.lines[-1] == f"{tmp_path}: 2 of 2 objects found, 0 new"
    assert (tmp_path / KEY).read_bytes() == value, "as ccache lays a folder out"


NO_KEYS = ["", *(path for (path,) in table("compile/no-keys.txt"))]


def test_what_is_no_key_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with ccache(CompileCaches(shared=FolderCache(tmp_path / "cache"))) as one:
        assert [one.ask("GET", path)[0] for path in NO_KEYS] == [404] * len(NO_KEYS)
        assert [one.ask("PUT", path, b"mine")[0] for path in NO_KEYS] == [507] * len(NO_KEYS)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "secret"


def test_what_was_compiled_ahead_is_only_read(tmp_path: Path) -> None:
    ahead = FolderCache(tmp_path / "ahead")
    ahead.put(KEY, b"ahead")
    with ccache(CompileCaches(ahead=ahead)) as one:
        assert one.variables["CCACHE_SECONDARY_STORAGE"].endswith("|read-only")
        assert "CCACHE_RESHARE" not in one.variables
        assert one.ask("GET", KEY) == (200, b"ahead")
    shared = FolderCache(tmp_path / "shared")
    with ccache(CompileCaches(ahead=ahead, shared=shared)) as one:
        one.ask("PUT", "cd/efghijklmnop", b"made")
        assert one.ask("GET", "cd/efghijklmnop") == (200, b"made")
        assert one.ask("GET", KEY) == (200, b"ahead")
    assert [len([*folder.glob("??/*")]) for folder in (tmp_path / "ahead", tmp_path / "shared")] == [1, 1]


def test_an_object_that_no_message_can_hold_is_not_kept(tmp_path: Path) -> None:
    large, cache = bytes(15 << 20), FolderCache(tmp_path)
    with ccache(CompileCaches(shared=cache)) as one:
        assert one.ask("PUT", KEY, large)[0] == 507
        cache.put(KEY, large)
        assert one.ask("GET", KEY)[0] == 404
        assert one.ask("PUT", KEY, large[:-100]) == (201, b"")
        assert one.ask("GET", KEY) == (200, large[:-100])


def test_an_object_of_which_a_part_came_is_not_kept(tmp_path: Path) -> None:
    """ccache is killed, say because the machine has no memory left."""
    with ccache(CompileCaches(shared=FolderCache(tmp_path))) as one:
        port = int(one.variables["CCACHE_SECONDARY_STORAGE"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"PUT /{KEY} HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf".encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100).startswith(b"HTTP/1.1 507 ")
    assert not (tmp_path / KEY).exists()


@pytest.mark.parametrize("name", ["x" * 100, "a,b"])
def test_a_folder_that_is_no_socket_s_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """buildx takes a comma for the end of the path (``docker buildx build --ssh``)."""
    (folder := tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with served(CompileCaches(), FakeReporter()) as path:
        assert not path.is_relative_to(folder)
    with ccache(CompileCaches(shared=FolderCache(tmp_path / "cache"))) as one:
        assert one.ask("PUT", KEY, b"made") == (201, b"")


def test_a_server_that_goes_away_is_told_once_and_the_build_goes_on(tmp_path: Path) -> None:
    reporter, broken = FakeReporter(), failing(tmp_path, CUT, has=CUT, get=[b"of the broken one", CUT])
    with ccache(CompileCaches(shared=broken), reporter) as one:
        assert one.ask("GET", KEY) == (200, b"of the broken one")
        assert one.ask("GET", KEY) == (404, b"")
        assert one.ask("PUT", KEY, b"made") == (201, b"")
        assert one.ask("HEAD", KEY)[0] == 200, "so that ccache brings nothing"
    assert [line for line in reporter.lines if line[0] == "!"] == [
        "! broken does not answer: cut. The build goes on without it."
    ]


@pytest.mark.parametrize(
    "refusal",
    [
        ValidationError("read-only refuses", cause="no permission"),
        DiskError("read-only may not be written", advice="Allow it."),
    ],
)
def test_a_cache_that_stores_nothing_is_still_read(tmp_path: Path, told: Told, refusal: BuilderError) -> None:
    FolderCache(tmp_path).put(KEY, b"made")
    reporter = FakeReporter()
    with ccache(CompileCaches(shared=failing(tmp_path, refusal)), reporter) as one:
        for other in ("cd", "ef"):
            assert one.ask("PUT", KEY.replace("ab", other), b"new") == (201, b"")
        assert one.ask("GET", KEY) == (200, b"made")
    told("\n".join(reporter.lines))
    with (
        pytest.raises(type(refusal), match="read-only"),
        ccache(CompileCaches(into=failing(tmp_path, refusal))) as one,
    ):
        one.ask("PUT", KEY.replace("ab", "cd"), b"new")


def test_a_result_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(TransferError, match="broken does not answer: cut"),
        ccache(CompileCaches(into=failing(tmp_path, CUT))) as one,
    ):
        one.ask("PUT", KEY, b"made")
    with (
        pytest.raises(CheckFailedError, match="ccache stored none"),
        ccache(CompileCaches(into=FolderCache(tmp_path))),
    ):
        pass


def test_a_result_may_be_of_an_earlier_run_and_has_what_was_found_elsewhere_too(tmp_path: Path) -> None:
    shared, into = FolderCache(tmp_path / "shared"), FolderCache(tmp_path / "into")
    shared.put(KEY, b"made")
    with ccache(CompileCaches(shared=shared, into=into)) as one:
        assert one.ask("GET", KEY) == (200, b"made")
    assert into.get(KEY) == b"made"
    for method in ("GET", "HEAD"):
        with ccache(CompileCaches(into=into)) as one:
            assert one.ask(method, KEY)[0] == 200


def test_an_agent_that_is_asked_for_anything_else_refuses(tmp_path: Path) -> None:
    with (
        served(CompileCaches(shared=FolderCache(tmp_path)), FakeReporter()) as path,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(path))
        client.sendall(b"\0\0\0\1\13")  # SSH_AGENTC_REQUEST_IDENTITIES
        assert client.recv(100) == b"\0\0\0\1\5", "SSH_AGENT_FAILURE"


def test_a_container_that_is_killed_while_it_is_answered_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As after Ctrl-C."""
    cache, ended = FolderCache(tmp_path), threading.Event()
    cache.put(KEY, bytes(10 << 20))

    def end(_: ThreadingUnixStreamServer, request: socket.socket) -> None:
        request.close()
        ended.set()

    monkeypatch.setattr(ThreadingUnixStreamServer, "shutdown_request", end)
    with served(CompileCaches(shared=cache), FakeReporter()) as path:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            request = agent.sign_request(agent.string(b"key"), f"GET {KEY}\n".encode())
            connection.sendall(agent.string(request))
            assert connection.recv(1)
        assert ended.wait(10)
    assert capfd.readouterr().err == ""


def test_without_a_socket_ccache_is_told_nothing(tmp_path: Path) -> None:
    with storage.served(tmp_path / "none") as variables:
        assert variables == {}


@pytest.mark.parametrize(
    ("kind", "address"), [*table("compile/addresses.txt"), ("ValidationError", "s3:// ")]
)
def test_addresses_that_lead_nowhere_are_refused(tmp_path: Path, told: Told, kind: str, address: str) -> None:
    """Defect: of an address that S3 does not take, the advice was to correct a variable."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(getattr(errors, kind)) as refused:
        compile_cache(address.format(tmp_path), "--into", {}).require()
    assert "hush" not in str(refused.value)
    told(refused.value)


def test_an_absent_host_and_a_wrong_variable_of_s3_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransferError, match=r"does not answer: .*label empty or too long"):
        compile_cache("redis://cache..example", "--into", {}).require()
    use_s3(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(
        TransferError, match=r"does not answer: .*Connection refused\. Check AWS_ENDPOINT_URL"
    ):
        compile_cache("s3://bucket", "--into", {}).require()
    monkeypatch.setenv("AWS_S3_EXPRESS", "perhaps")
    with pytest.raises(ValidationError, match=r's3://bucket cannot be opened: .*"perhaps".*AWS_') as refused:
        compile_cache("s3://bucket", "--into", {})
    assert "\n" not in str(refused.value)


def use_s3(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)


@contextmanager
def answering(said: bytes) -> Iterator[int]:
    """Return a port whose server answers each command of Redis, and anything else, with ``said``.

    It ends the connection where ``said`` is empty.
    """

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            while (asked := self.request.recv(1 << 16)) and said:
                self.request.sendall(said * (len(re.findall(rb"^\*\d", asked, re.MULTILINE)) or 1))

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


REDIS, S3 = "redis://127.0.0.1:{port}", "s3://bucket"


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", b"\0\xff garbage \r\n", b""]
)
@pytest.mark.parametrize("address", [REDIS, S3])
def test_a_server_of_another_kind_does_not_answer(
    address: str, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(said) as port:
        use_s3(monkeypatch, f"http://127.0.0.1:{port}")
        with pytest.raises(BuilderError, match=r"does not answer|refuses") as refused:
            compile_cache(address.format(port=port), "--into", {}).require()
    assert "\n" not in str(refused.value)
    assert "a secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("rediss://127.0.0.1:{port}", "does not answer: .*certificate verify failed"),
        (S3, "does not answer: its TLS certificate was not accepted"),
    ],
)
def test_a_server_whose_certificate_nobody_knows_is_not_asked(
    address: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unknown_tls_server(tmp_path) as port:
        use_s3(monkeypatch, f"https://127.0.0.1:{port}")
        with pytest.raises(TransferError, match=why):
            compile_cache(address.format(port=port), "--into", {}).require()


def test_a_server_without_tls_is_not_asked_where_tls_is_wanted() -> None:
    with answering(b"+PONG\r\n") as port, pytest.raises(TransferError, match=r"does not answer: .*SSL"):
        compile_cache(f"rediss://127.0.0.1:{port}", "--into", {}).require()


def answer(status: str, code: str = "") -> bytes:
    """Return an answer of S3 (API Reference, "Error responses")."""
    body = f"<Error><Code>{code}</Code><Message>A message.</Message></Error>" if code else ""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()


@pytest.mark.parametrize(("server", "ask", "kind", "said"), table("compile/refusals.txt"))
def test_what_a_server_refuses_and_what_is_no_redis_are_told(
    told: Told, monkeypatch: pytest.MonkeyPatch, server: str, ask: str, kind: str, said: str
) -> None:
    """Defect: of a bucket that is not there, the advice was to check the variables of AWS."""
    with answering(answer(*said.split(" / ")) if server == "s3" else f"{said}\r\n".encode()) as port:
        use_s3(monkeypatch, f"http://127.0.0.1:{port}")
        cache = compile_cache((S3 if server == "s3" else REDIS).format(port=port), "--into", {})
        with pytest.raises(getattr(errors, kind)) as refused:
            getattr(cache, ask)(*[KEY, b"new"][: {"get": 1, "put": 2}.get(ask, 0)])
    told(re.sub(r"(?<=as Redis: )(?!GET|PING).*(?=\. Start)", "…", str(refused.value)))  # Python's words


def test_an_object_that_is_removed_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine makes room in the folder. Defect: the folder was not asked again in this build."""
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    assert FolderCache(tmp_path).get(KEY) is None
    (tmp_path / KEY).mkdir(parents=True)
    assert FolderCache(tmp_path).get(KEY) is None


def test_an_object_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect: the message said that it "cannot be written"."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    cache = FolderCache(tmp_path)
    cache.put(KEY, b"made")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DiskError, match=rf"^{tmp_path / KEY}: Permission denied\. Fix its owner or mode"):
        cache.get(KEY)


OURS, OTHER = "4f1c0c6e2b7a9d35", "a key of somebody else"


def sealed(folder: Path, key: str = OURS) -> CompileCache:
    return compile_cache(str(folder), "--compile-cache", {COMPILE_CACHE_KEY: key})


def code(key: str, name: str, value: bytes) -> bytes:
    return hmac.new(os.fsencode(key), name.encode() + b"\n" + value, "sha256").digest()


@pytest.mark.parametrize("key", [OURS, os.fsdecode(b"\xff\xfe" * 8)], ids=["hex digits", "any bytes"])
def test_objects_come_back_to_those_who_have_the_key(tmp_path: Path, key: str) -> None:
    sealed(tmp_path, key).put(KEY, b"made")
    again = sealed(tmp_path, key)
    assert (again.get(KEY), again.has(KEY)) == (b"made", True)
    assert (again.get("cd/efghijklmnop"), again.has("cd/efghijklmnop")) == (None, False)
    assert (tmp_path / KEY).read_bytes() == code(key, KEY, b"made") + b"made"


@pytest.mark.parametrize(
    "stored",
    [
        code(OTHER, KEY, b"false") + b"false",
        b"false",
        code(OURS, "cd/efghijklmnop", b"false") + b"false",
        code(OURS, KEY, b"made") + b"mad!",
        b"",
    ],
    ids=["another key", "no key", "another name", "changed", "empty"],
)
def test_an_object_of_another_is_not_used_and_told_once(tmp_path: Path, stored: bytes) -> None:
    (tmp_path / KEY).parent.mkdir()
    (tmp_path / KEY).write_bytes(stored)
    with pytest.raises(IntegrityError, match=f"{KEY} was not stored with the key in {COMPILE_CACHE_KEY}"):
        sealed(tmp_path).get(KEY)
    reporter = FakeReporter()
    with ccache(CompileCaches(shared=sealed(tmp_path)), reporter) as one:
        assert [one.ask("GET", KEY), one.ask("GET", KEY)] == [(404, b"")] * 2
    (warned,) = [line for line in reporter.lines if line[0] == "!"]
    assert warned.endswith("The build goes on without it.")


@pytest.mark.parametrize("key", [OURS[1:], ""], ids=["short", "of a file that is not there"])
def test_a_key_that_could_be_guessed_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(
        ValidationError, match=rf"{COMPILE_CACHE_KEY} has fewer than 16 characters.*openssl rand -hex 32"
    ):
        sealed(tmp_path, key)
