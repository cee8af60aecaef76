"""Fixtures with a small sentence transformer: three words, two dimensions, a vector for each token."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ortpacks_runtime.settings import VARIABLES
from ortpacks_service.app import make_app
from ortpacks_service.options import EMBEDDER, read_options
from starlette.testclient import TestClient
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.component.runtime.test_session import model as any_model

WORDS = {"[PAD]": 0, "[UNK]": 1, "east": 2, "north": 3}

VECTORS = np.array([[9, 9], [1, 1], [2, 0], [0, 3]], np.float32)
"""The model's vector for each token; the padding's must not be counted."""

matrix = any_model
"""Model ``y = x @ w`` of the runtime layer's tests."""


def write_embedder(folder: Path) -> None:
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", "sequence", 2])
    table = numpy_helper.from_array(VECTORS, "table")
    node = helper.make_node("Gather", ["table", "input_ids"], ["rows"])
    graph = helper.make_graph([node], "g", [ids], [rows], [table])
    folder.mkdir(parents=True)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(made, folder / "model.onnx")
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_slow(folder: Path) -> None:
    """Write a model that counts to ``n`` one by one and returns ``count``."""
    number = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    told = helper.make_tensor_value_info("count", TensorProto.INT64, [])
    names = [("i", TensorProto.INT64), ("more", TensorProto.BOOL), ("sum", TensorProto.INT64)]
    inputs = [helper.make_tensor_value_info(name, kind, []) for name, kind in names]
    outputs = [helper.make_tensor_value_info(f"{name}_out", kind, []) for name, kind in names[1:]]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["more"], ["more_out"]),
            helper.make_node("Add", ["sum", "one"], ["sum_out"]),
        ],
        "body",
        inputs,
        outputs,
    )
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in _START.items()]
    loop = helper.make_node("Loop", ["n", "true", "zero"], ["count"], body=body)
    graph = helper.make_graph([loop], "g", [number], [told], constants)
    folder.mkdir(parents=True)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(made, folder / "model.onnx")


_START = {"true": True, "zero": np.int64(0), "one": np.int64(1)}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_embedder(folder / EMBEDDER)
    return folder


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's settings and select the CPU."""
    for name in (name for names in VARIABLES.values() for name in names):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ORTPACKS_PROVIDER", "cpu")
    monkeypatch.chdir(tmp_path)


Start = Callable[..., TestClient]


@pytest.fixture
def start(models: Path, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts the service with flags and waits until no model is being opened."""
    began: list[TestClient] = []

    def started(*flags: str) -> TestClient:
        given = ["--models", str(models), "--data", str(tmp_path / "data"), *flags]
        client = TestClient(make_app(read_options(given, {})), raise_server_exceptions=False)
        began.append(client.__enter__())
        while {"waiting", "loading"} & {
            one["state"] for one in client.get("/readyz").json()["models"].values()
        }:
            pass
        return client

    yield started
    for client in began:
        client.__exit__(None, None, None)
    logging.getLogger().handlers.clear()
