"""Tests of inference and embedding: tensors, faulty requests, texts of similar length in one run."""

import gc
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException
from ortpacks_runtime import Session, open_session
from ortpacks_service.embedding import Embedder, cut
from ortpacks_service.memory import TOO_LARGE
from ortpacks_service.options import DETECTOR, EMBEDDER
from starlette.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.normalizers import Replace

from tests.component.service.conftest import Start, Told
from tests.support import until
from tests.support.factories.onnx_models import write_model
from tests.support.service import write_embedder, write_same
from tests.support.tables import table

ROW: dict[str, object] = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 0, 0, 1]}
TIMES, SAME = "/v2/models/times/infer", "/v2/models/same/infer"


TEXT_AND_HALF = [
    {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["å"]},
    {"name": "half", "shape": [1], "datatype": "FP16", "data": [0.5]},
]


def described(name: str, datatype: str, shape: list[int], data: bytes) -> dict[str, object]:
    """Return the description of an input in binary data."""
    sized = {"binary_data_size": len(data)}
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": sized}


def rows(data: bytes) -> dict[str, object]:
    """Return the description of an input ``x`` with rows of four floats in binary data."""
    return described("x", "FP32", [len(data) // 16, 4], data)


def binary(head: Mapping[str, object], *blocks: bytes, length: str = "") -> dict[str, Any]:
    """Return the body of a request in binary data, and the header with ``length`` or its own."""
    text = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": length or str(len(text))}
    return {"content": b"".join([text, *blocks]), "headers": headers}


def test_the_server_and_its_models_describe_themselves(service: TestClient) -> None:
    assert service.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert service.get("/v2/health/live").json() == {"live": True}
    assert service.get("/v2/health/ready").status_code == 200
    assert service.get("/v2/models/times/versions/1/ready").status_code == 200
    assert service.get("/v2/models/times").json() == {
        "name": "times",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }


def test_an_output_that_is_no_tensor_is_left_out_and_told(service: TestClient, told: Told) -> None:
    path, row = "/v2/models/both/infer", {**ROW, "shape": [4]}
    outputs = service.post(path, json={"inputs": [row]}).json()["outputs"]
    assert [one["name"] for one in outputs] == ["y"]
    refused = service.post(path, json={"inputs": [row], "outputs": [{"name": "listed"}]})
    assert refused.status_code == 400
    told(refused.json()["error"])


def test_json_in_json_out(service: TestClient) -> None:
    """w is 0 … 7 in rows of two: rows 0 and 3 add up to (6, 8). What is absent may be null."""
    absent = {"outputs": None, "parameters": None}
    head = {"id": "a", "inputs": [{**ROW, "parameters": None}], **absent}
    answer = service.post(TIMES, json=head).json()
    assert answer == {
        "model_name": "times",
        "model_version": "1",
        "id": "a",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [6, 8]}],
    }


def test_binary_in_binary_out(service: TestClient) -> None:
    data = np.array([[1, 0, 0, 1], [0, 1, 0, 0]], "<f4").tobytes()
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    answer = service.post(TIMES, **binary({"inputs": [rows(data)], "outputs": [wanted]}, data))
    assert answer.headers["content-type"] == "application/octet-stream"
    size = int(answer.headers["inference-header-content-length"])
    assert json.loads(answer.content[:size])["outputs"][0] == described("y", "FP32", [2, 2], bytes(16))
    assert np.frombuffer(answer.content[size:], "<f4").tolist() == [6, 8, 2, 3]


def test_texts_and_halves_go_through(service: TestClient) -> None:
    texts = b"".join(struct.pack("<I", len(text)) + text for text in ("å".encode(), b""))
    halves = np.array([0.5, -2], "<f2").tobytes()
    inputs = [described("text", "BYTES", [2], texts), described("half", "FP16", [2], halves)]
    head: dict[str, object] = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    answer = service.post(SAME, **binary(head, texts, halves))
    assert answer.status_code == 200, answer.text
    assert answer.content.endswith(texts + halves)


