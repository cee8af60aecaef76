"""Tests of the image with the service, started as README describes: requests, limits, faults, restarts."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path

import pytest
import testinfra
from ortpacks_service.options import EMBEDDER

from builder.config.variants import Project
from tests.images.conftest import SERVICE
from tests.support import ROOT, ran
from tests.support.containers import Served, docker, free_port
from tests.support.debian import debian_program
from tests.support.factories.onnx_models import MATRIX, write_model
from tests.support.hostile import mixed, tokens
from tests.support.sentences import SENTENCES

KINDS = ("cpu service", SERVICE)

HARD = ("--read-only", "--tmpfs=/tmp", "--memory=512m", "--cap-drop=ALL", "--label=io.ortpacks=run")

HOME = "--volume=/home/ortpacks"
"""A place for the store, of the image's user."""


only_cpu = pytest.mark.parametrize("kind", ["cpu service"], indirect=True)


Start = Callable[..., Served]


@pytest.fixture
def start(image: str) -> Iterator[Start]:
    names: list[str] = []

    def started(*flags: str, home: str = HOME) -> Served:
        port = free_port()
        place = [home] if home else []
        name = docker("run", "--detach", *HARD, *place, f"--publish=127.0.0.1:{port}:9900", *flags, image)
        names.append(name)
        return Served(name, port)

    yield started
    for name in names:
        docker("rm", "--force", "--volumes", name)


def _time_to_ready(start: Start, image: str) -> tuple[float, Served]:
    """Return the time of a start of the service, in starts of a container that only imports ONNX Runtime."""
    began = time.monotonic()
    docker("run", "--rm", *HARD, image, "python3", "-c", "import onnxruntime")
    importing = time.monotonic() - began
    served = start("--user=4242:4242", home="--tmpfs=/home/ortpacks:uid=4242")
    assert served.ready()["ready"] is True
    return (time.monotonic() - began) / importing - 1, served


@pytest.mark.thorough
@only_cpu
def test_it_answers_within_its_budgets(start: Start, image: str, project: Project) -> None:
    """The fastest of three starts counts, because Docker does other tests' work too."""
    starts = [_time_to_ready(start, image) for _ in range(3)]
    times, served = min(starts, key=itemgetter(0))
    assert times < 5, starts
    assert served.ask("/ping") == {"status": "pong"}
    answer = served.ask("/embed", {"texts": ["The weather is lovely today."]})
    assert (len(answer["embeddings"][0]), answer["provider"]) == (384, "cpu")
    assert 'syn_embedding_total{provider="cpu"} 1.0' in served.ask("/metrics")
    memory = docker("stats", "--no-stream", "--format={{.MemUsage}}", served.name)
    assert float(memory.partition("MiB")[0]) < 350
    assert json.loads(docker("inspect", image))[0]["Size"] < project.image.budget
    host = testinfra.get_host(f"docker://{served.name}")
    (check,) = (json.loads(docker("inspect", image))[0]["Config"]["Healthcheck"]["Test"][1:],)
    assert host.run(" ".join(check)).rc == 0
    assert host.run(f"export ORTPACKS_PORT=1; {' '.join(check)}").rc != 0


CLIENTS = 200


@pytest.mark.thorough
@only_cpu
def test_200_clients_at_once_are_all_answered_in_512_mib(start: Start) -> None:
    """The test takes 8 seconds; ``ORTPACKS_TEST_SECONDS=60`` sets another time."""
    served = start()
    served.ready()
    until = time.monotonic() + int(os.environ.get("ORTPACKS_TEST_SECONDS", "8"))
    failed: list[OSError] = []

    def client(number: int) -> int:
        answered = 0
        while time.monotonic() < until:
            try:
                served.ask("/embed", {"texts": SENTENCES[number % 3]})
                answered += 1
            except OSError as error:
                failed.append(error)
        return answered

    with ThreadPoolExecutor(CLIENTS) as clients:
        answered = sum(clients.map(client, range(CLIENTS)))
    state = json.loads(docker("inspect", served.name))[0]["State"]
    memory = docker("stats", "--no-stream", "--format={{.MemUsage}}", served.name)
    assert (failed, state["Running"], state["OOMKilled"]) == ([], True, False)
    assert answered > CLIENTS
    assert float(memory.partition("MiB")[0]) < 350


def uploaded_at_once(served: Served, body: bytes, headers: dict[str, str], times: int = 16) -> set[int]:
    """Let clients send the body to Silero's model; return the status codes."""
    url = f"http://127.0.0.1:{served.port}/v2/models/silero_vad/infer"

    def upload(_: int) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code
        except OSError:  # refused before all was sent
            return 503

    with ThreadPoolExecutor(times) as clients:
        return set(clients.map(upload, range(times)))


