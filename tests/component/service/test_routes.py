"""Tests of the service's routes through HTTP requests."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from ortpacks_runtime import Report
from ortpacks_service.embedding import Embedder, Embeddings
from ortpacks_service.models import LOADING, Model, Models
from ortpacks_service.options import EMBEDDER, read_options
from ortpacks_service.store import Store
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tests.component.service.conftest import Start
from tests.support.service import write_slow


def test_it_answers_and_tells_that_its_models_are_open(start: Start) -> None:
    service = start()
    assert service.get("/ping").json() == {"status": "pong"}
    assert service.get("/healthz").status_code == 200
    ready = service.get("/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"ready": True, "models": {EMBEDDER: {"state": "ready"}}},
    )


def test_a_text_becomes_the_mean_of_its_tokens_with_length_1(service: TestClient) -> None:
    """By hand: east is (2, 0), north (0, 3), an unknown word (1, 1); the padding's (9, 9) is not counted."""
    answer = service.post("/embed", json={"texts": ["east", "west east", "north", "east north east east"]})
    assert answer.status_code == 200
    found = np.array(answer.json()["embeddings"])
    wanted = np.array([[1, 0], [3, 1], [0, 1], [6, 3]]) / [[1], [10**0.5], [1], [45**0.5]]
    assert found == pytest.approx(wanted, abs=1e-6)
    assert {key: answer.json()[key] for key in ("dimensions", "model", "provider")} == {
        "dimensions": 2,
        "model": EMBEDDER,
        "provider": "cpu",
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "the body is no JSON"),
        (b"[]", "a JSON object is wanted"),
        (b"{}", "texts: a text or a list of texts is wanted"),
        (b'{"inputs": ["east"]}', "texts: a text or a list of texts is wanted; found 'inputs'"),
        (b'{"texts": []}', "texts: a text or a list of texts is wanted"),
        (b'{"texts": [1]}', "texts: a text or a list of texts is wanted"),
        (b'{"texts": {"a": "b"}}', "texts: a text or a list of texts is wanted"),
        (b'{"texts": ["east", " "]}', "texts[1] is empty"),
        (b'{"texts": ["\xff"]}', "the body is no JSON"),
    ],
)
def test_a_wrong_body_is_told(service: TestClient, body: bytes, says: str) -> None:
    answer = service.post("/embed", content=body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_limits_of_texts_and_bodies_are_told(start: Start) -> None:
    service = start("--texts", "2", "--body-mib", "1")
    many = service.post("/embed", json={"texts": ["east"] * 3})
    assert (many.status_code, many.json()["error"]["message"]) == (
        413,
        "texts: 3 texts; at most 2 are taken at once (--texts)",
    )
    large = service.post("/embed", json={"texts": "east " * (1 << 20)})
    assert large.status_code == 413
    assert "larger than 1 MiB" in large.json()["error"]["message"]


@pytest.mark.parametrize("value", [b"1.5", b'"a"', b"[1]", b"{}", b"null"])
@pytest.mark.parametrize("path", ["/embed", f"/v2/models/{EMBEDDER}/infer"])
def test_values_of_json_take_more_memory_than_their_text_and_count_as_such(
    start: Start, path: str, value: bytes
) -> None:
    """Two bodies of a MiB hold 65,536 values of 32 bytes."""
    service = start("--body-mib", "1", "--texts", "1000000")
    answer = service.post(path, content=b'{"texts": [' + b",".join([value] * 70_000) + b"]}")
    assert answer.status_code == 413
    assert "JSON has more than 65536 values. Send tensors as binary data" in answer.text


def test_commas_and_brackets_within_texts_are_no_values(start: Start) -> None:
    service = start("--body-mib", "1")
    texts = ['east, [north], {"east": \\}, ' * 12_000, "north"]
    assert service.post("/embed", json={"texts": texts}).status_code == 200
    assert service.post("/embed", content=b'{"texts": "east' + b"," * 100_000).status_code == 400


def test_values_fill_the_memory_for_bodies_until_they_are_gone(start: Start) -> None:
    service = start("--body-mib", "1", "--texts", "60000")
    for _ in range(3):
        assert service.post("/embed", json={"texts": ["east"] * 40_000}).status_code == 200
    bodies = service.app.state.service.bodies  # type: ignore[attr-defined]
    assert bodies.size == 0


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
        waiting.append(inner.bodies.size)
        return await embed(texts)

    monkeypatch.setattr(inner, "embed", embed_later)
    assert service.post(path, json={key: "east " * 2_000}).status_code == 200
    assert service.post(path, json={key: "east", "ignored": [1] * 2_000}).status_code == 200
    assert waiting[0] > 10_000
    assert waiting[1] > 32 * 2_000, "each value counts as 32 bytes, whatever its text takes"
    assert inner.bodies.size == 0


def test_what_is_not_there_is_told_as_json(service: TestClient) -> None:
    lost = service.get("/embed/all")
    assert (lost.status_code, lost.json()["error"]["message"]) == (404, "GET /embed/all: Not Found")
    wrong = service.get("/embed")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


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


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ({"model": "text-embedding-3-small"}, 404, "'text-embedding-3-small' is not served here"),
        ({"encoding_format": "hex"}, 400, "encoding_format: float or base64 is wanted"),
        ({"dimensions": 1}, 400, "has 2"),
        ({"input": [[1, 2]]}, 400, "input: a text or a list of texts is wanted"),
    ],
)
def test_what_openai_has_and_the_service_has_not_is_told(
    service: TestClient, more: dict[str, object], code: int, says: str
) -> None:
    answer = service.post("/v1/embeddings", json={"input": "east", **more})
    assert answer.status_code == code
    assert says in answer.json()["error"]["message"]