def test_texts_in_json_and_halves_have_none(service: TestClient, told: Told) -> None:
    refused = service.post(SAME, json={"inputs": TEXT_AND_HALF})
    assert refused.status_code == 400
    told(refused.json()["error"])
    answer = service.post(SAME, json={"inputs": TEXT_AND_HALF, "outputs": [{"name": "text_out"}]}).json()
    assert answer["outputs"] == [{"name": "text_out", "datatype": "BYTES", "shape": [1], "data": ["å"]}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *table("service/wrong-requests.txt"),
        pytest.param("change", json.dumps({"shape": [2**62] * 100_000}), id="many dimensions"),
    ],
)
def test_a_wrong_request_is_told(service: TestClient, told: Told, kind: str, text: str) -> None:
    given = json.loads(text.replace('"ROW"', json.dumps(ROW)))
    answer = service.post(TIMES, json={"inputs": [ROW | given]} if kind == "change" else given)
    assert answer.status_code == 400
    told(answer.json()["error"])


def text_of(data: bytes) -> dict[str, object]:
    return described("text", "BYTES", [1], data)


@pytest.mark.parametrize(
    ("path", "given", "blocks", "length"),
    [
        *((TIMES, rows(bytes(16)), b"", length) for length in ("999999", "-1", "9" * 5000)),
        *((TIMES, rows(bytes(16)), bytes(size), "") for size in (15, 17)),
        *((SAME, text_of(data), data, "") for data in (b"\x09\0\0\0short", b"\x01", b"\x01\0\0\0\xff")),
    ],
    ids=[
        *("more than there is", "negative", "digits", "less data", "more data"),
        *("short text", "no size", "not UTF-8"),
    ],
)
def test_binary_data_that_does_not_add_up_is_told(
    service: TestClient, told: Told, path: str, given: dict[str, object], blocks: bytes, length: str
) -> None:
    answer = service.post(path, **binary({"inputs": [given]}, blocks, length=length))
    assert answer.status_code == 400
    told(answer.json()["error"])


@pytest.mark.parametrize(
    ("said", "sent", "status"),
    [(70_000, 70_000, 413), (1, 70_000, 400), (32_000, 32_000, 413), (25_000, 25_000, 400)],
)
def test_texts_of_binary_data_take_more_memory_than_their_bytes_and_count_as_such(
    start: Start, models: Path, told: Told, said: int, sent: int, status: int
) -> None:
    """Two bodies of 32 MiB with texts of two letters took 4.1 GB of memory."""
    write_same(models / "same")
    data = struct.pack("<I", 0) * sent
    body = binary({"inputs": [described("text", "BYTES", [said], data)]}, data)
    service = start("--body-mib", "1")
    bodies = service.app.state.service.bodies  # type: ignore[attr-defined]
    answers = []
    for _ in range(4):  # what counted is gone, as soon as a thread has dropped its work
        answers.append(service.post(SAME, **body))
        until(lambda: bodies._added(0) == 0)
    assert [answer.status_code for answer in answers] == [status] * 4
    told(answers[-1].json()["error"])


def test_the_memory_of_a_refused_body_is_free_again_at_once(start: Start) -> None:
    """Bodies of 2 MiB together may be in memory; Python's collector, which breaks cycles, does not run."""
    service, data = start("--body-mib=1"), bytes(900 << 10)
    body, path = binary({"inputs": [rows(data)]}, data), f"/v2/models/{EMBEDDER}/infer"
    gc.disable()
    try:
        answers = [service.post(path, **body) for _ in range(4)]
    finally:
        gc.enable()
    assert [answer.status_code for answer in answers] == [400] * 4, answers[-1].text


