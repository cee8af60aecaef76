"""Tests of the service as a process: settings, signals, and the store after a kill."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml
from ortpacks_runtime.settings import VARIABLES
from ortpacks_service import memory
from ortpacks_service.__main__ import main
from ortpacks_service.options import EMBEDDER, Options, read_options
from ortpacks_service.store import Entry, Store

from tests.component.service.conftest import Told
from tests.support import ROOT, ran, until
from tests.support.service import Running, argv, resident, service, world, write_embedder, write_slow

EAST = np.array([1, 0], np.float32)


def customized(folder: Path, code: str) -> dict[str, str]:
    """Return an environment in which Python runs ``code`` before the service."""
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), world()["PYTHONPATH"]])}


SHORT_GRACE = """
import uvicorn
begin = uvicorn.Config.__init__
uvicorn.Config.__init__ = lambda *own, **more: begin(*own, **more | {"timeout_graceful_shutdown": 1})
"""
"""Code for ``customized``: a service that is told to end waits 1 s for its requests, and not 6."""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_when_all_is_answered(models: Path, tmp_path: Path, sent: signal.Signals) -> None:
    with service(models, tmp_path / "data") as running:
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(running.post, "/embed", {"texts": ["east north"] * 1000})
            time.sleep(0.05)
            running.process.send_signal(sent)
            assert running.process.wait(10) == -sent
        assert len(asked.result()["embeddings"]) == 1000
        lines = running.logged()
        assert lines[0]["message"] == "serving"
        assert {line["level"] for line in lines} == {"INFO"}


def test_a_run_that_does_not_end_holds_up_no_end(models: Path, tmp_path: Path) -> None:
    write_slow(models / "slow")
    body = {"inputs": [{"name": "n", "shape": [], "datatype": "INT64", "data": [10**12]}]}
    with service(models, tmp_path / "data") as running, running.asked("/v2/models/slow/infer", body):
        assert "Traceback" not in running.log(-signal.SIGTERM)


def test_process_1_of_a_container_waits_for_no_batch_either(models: Path, tmp_path: Path) -> None:
    env = customized(
        tmp_path,
        f"{SHORT_GRACE}import signal, time\n"
        "from ortpacks_service.embedding import Embedder\n"
        "signal.raise_signal = lambda _: None  # as Linux does for process 1\n"
        "embed = Embedder.embed\n"
        "Embedder.embed = lambda own, texts: time.sleep(20 * ('north' in texts)) or embed(own, texts)\n",
    )
    texts = {"texts": ["north", "east"]}
    with service(models, tmp_path / "data", env) as running, running.asked("/embed", texts):
        running.log(0)


def test_models_that_fall_back_for_one_reason_are_one_warning(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / EMBEDDER, models / "another")
    with service(models, tmp_path / "data", {"ORTPACKS_PROVIDER": "cuda"}) as running:
        until(lambda: "another" in running.get("/providers"))
        assert running.get("/providers")["another"]["provider"] == "cpu"
        lines = running.logged()
    (told,) = (line["message"] for line in lines if line["level"] == "WARNING")
    assert told.startswith("Falling back to CPU: cuda: ")
    fallen = [line["model"] for line in lines if line["message"] == "model is ready" and line["fallback"]]
    assert sorted(fallen) == sorted([EMBEDDER, "another"])


def test_a_warning_of_a_library_is_a_line_of_json_as_any_other(tmp_path: Path) -> None:
    """numpy warns of an infinite vector."""
    write_embedder(tmp_path / "models" / EMBEDDER, vectors="9, 9, 1, 1, 2, 0, inf, 3")
    with service(tmp_path / "models", tmp_path / "data") as running:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            running.post("/embed", {"texts": "north"})
        lines = running.logged()
    (told,) = (line["message"] for line in lines if line["logger"] == "py.warnings")
    assert "RuntimeWarning: invalid value" in told


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a process with the embedding model, which several tests share."""
    folder = tmp_path_factory.mktemp("shared")
    write_embedder(folder / "models" / EMBEDDER)
    with service(folder / "models", folder / "data") as running:
        yield running


