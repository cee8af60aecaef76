"""Tests of the service's routes through HTTP requests."""

import base64
import errno
import json
import logging
import os
import shutil
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from unittest.mock import Mock

import apsw
import numpy as np
import pytest
from ortpacks_runtime import Report
from ortpacks_service.memory import Runs
from ortpacks_service.models import LOADING, Model, Models
from ortpacks_service.options import EMBEDDER, read_options
from ortpacks_service.store import Entry, Store
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.component.service.conftest import Start, Told
from tests.support.service import write_slow
from tests.support.tables import table


def test_it_answers_and_tells_that_its_models_are_open(service: TestClient) -> None:
    assert service.get("/ping").json() == {"status": "pong"}
    assert service.get("/healthz").status_code == 200
    ready = service.get("/readyz")
    opened = {name: {"state": "ready"} for name in (EMBEDDER, "both", "same", "times")}
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "models": opened})


def test_a_text_becomes_the_mean_of_its_tokens_with_length_1(service: TestClient) -> None:
    """By hand: east is (2, 0), north (0, 3), an unknown word (1, 1); the padding's (9, 9) is not counted."""
    answer = service.post("/embed", json={"texts": ["east", "west east", "north", "east north east east"]})
    assert answer.status_code == 200
    found = np.array(answer.json()["embeddings"])
    wanted = np.array([[1, 0], [3, 1], [0, 1], [6, 3]]) / [[1], [10**0.5], [1], [45**0.5]]
    assert found == pytest.approx(wanted, abs=1e-6)
    assert {"dimensions": 2, "model": EMBEDDER, "provider": "cpu"}.items() <= answer.json().items()


INFER = f"/v2/models/{EMBEDDER}/infer"
DEEP = b"[" * 1000 + b"]" * 1000
"""Lists within each other: orjson reads up to 1024, and ``str`` fails for this many."""


@pytest.mark.parametrize(("path", "code", "body"), table("service/wrong-bodies.txt"))
def test_a_wrong_body_is_told(service: TestClient, told: Told, path: str, code: str, body: str) -> None:
    content = body.encode("latin-1").replace(b'"DEEP"', DEEP)
    headers = {"Content-Type": "application/json"}
    headers |= {"Content-Encoding": "gzip"} if code == "415" else {}
    answer = service.post(INFER if path == "infer" else path, content=content, headers=headers)
    assert answer.status_code == int(code)
    told(f"{path} {answer.text}")


def test_limits_of_texts_and_bodies_are_told(start: Start, told: Told) -> None:
    service = start("--texts", "2", "--body-mib", "1")
    for texts in (["east"] * 3, "east " * (1 << 20)):
        answer = service.post("/embed", json={"texts": texts})
        assert answer.status_code == 413
        told(answer.text)


@pytest.mark.parametrize("value", [b"1.5", b"{}"])
@pytest.mark.parametrize("path", ["/embed", INFER])
def test_values_of_json_count_with_their_memory(start: Start, path: str, value: bytes) -> None:
    """Four bodies of a MiB hold 32,768 values of 128 bytes."""
    service = start("--body-mib", "1", "--texts", "1000000")
    answer = service.post(path, content=b'{"texts": [' + b",".join([value] * 40_000) + b"]}")
    assert answer.status_code == 413
    assert "JSON has more than 32768 values. Send tensors as binary data" in answer.text


def test_commas_and_brackets_within_texts_are_no_values(start: Start) -> None:
    service = start("--body-mib", "1")
    texts = ['east, [north], {"east": \\}, ' * 12_000, "north"]
    assert service.post("/embed", json={"texts": texts}).status_code == 200
    assert service.post("/embed", content=b'{"texts": "east' + b"," * 100_000).status_code == 400


def test_values_fill_the_memory_for_bodies_until_they_are_gone(start: Start) -> None:
    service = start("--body-mib", "1", "--texts", "20000")
    for _ in range(2):
        assert service.post("/embed", json={"texts": ["east"] * 20_000}).status_code == 200
    bodies = service.app.state.service.bodies  # type: ignore[attr-defined]
    assert bodies._added(0) == 0


