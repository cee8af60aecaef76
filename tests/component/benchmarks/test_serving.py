"""Tests of the benchmark of embedding on a small model: each way has its figures or its reason."""

import json
import subprocess
from pathlib import Path
from unittest.mock import Mock

import onnxruntime
import pytest
from ortpacks_runtime.providers import ALIASES as THEIRS
from ortpacks_runtime.providers import ORT_NAMES
from ortpacks_service.options import EMBEDDER
from tokenizers import Tokenizer
from tokenizers.models import Unigram

from benchmarks import serving
from benchmarks.bench import ALIASES, PROVIDERS, bench
from benchmarks.serving import BATCHES, Bench, Figures, Row, facts, texts
from benchmarks.serving_page import dumps, text
from builder.errors import ValidationError
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.messages import Refused
from tests.support.service import write_embedder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_embedder(tmp_path / "models" / EMBEDDER)
    return tmp_path / "models"


@pytest.fixture
def asked(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("ORTPACKS_FORCE_CC", "none")
    refused = subprocess.CalledProcessError(1, "pip", stderr="ERROR: Invalid requirement\n")
    monkeypatch.setattr(serving, "_quiet", Mock(side_effect=refused))
    return Bench(
        model=models / EMBEDDER,
        root=ROOT,
        cache=tmp_path / "cache",
        providers=["cpu", "cuda"],
        package_env={},
        threads=1,
        fastembed="no requirement",
        seconds=0.02,
        rounds=1,
    )


def test_every_way_has_figures_or_its_reason(asked: Bench, tmp_path: Path) -> None:
    rows = asked.rows()
    ran = {(row.name, row.provider, row.level) for row in rows if row.figures}
    assert ran == {
        *(("runtime layer", "cpu", level) for level in ("low", "medium", "high")),
        ("service, one client", "cpu", "medium"),
        ("stock wheel", "cpu", "medium"),
    }
    for row in rows:
        if row.figures:
            assert [one.batch for one in row.figures] == list(BATCHES)
            assert all(0 < one.p50 <= one.p95 <= one.p99 for one in row.figures)
            assert row.memory is not None
            assert row.memory > 30 << 20
    reasons = {(row.name, row.level): row.reason for row in rows if not row.figures}
    assert "built without CUDAExecutionProvider" in reasons["runtime layer", "medium"]
    assert (
        reasons["fastembed", "medium"] == "no requirement does not install here: ERROR: Invalid requirement"
    )
    assert reasons["runtime layer", "low"] == reasons["runtime layer", "medium"]
    told = json.loads(dumps(rows, facts(asked)))
    assert told["facts"]["onnxruntime"] == onnxruntime.__version__
    assert told["facts"]["threads"] == 1
    assert len(told["rows"]) == len(rows)


def test_every_provider_of_the_runtime_layer_can_be_named_by_each_of_its_names() -> None:
    assert set(PROVIDERS) == set(ORT_NAMES)
    assert ALIASES == THEIRS


ROWS = [
    Row("ours", "cpu", "low", "x", "int8", 0.5, 3 << 20, [Figures(32, 9, 0.01, 0.02, 0.03, 3200, 1.5)]),
    Row("ours", "cuda", "low", reason="no <GPU>"),
]


def test_the_table_shows_what_was_measured_and_why_not() -> None:
    assert text(ROWS).splitlines()[1].split() == [
        *("ours", "cpu", "low", "int8", "32", "9", "10.00", "20.00", "30.00", "3200", "1.5", "0.50", "3"),
    ]
    assert "not run: no <GPU>" in text(ROWS)


def test_the_page_names_the_command_that_measures_the_same(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "rows", lambda _: ROWS)
    made = tmp_path / "made.md"
    model = str(models / EMBEDDER)
    bench(Wiring(ROOT, dist=tmp_path), ["cpu"], None, model, {"page": str(made)}, "1")
    command = f"./run bench --provider cpu --model {model} --threads 1 --page {made}"
    assert f"`{command}` wrote this page" in made.read_text()


def test_texts_are_made_of_sentencepiece_s_tokens_too(tmp_path: Path) -> None:
    """Such a vocabulary is a list: multilingual models have one."""
    words = Unigram([("<unk>", 0.0), ("\u2581east", -1.0), ("\u2581", -2.0), ("\u2581north", -3.0)], 0)
    Tokenizer(words).save(str(tmp_path / "tokenizer.json"))
    assert {word for text in texts(tmp_path) for word in text.split()} == {"east", "north"}


@pytest.mark.parametrize(
    "tokenizer", ["{", "[]", '{"model": {"vocab": {"a": 0}}}', '{"model": {"vocab": [1]}}']
)
def test_a_tokenizer_without_words_is_told(tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "model.onnx").touch()
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    with pytest.raises(ValidationError, match=r"tokenizer\.json has no words"):
        bench(Wiring(ROOT, dist=tmp_path), [], None, str(tmp_path), {}, None)


@pytest.mark.parametrize(
    ("providers", "model", "files", "threads"),
    [
        (["cudda"], None, {}, None),
        ([], "nowhere", {}, None),
        ([], "nowhere", {"svg": str(ROOT)}, None),
        ([], "nowhere", {"figures": f"{ROOT}/LICENSE/x"}, None),
        ([], None, {}, "1025"),
    ],
    ids=["provider", "model", "svg", "json", "many threads"],
)
def test_wrong_flags_are_told(
    refused: Refused,
    tmp_path: Path,
    providers: list[str],
    model: str | None,
    files: dict[str, str],
    threads: str | None,
) -> None:
    with refused(ValidationError):
        bench(Wiring(ROOT, dist=tmp_path), providers, None, model, files, threads)