def test_what_was_added_is_found_nearest_first(start: Start) -> None:
    service = start()
    assert service.post("/add", json={"texts": ["north", "east"]}).json() == {"ids": [1, 2]}
    assert service.post("/add", json={"texts": "east north"}).json() == {"ids": [3]}
    found = service.post("/search", json={"text": "east east", "k": 2}).json()["results"]
    assert [(one["id"], one["text"]) for one in found] == [(2, "east"), (3, "east north")]
    assert [one["score"] for one in found] == pytest.approx([1, 2 / 13**0.5], abs=1e-6)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"text": ["east", "north"]}, "text: a text is wanted"),
        ({"text": "east", "k": 0}, "k: a whole number from 1 to 1000 is wanted, found 0"),
        ({"text": "east", "k": True}, "k: a whole number from 1 to 1000 is wanted, found True"),
        ({"k": 1}, "text: a text or a list of texts is wanted; found 'k'"),
    ],
)
def test_a_wrong_search_is_told(service: TestClient, body: dict[str, object], says: str) -> None:
    answer = service.post("/search", json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, says)


DEEP = b"[" * 1000 + b"]" * 1000
"""Lists within each other: orjson reads up to 1024, and ``str`` fails for this many."""


@pytest.mark.parametrize(
    ("path", "body", "code", "says"),
    [
        (
            "/search",
            b'{"text": "east", "k": %s}',
            400,
            b"k: a whole number from 1 to 1000 is wanted, found [[[",
        ),
        ("/v1/embeddings", b'{"input": "east", "model": %s}', 404, b"[[["),
        (
            f"/v2/models/{EMBEDDER}/infer",
            b'{"inputs":[{"name":"x","shape":[],"datatype":"INT8","parameters":{"binary_data_size":%s}}]}',
            400,
            b"x: binary_data_size: a whole number is wanted, found [[[",
        ),
    ],
)
def test_lists_within_each_other_are_told_as_any_wrong_value(
    service: TestClient, path: str, body: bytes, code: int, says: bytes
) -> None:
    answer = service.post(path, content=body % DEEP)
    assert (answer.status_code, says in answer.content) == (code, True), answer.text


