"""Tests of the service with its real models, Triton's client, published similarities and Silero's rule."""

import base64
import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeAlias
from unittest.mock import Mock

import numpy as np
import pytest
import tritonclient.http as triton
from ortpacks_runtime import open_session
from ortpacks_service.embedding import Embedder
from ortpacks_service.options import DETECTOR, EMBEDDER
from ortpacks_service.speech import Segments

from builder.config.inputs import SELFTEST_MODEL, SELFTEST_TRANSFORMER
from builder.prove.sample_models import write_models
from tests.answers import pairs
from tests.support import ROOT
from tests.support.fakes.verbs import invoke
from tests.support.sentences import SENTENCES, SIMILARITIES
from tests.support.service import Running, service, wav

Array: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service") / "models"
    store = pairs.store()
    wheels = (store.unpack(SELFTEST_TRANSFORMER), store.unpack(SELFTEST_MODEL))
    write_models(folder, pairs.shop().cache / "made", *wheels)
    return folder


@pytest.fixture(scope="module")
def running(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(models, tmp_path_factory.mktemp("service") / "data") as started:
        yield started


def test_the_wheels_that_the_verb_makes_hold_all_that_runs(tmp_path: Path) -> None:
    done = invoke("service", "--dist", tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    wheels = sorted((tmp_path / "dist").glob("*.whl"))
    assert [wheel.name.partition("-")[0] for wheel in wheels] == ["ortpacks_runtime", "ortpacks_service"]
    site = str(tmp_path / "site")
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
    subprocess.run([*argv, *map(str, wheels)], check=True)
    models = tmp_path / "dist" / "models"
    with service(models, tmp_path / "data", {"PYTHONPATH": site}) as started:
        assert started.post("/embed", {"texts": "a"})["dimensions"] == 384
        assert b"<title>" in started.fetch("/")


ORIGINAL = json.loads((ROOT / "tests/data/embeddings/vectors.json").read_bytes())
"""Texts, each with its vector by Sentence Transformers."""


@pytest.mark.parametrize("together", [1, len(ORIGINAL)], ids=["one by one", "in one batch"])
def test_vectors_are_those_of_sentence_transformers(models: Path, together: int) -> None:
    session = open_session(models / EMBEDDER / "model.onnx", "cpu")
    embedder = Embedder(session, models / EMBEDDER / "tokenizer.json")
    texts = [row["text"] for row in ORIGINAL]
    wanted = [np.frombuffer(base64.b64decode(row["vector"]), "<f4") for row in ORIGINAL]
    found = [embedder.embed(texts[at : at + together]).vectors for at in range(0, len(ORIGINAL), together)]
    away = np.abs(np.concatenate(found) - wanted).max(axis=1)
    assert {text: far for text, far in zip(texts, away, strict=True) if far > 1e-4} == {}


def similarities(started: Running) -> Array:
    vectors = np.array(started.post("/embed", {"texts": SENTENCES})["embeddings"])
    assert vectors.shape == (3, 384)
    return np.asarray(vectors @ vectors.T)


def test_sentences_are_as_alike_as_sentence_transformers_says(running: Running) -> None:
    assert similarities(running) == pytest.approx(np.array(SIMILARITIES), abs=1e-4)


def test_the_low_level_is_eight_bits_and_nearly_the_same(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTPACKS_LEVEL", "low")
    with service(models, tmp_path) as low:
        assert low.get("/providers")[EMBEDDER]["dtype"] == "int8"
        assert similarities(low) == pytest.approx(np.array(SIMILARITIES), abs=0.05)


def test_triton_s_client_runs_models(running: Running) -> None:
    (vector,) = running.post("/embed", {"texts": "hello"})["embeddings"]  # then its models are loaded
    client = triton.InferenceServerClient(f"127.0.0.1:{running.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(EMBEDDER)
    assert client.get_model_metadata(DETECTOR)["inputs"][0] == {
        "name": "input",
        "datatype": "FP32",
        "shape": [-1, -1],
    }
    ids = np.array([[101, 7592, 102]], np.int64)  # [CLS] hello [SEP]
    given = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    inputs = []
    for name, value in given.items():
        tensor = triton.InferInput(name, list(value.shape), "INT64")
        tensor.set_data_from_numpy(value, binary_data=name != "attention_mask")
        inputs.append(tensor)
    found = client.infer(EMBEDDER, inputs).as_numpy("embedding")
    assert found[0] == pytest.approx(np.array(vector), abs=1e-5)
    with pytest.raises(triton.InferenceServerException, match="no model 'nope'"):
        client.get_model_metadata("nope")


def silero() -> ModuleType:
    """Import Silero's own module, with a stand-in for torch: its rule for segments is plain Python."""
    file = pairs.store().unpack(SELFTEST_MODEL) / "silero_vad" / "utils_vad.py"
    spec = importlib.util.spec_from_file_location("utils_vad", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("torch", Mock())
    try:
        spec.loader.exec_module(module)
    finally:
        if isinstance(sys.modules["torch"], Mock):
            del sys.modules["torch"]
    return module


@pytest.mark.parametrize("rate", [8000, 16000])
def test_segments_are_those_of_silero_s_own_rule(rate: int) -> None:
    judge, frame = silero().get_speech_timestamps_from_probs, 512 if rate == 16000 else 256
    tried = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        lengths = random.integers(1, 20, 30)
        values = np.repeat(random.choice([0.05, 0.4, 0.49, 0.5, 0.95], 30), lengths)
        missing = int(random.integers(0, frame))
        rule = Segments(rate, frame)
        found = [one for value in values for one in rule.after(float(value))]
        found += rule.finish(missing)
        samples = len(values) * frame - missing
        wanted = judge([float(value) for value in values], rate, audio_length_samples=samples)
        assert [(round(one.start * rate), round(one.end * rate)) for one in found] == [
            (one["start"], one["end"]) for one in wanted
        ]
        tried += len(wanted)
    assert tried > 500


RATE = 16000


def vowel() -> Array:
    """Return a second of the vowel "ah": pulses at about 120 Hz through three formants."""
    time_ = np.arange(RATE) / RATE
    turns = np.cumsum(120 * (1 + 0.03 * np.sin(2 * np.pi * 5 * time_))) / RATE
    sound = (np.diff(np.floor(turns), prepend=0) > 0).astype(float)
    for frequency, width in ((700, 80), (1200, 90), (2600, 120)):
        radius = np.exp(-np.pi * width / RATE)
        first, second = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -(radius**2)
        before = last = 0.0
        for at, value in enumerate(sound):
            sound[at] = value + first * last + second * before
            before, last = last, sound[at]
    return np.asarray(sound / np.abs(sound).max() * np.interp(time_, [0, 0.1, 0.9, 1], [0, 0.5, 0.5, 0]))


def test_a_segment_of_speech_comes_before_the_audio_has_ended(running: Running) -> None:
    noise = np.random.default_rng(0).normal(0, 1e-3, RATE)
    audio = wav(frames=(np.concatenate([noise, vowel(), noise]) * 32767).astype("<i2").tobytes())
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as line:
        line.sendall(b"POST /vad HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(audio), 4000):
            piece = audio[at : at + 4000]
            line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        come = b""
        while b"end" not in come:
            come += line.recv(4096)
        line.sendall(b"0\r\n\r\n")
        while not come.endswith(b"0\r\n\r\n"):
            come += line.recv(4096)
    found = [json.loads(text) for text in come.splitlines() if text.startswith(b"{")]
    assert found[0]["start"] == pytest.approx(1, abs=0.1)
    assert found[-1]["end"] < 2.2
