"""Tests of limits on memory: what the container allows is not exceeded, and what does not fit is told."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from ortpacks_runtime import Report
from ortpacks_service import memory
from ortpacks_service.memory import Runs, container_limit, plan_memory
from ortpacks_service.options import EMBEDDER

from tests.component.service.conftest import Told
from tests.support.factories.onnx_models import write_model
from tests.support.service import VECTORS, Running, peak, service, write_embedder

MIB = 1 << 20


V1 = "memory/memory.limit_in_bytes"

LIMITS: dict[str, tuple[str | None, dict[str, str], int | None]] = {
    "v2": ("0::/\n", {"memory.max": f"{512 * MIB}\n"}, 512 * MIB),
    "v2 above": ("0::/a/b\n", {"a/memory.max": "9000", "a/b/memory.max": "max\n", "memory.max": "max"}, 9000),
    "v2 below": ("0::/a/b\n", {"a/memory.max": "9000", "a/b/memory.max": "8000"}, 8000),
    "v1 in a container": ("5:cpu:/x\n4:memory:/x\n", {V1: "7000"}, 7000),
    "v1": ("4:cpu,memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "7000"}, 7000),
    "no limit in v1": ("4:memory:/\n", {V1: "9223372036854771712"}, None),
    "no limit": ("0::/\n", {"memory.max": "max\n"}, None),
    "no file": ("0::/\n", {}, None),
    "no groups": (None, {}, None),
}


@pytest.mark.parametrize(("groups", "files", "limit"), LIMITS.values(), ids=LIMITS)
def test_the_container_s_limit_is_read(
    tmp_path: Path, groups: str | None, files: dict[str, str], limit: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    if groups is not None:
        (tmp_path / "groups").write_text(groups)
    found = container_limit(tmp_path / "groups", tmp_path / "root")
    assert found == (limit or sys.maxsize)


def test_a_limit_is_shared_out(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    monkeypatch.setattr(memory, "_resident", lambda: 70 * MIB)
    assert plan_memory(512, 32, [90 * MIB, 2 * MIB]) == (128 * MIB, 218 * MIB)
    assert plan_memory(4096, 32, []) == (128 * MIB, 3802 * MIB)
    with pytest.raises(ValueError, match="too few") as refused:
        plan_memory(400, 32, [90 * MIB, 2 * MIB])
    told(refused.value)


def test_without_a_limit_a_model_that_may_not_fit_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_resident", lambda: 70 * MIB)
    monkeypatch.setattr(memory, "_free", lambda: 400 * MIB)
    limits = [sys.maxsize, sys.maxsize, 512 * MIB]
    monkeypatch.setattr(memory, "container_limit", lambda *_: limits.pop(0))
    assert plan_memory(None, 32, [96 * MIB]) is None
    assert plan_memory(None, 32, []) == (100 * MIB, 134 * MIB)
    assert plan_memory(None, 32, [96 * MIB]) == (128 * MIB, 218 * MIB), "a container's limit is kept"


def test_a_run_that_wants_all_memory_waits_for_none_that_come_later() -> None:
    """Else runs of which the next begins before the last ends would keep it out for ever."""
    runs, held, order = Runs(), threading.Event(), list[str]()
    began = threading.Barrier(2)

    class Session:
        report = Report(provider="cpu")

        def run(self, outputs: list[str], feed: object, _options: object) -> list[str]:
            if feed == "first":
                began.wait(60)
                held.wait(60)
            order.append(outputs[0])
            if order == ["large"]:
                raise RuntimeError("bad_alloc")
            return outputs

    def run(name: str, feed: str = "") -> object:
        return runs.run(cast(Any, Session()), [name], cast(Any, feed))

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(run, "first", "first")
        began.wait(60)
        large = threads.submit(run, "large")
        while not runs._alone:
            time.sleep(0.001)
        later = threads.submit(run, "later")
        time.sleep(0.05)
        held.set()
        assert [one.result(60) for one in (first, large, later)] == [["first"], ["large"], ["later"]]
    assert order == ["large", "first", "large", "later"]
    assert not runs.busy


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a process that may use 400 MiB.

    Its embedding model takes 16 MiB for a text of 256 tokens, and 512 MiB for 32 of them. ``square`` takes
    4 n² bytes.
    """
    folder = tmp_path_factory.mktemp("limited")
    write_embedder(folder / "models" / EMBEDDER)
    write_model(
        folder / "models" / EMBEDDER / "model.onnx",
        f"""embedder (int64[batch, sequence] input_ids) => (float[batch, sequence, 2] rows)
        <float[4, 2] table = {{{VECTORS}}}, int64[3] times = {{1, 1, 64}}, float zero = {{0}}> {{
            plain = Gather (table, input_ids)
            turned = Transpose <perm = [0, 2, 1]> (plain)
            scores = MatMul (plain, turned)
            wide = Tile (scores, times)
            most = ReduceMax <axes = [2]> (wide)
            nothing = Mul (most, zero)
            rows = Add (plain, nothing)
        }}""",
    )
    write_model(
        folder / "models" / "square" / "model.onnx",
        """square (float[n, 1] x) => (float y) {
            turned = Transpose (x)
            all = MatMul (x, turned)
            y = ReduceMax <keepdims = 0> (all)
        }""",
    )
    with service(folder / "models", folder / "data", {"ORTPACKS_MEMORY_MIB": "400"}) as running:
        yield running