def test_onnx_runtime_sends_nothing_to_its_vendor(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telemetry of ONNX Runtime 1.31.1 begins with a file in the temporary folder when it is imported."""
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)  # the service set it in this process too
    sends, quiet = tmp_path / "sends", tmp_path / "quiet"
    for folder in (sends, quiet):
        folder.mkdir()
    argv = [sys.executable, "-c", "import onnxruntime"]
    subprocess.run(argv, env={**world(), "TMPDIR": str(sends)}, check=True)
    if not list(sends.iterdir()):
        pytest.skip("this build of ONNX Runtime has no telemetry")
    with service(models, tmp_path / "data", {"TMPDIR": str(quiet)}):
        assert list(quiet.glob(".ses")) == []


def test_a_client_that_leaves_is_no_failure(models: Path, tmp_path: Path) -> None:
    with service(models, tmp_path / "data") as running:
        for path in ("/embed", "/vad"):
            with running.line() as line:
                line.sendall(
                    f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{{".encode()
                )
                time.sleep(0.2)
        time.sleep(0.5)
        metrics = running.fetch("/metrics").decode()
        assert 'syn_requests_total{path="/embed",status="499"} 1.0' in metrics
        assert 'status="500"' not in metrics


def test_bodies_leave_no_room_until_they_are_gone(models: Path, tmp_path: Path) -> None:
    def half_sent(running: Running) -> socket.socket:
        line, size = running.line(), 1 << 20
        line.sendall(f"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode())
        line.sendall(bytes(size - 1))
        return line

    with service(models, tmp_path / "data", {"ORTPACKS_BODY_MIB": "1"}) as running:
        with half_sent(running), half_sent(running), half_sent(running), half_sent(running):
            time.sleep(0.5)
            with pytest.raises(urllib.error.HTTPError) as refused:
                running.post("/embed", {"texts": "east"})
            assert (refused.value.code, refused.value.headers["Retry-After"]) == (503, "1")
            assert "requests of 4 MiB are in memory already" in refused.value.read().decode()
        time.sleep(0.5)
        assert running.post("/embed", {"texts": "east"})["dimensions"] == 2


def answer_to(running: Running, *parts: bytes) -> bytes:
    """Send the parts of requests; return all that comes until the service closes the connection."""
    with running.line() as line:
        with contextlib.suppress(ConnectionError):  # closed before all was sent
            for part in parts:
                line.sendall(part)
        come = b""
        with contextlib.suppress(ConnectionError):
            while piece := line.recv(1 << 16):
                come += piece
        return come


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/embed", "Connection: close", 413),
        ("/embed", "Connection: close\r\nContent-Encoding: gzip", 415),
        ("/nowhere", "Connection: TE, close", 404),  # as libwww-perl closes
        ("/embed/", "Connection: close", 404),
    ],
)
def test_the_whole_body_is_read_before_the_end(shared: Running, path: str, headers: str, status: int) -> None:
    """Otherwise Linux resets the connection while the client still sends."""
    size = 64 << 20
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\nContent-Length: {size}\r\n\r\n"
    with shared.line() as line:
        line.sendall(head.encode() + bytes(size))
        assert line.recv(4096).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_refused_body_is_no_memory_while_its_rest_comes(models: Path, tmp_path: Path) -> None:
    closing = (
        b"POST /embed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9999999\r\n\r\n"
    )
    env = {"ORTPACKS_BODY_MIB": "1", **customized(tmp_path, SHORT_GRACE)}
    with service(models, tmp_path / "data", env) as running, ExitStack() as opened:
        lines = [opened.enter_context(running.line()) for _ in range(3)]
        for line in lines:
            line.sendall(closing + bytes(3 << 19))
        dimensions, deadline = 0, time.monotonic() + 10
        while not dimensions and time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.HTTPError):  # until all three are refused
                dimensions = running.post("/embed", {"texts": "east"})["dimensions"]
        assert dimensions == 2
        assert "Traceback" not in running.log(-signal.SIGTERM)
        statuses = {line.recv(4096).split()[1] for line in lines}
        assert {b"413"} <= statuses <= {b"413", b"503"}, "three at once may be too many together"


def test_a_body_that_does_not_come_holds_up_no_answer(models: Path, tmp_path: Path) -> None:
    with service(models, tmp_path / "data", {"ORTPACKS_SECONDS": "3"}) as running:
        began = time.monotonic()
        answer = answer_to(running, CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert b"504 Gateway Timeout" in answer
        assert time.monotonic() - began < 5.5, "else it waits as long again for the body"


PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /",
        PING + b"X: ",
        PING + b"\r\n" + PING + b"X: ",
        CHUNKED + b"1;",
        CHUNKED + b"2\r\n{}\r\n0\r\nX: ",
    ],
    ids=["first line", "header", "header of the second request", "line before a part", "line after the body"],
)
def test_lines_without_an_end_are_cut_and_take_no_memory(shared: Running, begin: bytes) -> None:
    before = resident(shared.process.pid)
    answer = answer_to(shared, begin, *[b"a" * (1 << 16)] * 1600)
    assert resident(shared.process.pid) < before + 16
    assert shared.get("/ping") == {"status": "pong"}
    assert b"400 Bad Request" in answer or not answer
    assert b"larger than 64 KiB" in answer or b"Invalid HTTP request" in answer or not answer


@pytest.mark.parametrize("large", [b"X: " + b"a" * 70_000, b"X: a\r\n" * 18_000], ids=["one", "many"])
def test_a_head_that_is_too_large_is_refused_though_it_comes_at_once(shared: Running, large: bytes) -> None:
    answer = answer_to(shared, PING + large + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"The request's first line and headers are larger than 64 KiB.")


def test_a_connection_may_be_idle_as_long_as_a_load_balancer_keeps_it(models: Path, tmp_path: Path) -> None:
    """nginx and Amazon's keep one for 60 s: the service's limit must be longer, else requests are lost."""
    assert read_options(["--models", str(models)], {}).keep_alive > 60
    with service(models, tmp_path / "data", {"ORTPACKS_KEEP_ALIVE": "2"}) as running, running.line() as line:
        for _ in range(2):
            line.sendall(PING + b"\r\n")
            come = b""
            while b"pong" not in come:
                come += line.recv(4096)
            time.sleep(0.5)
        assert line.recv(4096) == b""


def test_more_connections_than_there_is_memory_for_are_told(shared: Running) -> None:
    with ExitStack() as opened:
        lines = [opened.enter_context(shared.line()) for _ in range(520)]
        assert lines[-1].recv(4096).startswith(b"HTTP/1.1 503 ")
        lines[0].sendall(PING + b"\r\n")
        assert b"200 OK" in lines[0].recv(4096)
    assert answer_to(shared, PING + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_many_requests_in_one_packet_and_large_heads_are_answered(shared: Running) -> None:
    large = b"X: " + b"a" * 60_000 + b"\r\n"
    last = PING + b"Connection: close\r\n\r\n"
    body = b'{"texts": "' + b"east " * 200_000 + b'"}'
    post = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    answer = answer_to(shared, (PING + b"\r\n") * 200 + post + PING + large + b"\r\n" + last)
    assert answer.count(b"HTTP/1.1 200 OK") == 203


JAVA = (
    b"Host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
)
"""Headers of each request of Java's ``HttpClient``, unless the program asks for HTTP/1.1."""


@pytest.mark.parametrize(
    "body",
    [
        b'Content-Length: 17\r\n\r\n{"texts": "east"}',
        b'Transfer-Encoding: chunked\r\n\r\n11\r\n{"texts": "east"}\r\n0\r\n\r\n',
    ],
    ids=["length", "chunked"],
)
def test_the_body_of_a_request_that_asks_for_http_2_is_read(shared: Running, body: bytes) -> None:
    post = b"POST /embed HTTP/1.1\r\n" + JAVA + body
    ping = b"GET /ping HTTP/1.1\r\n" + JAVA
    for cut_at in (len(post), post.index(b"{"), post.index(b"{") + 5):
        parts = [post[:cut_at], post[cut_at:] + ping + b"\r\n" + post + PING + b"Connection: close\r\n\r\n"]
        answer = answer_to(shared, *parts)
        assert answer.count(b"HTTP/1.1 200 OK") == 4
        assert answer.count(b'"embeddings":[[1.0,0.0]]') == answer.count(b'{"status":"pong"}') == 2


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_the_last_request_of_a_connection_may_ask_for_http_2_too(shared: Running, version: bytes) -> None:
    """Its end was not seen: it was answered with 504 after 30 s."""
    asked = (
        b"POST /embed HTTP/%s\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n" % version
    )
    answer = answer_to(shared, asked + b'Content-Length: 17\r\n\r\n{"texts": "east"}' + PING + b"\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b'"embeddings":[[1.0,0.0]]') == 1


def test_a_silent_connection_is_closed(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = customized(tmp_path, "from ortpacks_service import connections\nconnections._HEAD_SECONDS = 1\n")
    with service(models, tmp_path / "data", env) as running:
        began = time.monotonic()
        with ThreadPoolExecutor() as threads:
            answers = threads.map(lambda begin: answer_to(running, begin), (b"", PING, b"GET /"))
            assert [*answers] == [b""] * 3
        assert time.monotonic() - began < 10
        slow = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 17\r\n\r\n"
        with running.line() as line:
            line.sendall(slow)
            time.sleep(1.5)
            line.sendall(b'{"texts": "east"}')
            assert b"200 OK" in line.recv(4096)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
def test_a_client_that_does_not_read_its_answer_is_left(models: Path, tmp_path: Path) -> None:
    """Such answers, 32 MiB or more each, stayed in memory as long as the client's machine ran."""
    env = customized(
        tmp_path,
        "import socket\n"
        "own = socket.socket.setsockopt\n"
        "def shorter(self, level, name, value):\n"
        "    own(self, level, name, 1000 if name == socket.TCP_USER_TIMEOUT and value == 30_000 else value)\n"
        "socket.socket.setsockopt = shorter\n",
    )
    size = 16 << 20
    ids = {"name": "input_ids", "datatype": "INT64", "shape": [1, size // 8]}
    sized = ids | {"parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [sized], "parameters": {"binary_data_output": True}})
    lengths = f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + size}"
    post = f"POST /v2/models/{EMBEDDER}/infer HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n{head}"
    with service(models, tmp_path / "data", env) as running:
        before = sockets(running.process.pid)
        with running.line() as line:
            line.sendall(post.encode() + bytes(size))
            line.recv(100)
            until(lambda: sockets(running.process.pid) <= before, 15)
            assert sockets(running.process.pid) == before


def sockets(process: int) -> int:
    """Return the number of sockets that a process has open."""
    count = 0
    for file in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the process may close one while it is counted
            count += str(file.readlink()).startswith("socket:")
    return count


def test_two_processes_share_a_store(models: Path, tmp_path: Path) -> None:
    with service(models, tmp_path / "data") as running, ThreadPoolExecutor(2) as threads:
        own = Store(tmp_path / "data", EMBEDDER, 2)
        adds = [
            lambda: running.post("/add", {"texts": "east"})["ids"],
            lambda: own.add([Entry("east")], EAST[None]),
        ]
        found = list(threads.map(lambda add: [number for _ in range(20) for number in add()], adds))
    assert sorted(found[0] + found[1]) == list(range(1, 41))


def test_a_kill_loses_nothing_that_was_acknowledged(models: Path, tmp_path: Path) -> None:
    acknowledged: list[int] = []

    def add(running: Running) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # of the kill
            while True:
                acknowledged.extend(running.post("/add", {"texts": ["east", "north"]})["ids"])

    with service(models, tmp_path / "data") as running, ThreadPoolExecutor(3) as threads:
        for _ in range(3):
            threads.submit(add, running)
        while len(acknowledged) < 40:
            time.sleep(0.01)
        running.process.kill()
    found = Store(tmp_path / "data", EMBEDDER, 2).search(EAST, 1000, int)
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= {one["id"] for one in found}


@pytest.mark.parametrize(
    "setting",
    [
        *("--port=70000", "--queue=0", "ORTPACKS_BATCH=many", "--models=nowhere", "ORTPACKS_PROVIDER=cudda"),
        *("--memory-mib=0", "--memory-mib=90", "--allowed-hosts=http://a", "--metrics=no"),
        *("--host=", "--host=a\udcff", "--models=/tmp:", "--data=", "--data=a\udcff"),
    ],
    ids=ascii,
)
def test_a_wrong_setting_ends_it_with_a_sentence(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    told: Told,
    setting: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "_resident", lambda: 70 << 20)
    if not setting.startswith("--"):
        monkeypatch.setenv(*setting.split("="))
    flags = [setting] if setting.startswith("--") else []
    with port_that_is_taken() as port:  # otherwise a setting that is not refused serves endlessly
        assert ended(["--models", str(models), "--port", str(port), *flags]) == 2
    told(capsys.readouterr().err.splitlines()[-1])


@contextmanager
def port_that_is_taken() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def ended(arguments: list[str]) -> object:
    """Run the service in this process to its end and return its exit code."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return stop.code


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["--version"]) == 0
    assert capsys.readouterr().out == "ortpacks-service 1.0.0\n"


def test_the_number_of_processes_of_other_servers_is_not_read(models: Path, tmp_path: Path) -> None:
    with service(models, tmp_path / "data", {"WEB_CONCURRENCY": "auto"}) as running:
        assert running.get("/ping") == {"status": "pong"}


def test_compose_passes_every_setting_to_the_container() -> None:
    inside = ("host", "port", "models", "data")
    options = {f"ORTPACKS_{field.name.upper()}" for field in fields(Options) if field.name not in inside}
    wanted = options | {name for names in VARIABLES.values() for name in names}
    for service_ in yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values():
        passed = {one for one in service_["environment"] if "=" not in one}
        assert passed == wanted


def test_a_port_that_is_taken_is_told(models: Path, tmp_path: Path) -> None:
    with port_that_is_taken() as port:
        command = argv(models, tmp_path / "data", port)
        done = ran(command, env=world(), timeout=60)
    assert done.returncode == 1
    assert f"--port {port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
