"""Tests of embedding: texts of similar length share a run, and what has no vector is told."""

import math
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from ortpacks_runtime import open_session
from ortpacks_service.embedding import Embedder, cut
from ortpacks_service.options import EMBEDDER
from tokenizers import Tokenizer
from tokenizers.normalizers import Replace

from tests.component.service.conftest import Start, Told
from tests.support.factories.onnx_models import write_model
from tests.support.service import write_embedder


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
    beside = service.post("/embed", json={"texts": ["east", "north north", "[PAD] east"]}).json()[
        "embeddings"
    ]
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
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "text 1, counted from 0: the tokenizer finds no token in it",
    )
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