@pytest.mark.parametrize(("count", "code"), [(1 << 19, 200), ((1 << 19) + 1, 400)])
def test_outputs_that_are_too_large_for_json(service: TestClient, count: int, code: int) -> None:
    """The model returns two items for each row."""
    data = bytes(16 * count)
    answer = service.post(TIMES, **binary({"inputs": [rows(data)]}, data))
    assert (answer.status_code, b"too many for JSON" in answer.content) == (code, code == 400)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_json_lacks_come_as_binary_data_alone(service: TestClient, number: float) -> None:
    """The row (0, 1) of w times the number is NaN, and the number."""
    data = np.array([[number, 0, 0, 0]], "<f4").tobytes()
    refused = service.post(TIMES, **binary({"inputs": [rows(data)]}, data))
    assert refused.status_code == 400
    assert "y: JSON lacks its NaN or infinity" in refused.json()["error"]
    head = {"inputs": [rows(data)], "parameters": {"binary_data_output": True}}
    answer = service.post(TIMES, **binary(head, data))
    assert np.frombuffer(answer.content[-8:], "<f4") == pytest.approx([np.nan, number], nan_ok=True)


@pytest.mark.parametrize("lost", ["nope", "nope/ready", "times/versions/2"])
def test_models_and_versions_that_are_not_there_are_told(service: TestClient, told: Told, lost: str) -> None:
    answer = service.get(f"/v2/models/{lost}")
    assert answer.status_code == 404
    told(answer.text)


LOST = "the service failed; its log says why"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : axis == 1 || axis == largest was false. 3 by 4", 400),
        ("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700: an illegal memory access was encountered", 500),
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer", 413),
    ],
)
def test_a_kernel_s_refusal_is_told_and_a_device_that_fails_is_no_fault_of_the_request(
    service: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    said: str,
    status: int,
) -> None:
    """1.21.0, which the images have, raises another exception. MiniLM's mask of another length was a 500."""
    monkeypatch.setattr(Session, "run", Mock(side_effect=RuntimeException(said)))
    answer = service.post(TIMES, json={"inputs": [ROW]})
    told = {400: said, 413: f"{TOO_LARGE}: {said[45:]}. Send fewer or smaller tensors at once.", 500: LOST}
    assert (answer.status_code, answer.json()["error"]) == (status, told[status])
    assert (said in caplog.text) == (status == 500)


def test_an_input_that_ends_the_process_is_refused(start: Start, models: Path, told: Told) -> None:
    """ONNX Runtime 1.21.0 and 1.31.1 abort in Silero's LSTM for no rows."""
    write_model(
        models / DETECTOR / "model.onnx",
        """detector (float[n, m] input, float[2, n, 128] state, int64 sr) => (float[n, m] output) {
            output = Identity (input)
        }""",
    )
    inputs = [
        {"name": "input", "shape": [0, 576], "datatype": "FP32", "data": []},
        {"name": "state", "shape": [2, 0, 128], "datatype": "FP32", "data": []},
        {"name": "sr", "shape": [], "datatype": "INT64", "data": [16000]},
    ]
    answer = start().post(f"/v2/models/{DETECTOR}/infer", json={"inputs": inputs})
    assert answer.status_code == 400
    told(answer.json()["error"])


def embedder(models: Path, provider: str, threads: int) -> tuple[Embedder, Mock]:
    """Return an embedder, and its session, which seems to be on ``provider`` with ``threads``."""
    opened = open_session(models / EMBEDDER / "model.onnx", "cpu")
    session = Mock(run=Mock(wraps=opened.run))
    session.inner.get_inputs = opened.inner.get_inputs
    session.inner.get_providers.return_value = [provider, "CPUExecutionProvider"]
    session.inner.get_session_options.return_value.intra_op_num_threads = threads
    made = Embedder(session, models / EMBEDDER / "tokenizer.json")
    session.run.reset_mock()
    return made, session


TEXTS = ["east", "north " * 100, "east north", "north " * 90, "east east"]
"""Texts of 1, 100, 2, 90 and 2 tokens. Two runs compute 206 tokens, one run 500."""