@pytest.mark.thorough
@only_cpu
def test_many_large_bodies_at_once_leave_it_alive_in_512_mib(start: Start) -> None:
    """The model takes other inputs, which is found after a body was read: 400."""
    served = start()
    served.ready()
    data = bytes(31 << 20)
    tensor = {"name": "input", "shape": [1, len(data) // 4], "datatype": "FP32"}
    head = {"inputs": [tensor | {"parameters": {"binary_data_size": len(data)}}]}
    text = json.dumps(head).encode()
    named = {"Inference-Header-Content-Length": str(len(text))}
    assert uploaded_at_once(served, text + data, named) <= {400, 503}, "all of them may come too late"
    assert uploaded_at_once(served, text + data, named, times=1) == {400}
    for values, refused in ((8_000_000, 413), (900_000, 400)):
        numbers = b",".join([b"1.5"] * values)
        body = b'{"inputs": [{"name": "input", "shape": [%d], "datatype": "FP32", "data": [%s]}]}'
        assert uploaded_at_once(served, body % (values, numbers), {}) <= {refused, 503}
        assert uploaded_at_once(served, body % (values, numbers), {}, times=1) == {refused}
    assert served.ask("/embed", {"texts": "a"})["dimensions"] == 384
    assert json.loads(docker("inspect", served.name))[0]["State"]["OOMKilled"] is False


@pytest.mark.thorough
@only_cpu
def test_mixed_hostile_requests_leave_it_alive_in_512_mib(start: Start) -> None:
    """Bodies that take much beside runs that do: each part of the memory is full while the others are.

    The release tier sends 2,000 requests, with 128 clients, for a minute at least.
    """
    served = start()
    served.ready()
    times = int(os.environ.get("ORTPACKS_TEST_TIMES", "300"))
    clients, seconds = (128 if times >= 2000 else 32), int(os.environ.get("ORTPACKS_TEST_SECONDS", "8"))
    answers = mixed(served.port, EMBEDDER, clients, times, seconds)
    state = json.loads(docker("inspect", served.name))[0]["State"]
    assert (state["Running"], state["OOMKilled"]) == (True, False), answers
    assert set(answers) <= {0, 200, 400, 413, 503, 504}
    assert answers[200] > clients / 2, "not all of them came while the memory was full"
    served.ready()
    assert served.ask("/embed", {"texts": "a"})["dimensions"] == 384


@pytest.mark.thorough
@only_cpu
def test_the_largest_requests_are_answered_or_refused_in_512_mib(start: Start) -> None:
    """The release tier repeats these a hundred times, after one with as many texts as a request may have."""
    served = start("--env=ORTPACKS_SECONDS=600")
    served.ready()
    body, headers = tokens(100, 512)  # 1.2 MB, whose run would take 5 GB
    url = f"http://127.0.0.1:{served.port}/v2/models/{EMBEDDER}/infer"
    times = int(os.environ.get("ORTPACKS_TEST_TIMES", "0")) // 20
    if times:  # minutes
        answer = served.ask("/embed", {"texts": ["weather " * 300] * 2048})
        assert len(answer["embeddings"]) == len(answer["truncated"]) == 2048
    for _ in range(max(2, times)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=600)
        with refused.value as answered:
            assert answered.code == 413
        answer = served.ask("/embed", {"texts": ["weather " * 300] * 64})
        assert len(answer["embeddings"]) == len(answer["truncated"]) == 64
    state = json.loads(docker("inspect", served.name))[0]["State"]
    assert (state["Running"], state["OOMKilled"]) == (True, False)


def test_without_a_place_to_write_all_but_the_store_is_served(start: Start) -> None:
    served = start(home="")
    assert "Read-only file system" in served.ready()["reason"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.ask("/add", {"texts": "a"})
    assert refused.value.code == 503
    assert "Read-only file system" in refused.value.read().decode()
    assert served.ask("/embed", {"texts": "a"})["dimensions"] == 384


@only_cpu
def test_a_provider_that_cannot_be_had_is_told_in_log_metrics_and_providers(start: Start) -> None:
    served = start("--env=ORTPACKS_PROVIDER=cuda")
    assert served.ready()["ready"] is True
    report = served.ask("/providers")[EMBEDDER]
    assert report["provider"] == "cpu"
    reason = report["steps"][0]["reason"]
    assert "built without CUDAExecutionProvider" in reason
    warned = [line["message"] for line in served.log() if line["level"] == "WARNING"]
    assert any(line.startswith("Falling back to CPU: cuda: ") and reason in line for line in warned)
    assert f'ortpacks_fallback{{model="{EMBEDDER}"}} 1.0' in served.ask("/metrics")


@pytest.fixture(scope="module")
def compose() -> Path:
    """Return Docker's compose plugin of version 2, from the package of Debian 13."""
    return debian_program("docker-compose/trixie", "usr/libexec/docker/cli-plugins/docker-compose")


@only_cpu
def test_compose_starts_it_and_keeps_its_store(compose: Path, image: str, tmp_path: Path) -> None:
    write_model(tmp_path / "models" / "times" / "model.onnx", MATRIX)
    tmp_path.chmod(0o755)
    port = free_port()
    project = f"ortpacks-test-{os.getpid()}"
    argv = [str(compose), "--profile", "cpu", "--project-name", project]
    env = {
        **os.environ,
        "ORTPACKS_HOST_PORT": str(port),
        "ORTPACKS_MODELS": str(tmp_path / "models"),
        "ORTPACKS_LEVEL": "low",
    }

    def run(*command: str) -> str:
        done = ran([*argv, *command], cwd=ROOT, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    described = json.loads(run("config", "--format=json"))["services"]["cpu"]
    assert (described["image"], described["read_only"]) == ("ortpacks/cpu:service", True)
    assert int(described["mem_limit"]) == 512 << 20
    gpu = json.loads(run("--profile=gpu", "config", "--format=json"))["services"]["gpu"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    try:
        run("up", "--wait")
        served = Served("", port)
        assert set(served.ready()["models"]) == {EMBEDDER, "silero_vad", "times"}
        assert "level low prefers int8" in served.ask("/providers")[EMBEDDER]["notes"][0]
        assert served.ask("/add", {"texts": "a"})["ids"] == [1]
        run("up", "--detach", "--force-recreate")
        served.ready()
        assert [one["id"] for one in served.ask("/search", {"text": "a"})["results"]] == [1]
    finally:
        run("down", "--volumes")