@pytest.mark.parametrize(
    ("path", "key"),
    [("/embed", "texts"), ("/v1/embeddings", "input"), ("/add", "texts"), ("/search", "text")],
)
def test_texts_fill_the_memory_for_bodies_while_they_wait(
    start: Start, monkeypatch: pytest.MonkeyPatch, path: str, key: str
) -> None:
    service, waiting = start(), []
    inner = service.app.state.service  # type: ignore[attr-defined]
    embed = inner.embed

    async def embed_later(texts: list[str]) -> object:
        waiting.append(inner.bodies._added(0))
        return await embed(texts)

    monkeypatch.setattr(inner, "embed", embed_later)
    assert service.post(path, json={key: "east " * 2_000}).status_code == 200
    twice = f'{{"{key}": {[1] * 2_000}, "{key}": "east"}}'
    headers = {"Content-Type": "application/json"}
    assert service.post(path, content=twice, headers=headers).status_code == 200
    assert waiting[0] > 10_000
    assert waiting[1] > 128 * 2_000, "each value counts as 128 bytes, whatever its text takes"
    assert inner.bodies._added(0) == 0


def test_what_is_not_there_is_told_as_json(service: TestClient) -> None:
    lost = service.get("/embed/all")
    assert (lost.status_code, lost.json()["error"]["message"]) == (404, "GET /embed/all: Not Found")
    assert service.get("/").headers["content-type"].startswith("text/html")
    wrong = service.get("/embed")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


def test_options_of_clients_that_change_nothing_are_taken(service: TestClient) -> None:
    """Text Embeddings Inference's own, with the values that it takes for them, and OpenAI's."""
    for side in ("right", "Right", None):
        given = {"inputs": ["east"], "truncation_direction": side, "dimensions": 2, "prompt_name": None}
        assert service.post("/embed", json=given).json() == [[1, 0]]
    given = {"input": "east", "user": "u1", "dimensions": 2, "encoding_format": "float"}
    assert service.post("/v1/embeddings", json=given).json()["data"][0]["embedding"] == [1, 0]


def test_metadata_returns_as_it_was_or_is_refused(start: Start) -> None:
    """orjson reads 1024 lists within each other and writes 254 of them."""
    service = start()
    for depth in (1, 100, 250):
        inner: object = [18446744073709551615, -9223372036854775808, 5e-324, "\0", "\N{GRINNING FACE}"]
        for _ in range(depth):
            inner = [inner]
        answer = service.post("/add", json={"texts": "east", "keys": ["k"], "metadata": [{"a": inner}]})
        assert answer.status_code == 200
        assert service.get("/texts").json()["texts"][0]["metadata"] == {"a": inner}
    headers = {"Content-Type": "application/json"}
    for wrong in (b"1e400", b"NaN", b'"\\ud800"', b"[" * 300 + b"]" * 300, b"[" * 2000 + b"]" * 2000):
        body = b'{"texts": "east", "metadata": [{"a": ' + wrong + b"}]}"
        assert service.post("/add", content=body, headers=headers).status_code == 400


def test_openai_s_form_in_numbers_and_in_base64(service: TestClient) -> None:
    body = {"model": EMBEDDER, "input": ["east", "east north"]}
    answer = service.post("/v1/embeddings", json=body).json()
    assert (answer["object"], answer["model"]) == ("list", EMBEDDER)
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert [(one["object"], one["index"]) for one in answer["data"]] == [("embedding", 0), ("embedding", 1)]
    packed = service.post("/v1/embeddings", json={**body, "encoding_format": "base64"}).json()
    for one, other in zip(answer["data"], packed["data"], strict=True):
        read = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        assert read == pytest.approx(np.array(one["embedding"]), abs=1e-6)
    assert service.get("/v1/models").json()["data"][0]["id"] == EMBEDDER


def test_what_was_added_is_found_nearest_first(start: Start) -> None:
    service = start()
    assert service.post("/add", json={"texts": ["north", "east"]}).json() == {"ids": [1, 2], "truncated": []}
    assert service.post("/add", json={"texts": "east north"}).json()["ids"] == [3]
    found = service.post("/search", json={"text": "east east", "k": 2}).json()["results"]
    assert [(one["id"], one["text"]) for one in found] == [(2, "east"), (3, "east north")]
    assert [one["score"] for one in found] == pytest.approx([1, 2 / 13**0.5], abs=1e-6)