def test_a_store_that_cannot_be_opened_costs_no_embedding(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    service = start()
    refused = service.post("/add", json={"texts": "east"})
    assert refused.status_code == 503
    assert "Check the folder that --data names" in refused.json()["error"]["message"]
    assert service.post("/embed", json={"texts": "east"}).status_code == 200


def test_another_model_s_store_is_refused(
    start: Start, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start().post("/add", json={"texts": "east"}).status_code == 200
    (models / EMBEDDER).rename(models / "mine")
    monkeypatch.setenv("ORTPACKS_MODEL_NAME", "mine")
    refused = start().post("/add", json={"texts": "east"})
    assert refused.status_code == 503
    told = "has vectors of all-MiniLM-L6-v2 with 2 dimensions, the service runs mine"
    assert told in refused.json()["error"]["message"]


def test_only_a_model_on_the_cpu_is_run_in_the_event_loop(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    embed = Embedder.embed

    def told(embedder: Embedder, texts: Sequence[str]) -> Embeddings:
        threads.append(threading.current_thread().name.partition("_")[0])
        return embed(embedder, texts)

    monkeypatch.setattr(Embedder, "embed", told)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)  # each run is fast, whatever else the machine does
    service = start()
    for provider in ("cpu", "cpu", "cuda", "cuda"):
        service.app.state.service.models.session(EMBEDDER).report.provider = provider  # type: ignore[attr-defined]
        assert service.post("/embed", json={"texts": "east"}).status_code == 200
    assert [name == "embed" for name in threads[1:]] == [True, False, True, True]


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
def test_a_model_that_loads_for_long_says_why_only_where_that_is_known(
    tmp_path: Path, notes: list[str], more: dict[str, str]
) -> None:
    began = time.monotonic() - 100
    model = Model("slow", tmp_path, LOADING, started=began, report=Report(notes=notes))
    assert model.value() == {"state": "loading", "seconds": pytest.approx(100, abs=5), **more}


def test_the_report_of_a_model_is_that_of_its_session(start: Start) -> None:
    model = start().app.state.service.models.named[EMBEDDER]  # type: ignore[attr-defined]
    assert model.report is model.session.report


def test_a_model_that_cannot_be_opened_is_told_and_costs_no_other(start: Start, models: Path) -> None:
    (models / "broken").mkdir()
    (models / "broken" / "model.onnx").write_bytes(b"no model")
    service = start()
    ready = service.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert ready.json()["reason"].startswith("broken: ")
    assert ready.json()["models"][EMBEDDER] == {"state": "ready"}
    assert service.post("/embed", json={"texts": "east"}).status_code == 200
    assert service.get("/v2/models/broken").status_code == 503
    assert service.get("/v2/models/broken/ready").status_code == 503


def test_models_of_a_second_folder_are_served_too_and_replace_those_of_the_first(
    start: Start, models: Path, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    write_slow(more / "counts")
    shutil.copytree(more / "counts", models / "same")
    shutil.copytree(models / EMBEDDER, more / "same")
    service = start("--models", f"{models}:{more}")
    assert set(service.get("/readyz").json()["models"]) == {EMBEDDER, "counts", "same"}
    assert service.get("/v2/models/same").json()["inputs"][0]["name"] == "input_ids"


def test_a_folder_that_this_user_may_not_read_is_in_the_log_and_costs_no_other(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(models / EMBEDDER, models / "closed")
    with nobody_reads(models / "closed"):
        assert list(Models([models], ()).named) == [EMBEDDER]
    assert f"{models}/closed may not be read by this user: a model in it is not served" in caplog.text


@pytest.mark.parametrize("closed", [".", "models"])
def test_a_folder_of_models_that_this_user_may_not_read_is_refused(
    models: Path, capsys: pytest.CaptureFixture[str], closed: str
) -> None:
    with nobody_reads(models.parent / closed), pytest.raises(SystemExit) as ended:
        read_options([], {"ORTPACKS_MODELS": str(models)})
    assert ended.value.code == 2
    assert f"ORTPACKS_MODELS: {models} may not be read by the user that" in capsys.readouterr().err


@contextmanager
def nobody_reads(closed: Path) -> Iterator[None]:
    """Close a folder, open those above it, and be a user who may not read it."""
    user = os.geteuid()
    above = [one for one in closed.parents if not one.stat().st_mode & 1]
    modes = {one: one.stat().st_mode for one in (closed, *above)}
    for one in above:
        one.chmod(0o755)
    closed.chmod(0)
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for one, mode in modes.items():
            one.chmod(mode)


def test_without_its_embedding_model_it_says_what_to_name(start: Start, models: Path) -> None:
    shutil.rmtree(models / EMBEDDER)
    service = start()
    assert f"no {EMBEDDER}/model.onnx in {models}" in service.get("/readyz").json()["reason"]
    assert service.post("/embed", json={"texts": "east"}).status_code == 404


@pytest.mark.parametrize("asked", ["true", "false"])
def test_who_waits_for_a_download_is_told_that_there_is_none_and_what_to_do(
    start: Start,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: str,
) -> None:
    monkeypatch.setenv("ORTPACKS_AUTO_DOWNLOAD", asked)
    shutil.rmtree(models / EMBEDDER)
    reason = start().get("/readyz").json()["reason"]
    assert ("nothing is downloaded, though auto_download is set" in reason) == (asked == "true")
    assert "Put the model there (./run service makes dist/models" in reason
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR] == [reason]


def test_config_toml_names_another_model_and_is_held_to_its_size(
    start: Start, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models / EMBEDDER, models / "mine")
    (tmp_path / "config.toml").write_text('[ai]\nmodel_name = "mine"\nembedding_dim = 384\n')
    service = start()
    assert "embedding_dim is 384, mine has 2 dimensions" in service.get("/readyz").json()["reason"]
    (tmp_path / "config.toml").write_text('[ai]\nmodel_name = "mine"\nembedding_dim = 2\n')
    assert start().post("/embed", json={"texts": "east"}).json()["model"] == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[ai]\nprovider = "cudda"\n', "cudda"),
        ("[ai]\nprovide = 1\n", "'provide' is none of provider, device, level, strict, threads"),
        (
            "[ai]\nthreads = 'two'\n",
            "config.toml: ai.threads = 'two': a whole number from 1 to 1024 is wanted",
        ),
        ("[ai\n", "config.toml: "),
    ],
)
def test_a_model_s_own_wrong_setting_is_told(start: Start, models: Path, text: str, says: str) -> None:
    (models / EMBEDDER / "config.toml").write_text(text)
    assert says in start().get("/readyz").json()["reason"]


def test_a_folder_whose_name_is_no_text_is_told_and_costs_no_other(start: Start, models: Path) -> None:
    shutil.copytree(models / EMBEDDER, models / os.fsdecode(b"caf\xe9"))
    ready = start().get("/readyz").json()
    assert ready["models"]["caf\\udce9"] == {
        "state": "failed",
        "reason": f"{models}/caf\\udce9/model.onnx: the path is not UTF-8. Rename it.",
    }
    assert ready["models"][EMBEDDER] == {"state": "ready"}


def test_what_waits_longer_than_it_may_is_told(start: Start, models: Path) -> None:
    """The model's loop takes minutes; SIGTERM does not wait for it, and other requests are served."""
    write_slow(models / "slow")
    service = start("--seconds", "1")
    body = {"inputs": [{"name": "n", "shape": [], "datatype": "INT64", "data": [10**10]}]}
    for _ in range(4):
        late = service.post("/v2/models/slow/infer", json=body)
        assert (late.status_code, late.json()["error"]) == (
            504,
            "the request took longer than 1 s (--seconds)",
        )
    quick = {"inputs": [{"name": "n", "shape": [], "datatype": "INT64", "data": [3]}]}
    assert service.post("/v2/models/slow/infer", json=quick).json()["outputs"][0]["data"] == [3]


def refused(service: TestClient, path: str, body: object) -> str:
    """Return the message of an answer 503 that names a second after which to try again."""
    answer = service.post(path, json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    told = answer.json()["error"]
    return str(told if isinstance(told, str) else told["message"])


def test_a_full_queue_is_told_with_the_time_to_wait(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service, gate, embed = start("--queue", "2"), threading.Event(), Embedder.embed
    monkeypatch.setattr(Embedder, "embed", lambda *given: gate.wait(10) and embed(*given))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(service.post, "/embed", json={"texts": ["east", "north"]})
        while "syn_embedding_queue 2.0" not in service.get("/metrics").text:
            pass
        assert "2 texts are waiting already" in refused(service, "/embed", {"texts": "east"})
        assert "syn_embedding_seconds_count 0.0" in service.get("/metrics").text, "no vectors were made"
        gate.set()


def test_a_store_that_is_behind_refuses_and_costs_no_other_model(
    start: Start, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slow(models / "slow")
    service, gate = start(), threading.Event()
    monkeypatch.setattr(Store, "add", lambda *_: [gate.wait(20)])
    quick = {"inputs": [{"name": "n", "shape": [], "datatype": "INT64", "data": [3]}]}
    with ThreadPoolExecutor(65) as pool:
        asked = [pool.submit(service.post, "/add", json={"texts": "east"}) for _ in range(65)]
        (first,) = wait(asked, return_when=FIRST_COMPLETED).done
        assert first.result().status_code == 503
        assert "64 requests are waiting already" in refused(service, "/add", {"texts": "east"})
        assert service.post("/v2/models/slow/infer", json=quick).json()["outputs"][0]["data"] == [3]
        gate.set()
        assert sorted(one.result().status_code for one in asked) == [200] * 64 + [503]


@pytest.mark.parametrize("path", ["/embed", f"/v2/models/{EMBEDDER}/infer"])
def test_a_compressed_body_is_told(service: TestClient, path: str) -> None:
    answer = service.post(path, content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    assert "Content-Encoding: 'gzip' is not read here" in answer.text


@pytest.mark.parametrize("encoding", ["Identity", "identity", ""])
def test_a_body_that_is_not_compressed_may_say_so(service: TestClient, encoding: str) -> None:
    answer = service.post("/embed", json={"texts": "east"}, headers={"Content-Encoding": encoding})
    assert answer.status_code == 200


def test_a_very_long_text_takes_no_longer_than_its_first_part(service: TestClient) -> None:
    began = time.monotonic()
    answer = service.post("/embed", json={"texts": "east " * 5_000_000})
    assert answer.status_code == 200
    assert time.monotonic() - began < 5


def test_the_page_shows_what_is_there(service: TestClient) -> None:
    page = service.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "readyz" in page.text