@pytest.mark.parametrize(
    ("provider", "threads", "shapes"),
    [
        ("CPUExecutionProvider", 2, [(2, 100), (3, 2)]),
        ("CPUExecutionProvider", 64, [(5, 100)]),
        ("CUDAExecutionProvider", 2, [(5, 100)]),
    ],
)
def test_a_cpu_computes_texts_of_other_lengths_apart_where_padding_takes_longer_than_a_run(
    models: Path, provider: str, threads: int, shapes: list[tuple[int, int]]
) -> None:
    made, session = embedder(models, provider, threads)
    found = made.embed(TEXTS)
    assert [run.args[1]["input_ids"].shape for run in session.run.call_args_list] == shapes
    assert found.tokens.tolist() == [1, 100, 2, 90, 2]
    wanted = np.array([[1, 0], [0, 1], [2 / 13**0.5, 3 / 13**0.5], [0, 1], [1, 0]])
    assert found.vectors == pytest.approx(wanted, abs=1e-6)


def test_a_model_with_dynamic_quantisation_gives_a_text_the_same_vector_beside_any_other(
    start: Start, models: Path
) -> None:
    """Its numbers have one scale for a whole run, so that a large one beside them made others coarse."""
    write_model(
        models / EMBEDDER / "model.onnx",
        """embedder (int64[batch, sequence] input_ids) => (float[batch, sequence, 2] rows)
        <float[4, 2] table = {900, 900, 1, 1, 2, 1, 0, 3}> {
            plain = Gather (table, input_ids)
            small, scale, zero = DynamicQuantizeLinear (plain)
            rows = DequantizeLinear (small, scale, zero)
        }""",
    )
    service = start()
    alone = service.post("/embed", json={"texts": "east"}).json()["embeddings"]
    texts = ["east", "north north", "[PAD] east"]
    beside = service.post("/embed", json={"texts": texts}).json()["embeddings"]
    assert beside[0] == alone[0] == pytest.approx([2 / 5**0.5, 1 / 5**0.5], abs=0.01)


@pytest.mark.parametrize("lengths", [[7], [9, 9, 9, 1], [256, 40, 39, 12, 12, 3], list(range(40, 0, -1))])
@pytest.mark.parametrize("run", [0, 5, 24, math.inf])
def test_no_cut_takes_longer_than_one_run(lengths: Sequence[int], run: float) -> None:
    parts = cut([[0] * length for length in lengths], run)
    assert [len(row) for part in parts for row in part] == lengths
    took = sum(run + len(part) * len(part[0]) for part in parts)
    assert took <= run + len(lengths) * lengths[0]
    assert len(parts) == 1 or run < math.inf


def test_a_text_without_a_token_costs_no_other_request(start: Start, models: Path) -> None:
    file = str(models / EMBEDDER / "tokenizer.json")
    tokenizer = Tokenizer.from_file(file)
    tokenizer.normalizer = Replace("north", "")
    tokenizer.save(file)
    service = start()
    answer = service.post("/embed", json={"texts": ["east", "north"]})
    wanted = "text 1, counted from 0: the tokenizer finds no token in it"
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, wanted)
    assert service.post("/embed", json={"texts": "north"}).status_code == 400
    assert service.post("/embed", json={"texts": "east"}).json()["embeddings"] == [[1, 0]]


@pytest.mark.parametrize(
    ("north", "code", "what"), [("nan, 3", 500, "NaN or an infinity"), ("0, 0", 400, "only zeros for it")]
)
def test_nan_and_zeros_are_told_and_no_vector(
    start: Start, models: Path, north: str, code: int, what: str
) -> None:
    """SQLite has no distance to a vector of zeros: after ``/add`` of one, each search failed."""
    write_embedder(models / EMBEDDER, vectors=f"9, 9, 1, 1, 2, 0, {north}")
    service = start()
    for path in ("/embed", "/add"):
        answer = service.post(path, json={"texts": ["east", "north"]})
        told = (answer.status_code, answer.json()["error"]["message"])
        assert told == (code, f"text 1, counted from 0: the model returns {what}")


@pytest.mark.parametrize("other", [{"vectors": ", ".join("0" * 16), "dimensions": "2, 2"}, {"batch": "1"}])
def test_a_model_of_another_form_is_told(
    start: Start, models: Path, told: Told, other: dict[str, str]
) -> None:
    write_embedder(models / EMBEDDER, **other)
    told(start().get("/readyz").json()["reason"].partition(" Please fix")[0])