def square(running: Running, side: int) -> tuple[int, str]:
    tensor = {"name": "x", "shape": [side, 1], "datatype": "FP32", "data": [1] * side}
    try:
        return 200, str(running.post("/v2/models/square/infer", {"inputs": [tensor]})["outputs"][0]["data"])
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_long_texts_are_computed_in_as_many_runs_as_fit(limited: Running) -> None:
    texts = ["east " * 300, "north " * 256, "east north " * 128] * 20
    answer = limited.post("/embed", {"texts": texts})
    assert answer["truncated"] == list(range(0, 60, 3))
    vectors = [[round(number, 3) for number in vector] for vector in answer["embeddings"]]
    assert vectors == [[1, 0], [0, 1], [0.555, 0.832]] * 20
    assert peak(limited.process.pid) < 400


def test_a_run_that_fits_nowhere_is_refused_and_others_go_on(limited: Running, told: Told) -> None:
    assert square(limited, 2000) == (200, "[1.0]")
    status, text = square(limited, 12_000)
    assert status == 413
    told(re.sub(r"\d{6,}", "N", text))
    with ThreadPoolExecutor(8) as clients:
        sides = [12_000, 3_000, 3_500, 2_500] * 6
        answers = list(clients.map(lambda side: square(limited, side)[0], sides))
    assert answers == [413, 200, 200, 200] * 6, "they wait for each other"
    assert limited.post("/embed", {"texts": "east"})["embeddings"] == [[1, 0]]
    assert peak(limited.process.pid) < 400


HOSTILE = [
    ("/embed", b'{"texts": ["' + b"a" * (30 << 20) + b'"]}'),
    ("/embed", b'{"texts": [' + b'"a",' * 400_000 + b'"a"]}'),
    ("/embed", b'{"texts": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    ("/embed", ('{"texts": "' + "\N{GRINNING FACE} " * 5_000_000 + '"}').encode()),
    ("/v1/embeddings", b'{"input": [' + b"[1]," * 200_000 + b"[1]]}"),
    ("/add", b'{"texts": "a", "metadata": [' + b'{"a":1},' * 100_000 + b"{}]}"),
    ("/v2/models/square/infer", b'{"inputs": [' + b'{"name": "x"},' * 100_000 + b"{}]}"),
    ("/v2/models/square/infer", bytes(31 << 20)),
    ("/embed", ('{"texts": " ' + "a" * (20 << 20) + '\N{GRINNING FACE}"}').encode()),
    ("/embed", b'{"texts": "' + b" " * (20 << 20) + b'\\ud83d\\ude00"}'),
]
"""Bodies that are large, deep, many values in few bytes, or wide by one letter beyond ASCII."""


def test_answers_with_large_stored_texts_count_as_memory(limited: Running, told: Told) -> None:
    for _ in range(6):
        limited.post("/add", {"texts": "east " * (3 << 20)})
    for path, body in (("/texts", None), ("/search", b'{"text": "east", "k": 1000}')):
        with pytest.raises(urllib.error.HTTPError) as refused:
            limited.fetch(path, body)
        assert refused.value.code == 413
        told(refused.value.read().decode())
    assert [one["id"] for one in limited.get("/texts?limit=1")["texts"]] == [1]
    limited.post("/delete", {"ids": [1, 2, 3, 4, 5, 6]})
    assert peak(limited.process.pid) < 400


def test_hostile_requests_leave_it_within_its_memory(limited: Running) -> None:
    """``ORTPACKS_TEST_TIMES=2000`` sends as many, as before a release."""

    def send(number: int) -> int:
        path, body = HOSTILE[number % len(HOSTILE)]
        try:
            limited.fetch(path, body)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code
        except OSError:  # refused before all was sent
            return 503
        return 200

    with ThreadPoolExecutor(16) as clients:
        answers = set(clients.map(send, range(int(os.environ.get("ORTPACKS_TEST_TIMES", "24")))))
    assert answers <= {200, 400, 413, 503}
    assert limited.post("/embed", {"texts": "east"})["embeddings"] == [[1, 0]]
    assert peak(limited.process.pid) < 400