def test_a_stored_text_has_what_was_given_with_it_until_it_is_deleted(start: Start) -> None:
    service = start()
    given = {"texts": ["north", "east"], "keys": ["n", "e"], "metadata": [{"page": 7}, None]}
    for _ in range(2):  # as after an answer that did not arrive
        assert service.post("/add", json=given).json()["ids"] == [1, 2]
    north, east = service.get("/texts").json()["texts"]
    assert north == {"id": 1, "text": "north", "key": "n", "metadata": {"page": 7}}
    assert service.get("/texts", params={"limit": 1}).json() == {"texts": [north], "next": 1}
    assert service.get("/texts", params={"limit": 1, "after": 1}).json()["texts"] == [east]
    found = service.post("/search", json={"text": "north"}).json()["results"]
    assert found[0] == {**north, "score": pytest.approx(1)}
    assert service.post("/delete", json={"keys": ["n", "w"], "ids": [9]}).json() == {"deleted": [1]}
    assert [one["id"] for one in service.post("/search", json={"text": "north"}).json()["results"]] == [2]
    for wrong in ({"after": "-1"}, {"after": "x"}, {"after": "9" * 20}, {"offset": "1"}):
        assert service.get("/texts", params=wrong).status_code == 400


LONG = "north " * 256 + "east"


@pytest.mark.parametrize(
    ("path", "key"),
    [("/embed", "texts"), ("/embed", "inputs"), ("/v1/embeddings", "input"), ("/add", "texts")],
)
def test_a_text_that_is_cut_is_told_or_refused(service: TestClient, told: Told, path: str, key: str) -> None:
    exact, wide = "north " * 256, "north" + " " * 100_000
    answer = service.post(path, json={key: ["east", LONG, exact, wide, LONG * 50, "east" * 9_000]})
    if key == "inputs":
        assert answer.headers["ortpacks-truncated"] == "1,4,5"
    else:
        assert answer.json()["truncated"] == [1, 4, 5]
    refused = service.post(path, json={key: [exact, LONG], "truncate": False})
    assert refused.status_code == 413
    told(refused.text)
    assert service.post(path, json={key: [exact, wide], "truncate": False}).status_code == 200


@pytest.mark.parametrize(("text", "truncated"), [(LONG, [0]), ("east", [])])
def test_a_search_tells_that_its_text_was_cut(service: TestClient, text: str, truncated: list[int]) -> None:
    assert service.post("/search", json={"text": text}).json()["truncated"] == truncated


@pytest.mark.parametrize(
    ("tokenizer", "transformer", "most"),
    [
        ({"model_max_length": 3}, None, 3),
        ({"model_max_length": 10**30}, None, 256),
        ({"model_max_length": 3}, {"max_seq_length": 2}, 2),
        ({"model_max_length": 300}, {}, 300),
    ],
)
def test_the_model_s_own_files_say_how_many_tokens_it_takes(
    start: Start, models: Path, tokenizer: object, transformer: object, most: int
) -> None:
    (models / EMBEDDER / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    if transformer is not None:
        (models / EMBEDDER / "sentence_bert_config.json").write_text(json.dumps(transformer))
    service = start()
    answer = service.post("/embed", json={"texts": ["east " * most, "east " * (most + 1)]})
    assert answer.json()["truncated"] == [1]
    assert service.get("/info").json()["max_input_length"] == most


def test_a_store_that_fails_is_in_the_log_and_in_readiness_until_it_works(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    service, full = start(), Mock(side_effect=apsw.FullError("database or disk is full"))
    assert service.get("/readyz").status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_put", full)
        assert [service.post("/add", json={"texts": "east"}).status_code for _ in range(3)] == [503] * 3
        patch.setattr(Store, "require_room", lambda store: store.add([Entry("")], np.zeros((1, 2))))
        ready = service.get("/readyz")
    assert (ready.status_code, "disk is full" in ready.json()["reason"]) == (503, True)
    logged = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert [line.partition(": ")[0] for line in logged] == ["the store fails"]
    assert service.get("/v2/health/ready").status_code == 200
    assert "the store works again" in caplog.text


def test_a_store_that_cannot_be_opened_costs_no_embedding(start: Start, tmp_path: Path, told: Told) -> None:
    (tmp_path / "data").write_text("a file")
    service = start()
    refused = service.post("/add", json={"texts": "east"})
    assert refused.status_code == 503
    told(refused.text)
    assert service.post("/embed", json={"texts": "east"}).status_code == 200
    assert service.get("/readyz").status_code == 503


def test_another_model_s_store_is_refused(
    start: Start, models: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    assert start().post("/add", json={"texts": "east"}).status_code == 200
    (models / EMBEDDER).rename(models / "mine")
    monkeypatch.setenv("ORTPACKS_MODEL_NAME", "mine")
    refused = start().post("/add", json={"texts": "east"})
    assert refused.status_code == 503
    told(refused.text)


def test_only_a_model_on_the_cpu_is_run_in_the_event_loop(start: Start) -> None:
    inner = start().app.state.service  # type: ignore[attr-defined]
    session = inner.models.session(EMBEDDER)
    assert inner._on_cpu()
    session.report.provider = "cuda"
    assert not inner._on_cpu()
    assert session.report is inner.models.named[EMBEDDER].report


def test_metrics_are_prometheus_and_count(start: Start) -> None:
    service = start()
    service.post("/embed", json={"texts": ["east", "north"]})
    service.post("/embed", json={})
    answer = service.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["syn_embedding_total", "cpu"] == 2
    assert samples["syn_embedding_seconds_count",] == 1
    assert samples["syn_embedding_batch_size_sum",] == 2
    assert samples["syn_embedding_queue",] == 0
    assert samples["syn_requests_total", "/embed", "200"] == 1
    assert samples["syn_requests_total", "/embed", "400"] == 1
    assert samples["ortpacks_provider", EMBEDDER, "cpu"] == 1
    assert samples["ortpacks_fallback", EMBEDDER] == 0


def test_a_fallback_is_shown_with_its_reason(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTPACKS_PROVIDER", "cuda")
    service = start()
    report = service.get("/providers").json()[EMBEDDER]
    assert report["provider"] == "cpu"
    refused = report["steps"][0]
    assert (refused["provider"], refused["taken"]) == ("cuda", False)
    assert "built without CUDAExecutionProvider" in refused["reason"]
    assert f'ortpacks_fallback{{model="{EMBEDDER}"}} 1.0' in service.get("/metrics").text


@pytest.mark.parametrize(
    ("notes", "more"), [([], {}), (["by JIT alone"], {"note": "by JIT alone"})], ids=["native", "JIT"]
)
def test_a_model_that_loads_for_long_says_why(tmp_path: Path, notes: list[str], more: dict[str, str]) -> None:
    began = time.monotonic() - 100
    model = Model("slow", tmp_path, LOADING, started=began, report=Report(notes=notes))
    assert model.value() == {"state": "loading", "seconds": pytest.approx(100, abs=5), **more}


def test_models_that_cannot_be_opened_cost_no_other(start: Start, models: Path, told: Told) -> None:
    (models / "broken").mkdir()
    (models / "broken" / "model.onnx").write_bytes(b"no model")
    not_utf8 = os.fsdecode(b"caf\xe9")
    shutil.copytree(models / EMBEDDER, models / not_utf8)
    service = start()
    ready = service.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True), "neither is required"
    states = {name: model["state"] for name, model in ready.json()["models"].items()}
    assert states == {EMBEDDER: "ready", "broken": "failed", "caf\\udce9": "failed"}
    told(ready.json()["models"]["caf\\udce9"]["reason"])
    other = start("--required", "broken, store").get("/readyz")
    assert (other.status_code, other.json()["reason"][:8]) == (503, "broken: ")
    assert service.post("/embed", json={"texts": "east"}).status_code == 200
    assert service.get("/v2/models/broken").status_code == 503
    assert service.get("/v2/models/broken/ready").status_code == 503


def test_models_of_a_second_folder_replace_the_first(start: Start, models: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    write_slow(more / "counts")
    shutil.copytree(more / "counts", models / "same")
    shutil.copytree(models / EMBEDDER, more / "same")
    service = start("--models", f"{models}:{more}")
    assert set(service.get("/readyz").json()["models"]) == {EMBEDDER, "counts", "same"}
    assert service.get("/v2/models/same").json()["inputs"][0]["name"] == "input_ids"


def test_a_folder_that_this_user_may_not_read_is_in_the_log_and_costs_no_other(
    models: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(models / EMBEDDER, models / "closed")
    stat = Path.stat

    def refused(path: Path) -> os.stat_result:
        if path.parent.name == "closed":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat(path)

    monkeypatch.setattr(Path, "stat", refused)
    assert list(Models([models], (), Runs()).named) == [EMBEDDER]
    assert f"{models}/closed may not be read by this user: its model is not served" in caplog.text


def test_a_folder_of_models_that_this_user_may_not_read_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "iterdir", Mock(side_effect=PermissionError))
    with pytest.raises(SystemExit, match="2"):
        read_options([], {"ORTPACKS_MODELS": str(models)})
    told = capsys.readouterr().err
    assert "ORTPACKS_MODELS" in told
    assert f"{models} may not be read by the user that" in told


@pytest.mark.parametrize("asked", ["true", "false"])
def test_who_waits_for_a_download_is_told_that_there_is_none_and_what_to_do(
    start: Start,
    models: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: str,
) -> None:
    monkeypatch.setenv("ORTPACKS_AUTO_DOWNLOAD", asked)
    shutil.rmtree(models / EMBEDDER)
    service = start()
    reason = service.get("/readyz").json()["reason"]
    told(reason)
    assert service.post("/embed", json={"texts": "east"}).status_code == 404
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR] == [reason]


def test_config_toml_names_another_model_and_is_held_to_its_size(
    start: Start, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models / EMBEDDER, models / "mine")
    (tmp_path / "config.toml").write_text('[ai]\nmodel_name = "mine"\nembedding_dim = 384\n')
    told(start().get("/readyz").json()["reason"])
    (tmp_path / "config.toml").write_text('[ai]\nmodel_name = "mine"\nembedding_dim = 2\n')
    assert start().post("/embed", json={"texts": "east"}).json()["model"] == "mine"


@pytest.mark.parametrize(
    "text", ['[ai]\nprovider = "cudda"\n', "[ai]\nprovide = 1\n", "[ai]\nthreads = 'two'\n", "[ai\n"]
)
def test_a_model_s_own_wrong_setting_is_told(start: Start, models: Path, told: Told, text: str) -> None:
    (models / EMBEDDER / "config.toml").write_text(text)
    told(start().get("/readyz").json()["reason"])


def test_what_waits_longer_than_it_may_is_told(start: Start, models: Path, told: Told) -> None:
    """The model's loop takes minutes; SIGTERM does not wait for it, and other requests are served."""
    write_slow(models / "slow")
    service = start("--seconds", "1")
    late = [counted(service, 10**10) for _ in range(4)]
    assert {status for status, _ in late} == {504}
    told(late[-1][1])
    assert '"data":[3]' in counted(service, 3)[1]


def counted(service: TestClient, number: int) -> tuple[int, str]:
    """Return the status and the answer of the model that counts to a number."""
    body = {"inputs": [{"name": "n", "shape": [], "datatype": "INT64", "data": [number]}]}
    answer = service.post("/v2/models/slow/infer", json=body)
    return answer.status_code, answer.text


def test_a_store_that_is_behind_refuses(start: Start, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_slow(models / "slow")
    service, gate = start(), threading.Event()
    monkeypatch.setattr(Store, "add", lambda *_: [gate.wait(20)])
    with ThreadPoolExecutor(65) as pool:
        asked = [pool.submit(service.post, "/add", json={"texts": "east"}) for _ in range(65)]
        (first,) = wait(asked, return_when=FIRST_COMPLETED).done
        assert first.result().status_code == 503
        more = service.post("/add", json={"texts": "east"})
        assert (more.status_code, more.headers["retry-after"]) == (503, "1")
        assert "64 requests are waiting already" in more.json()["error"]["message"]
        assert counted(service, 3)[0] == 200
        gate.set()
        assert sorted(one.result().status_code for one in asked) == [200] * 64 + [503]


@pytest.mark.parametrize("encoding", ["Identity", "identity", ""])
def test_a_body_that_is_not_compressed_may_say_so(service: TestClient, encoding: str) -> None:
    answer = service.post("/embed", json={"texts": "east"}, headers={"Content-Encoding": encoding})
    assert answer.status_code == 200


def test_a_very_long_text_takes_no_longer_than_its_first_part(service: TestClient) -> None:
    began = time.process_time()
    answer = service.post("/embed", json={"texts": "east " * 5_000_000})
    assert answer.status_code == 200
    assert time.process_time() - began < 5
