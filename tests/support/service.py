"""The service as a process of its own, small models that it opens, and a sound that it hears."""

import contextlib
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import wave
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.support import ROOT
from tests.support.containers import JSON, free_port
from tests.support.factories.onnx_models import write_model
from tests.support.tables import data_text

WORDS = {"[PAD]": 0, "[UNK]": 1, "east": 2, "north": 3}


VECTORS = "9, 9, 1, 1, 2, 0, 0, 3"
"""The model's vector for each token; the padding's must not be counted."""


def write_embedder(
    folder: Path, *, batch: str = "batch", vectors: str = VECTORS, dimensions: str = "2"
) -> None:
    write_model(
        folder / "model.onnx",
        f"""embedder (int64[{batch}, sequence] input_ids) => (float[{batch}, sequence, {dimensions}] rows)
        <float[4, {dimensions}] table = {{{vectors}}}> {{ rows = Gather (table, input_ids) }}""",
    )
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_slow(folder: Path) -> None:
    """Write a model that counts to ``n`` one by one and returns ``count``."""
    write_model(folder / "model.onnx", data_text("service/slow.onnxtxt"))


def write_same(folder: Path) -> None:
    """Write a model that returns texts and halves as they are."""
    write_model(folder / "model.onnx", data_text("service/same.onnxtxt"))


def wav(rate: int = 16000, channels: int = 1, width: int = 2, frames: bytes = bytes(3200)) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(channels)
        made.setsampwidth(width)
        made.setframerate(rate)
        made.writeframes(frames)
    return file.getvalue()


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    key: str = ""

    def fetch(self, path: str, body: bytes | None = None) -> bytes:
        headers = JSON | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return bytes(answer.read())

    def get(self, path: str) -> dict[str, Any]:
        return dict(json.loads(self.fetch(path)))

    def post(self, path: str, body: object) -> dict[str, Any]:
        return dict(json.loads(self.fetch(path, json.dumps(body).encode())))

    def line(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def log(self, code: int | None = None) -> str:
        """Ask the process to end, with ``code`` if that is known; return what it wrote."""
        self.process.terminate()
        assert code in (None, self.process.wait(10))
        return str(self.process.stderr and self.process.stderr.read())

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log().splitlines()]

    @contextmanager
    def asked(self, path: str, body: object) -> Iterator[None]:
        """Send a request that is computed for long, whose answer may not come."""

        def ask() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.post(path, body)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)
        yield
        asking.join()


def resident(process: int, kind: str = "VmRSS") -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.partition(f"{kind}:")[2].split()[0]) / 1024


def peak(process: int) -> float:
    """Return the most resident memory in MiB that a process has had."""
    return resident(process, "VmHWM")


def argv(models: Path, data: Path, port: int, *flags: str) -> list[str]:
    where = ["--models", str(models), "--data", str(data), "--port", str(port)]
    return [sys.executable, "-m", "ortpacks_service", *where, *flags]


def world() -> dict[str, str]:
    path = os.pathsep.join(str(ROOT / name) for name in ("runtime", "service"))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def service(models: Path, data: Path, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[Running]:
    port = free_port()
    with subprocess.Popen(
        argv(models, data, port), env={**world(), **env}, stderr=subprocess.PIPE, text=True
    ) as process:
        running = Running(process, port, env.get("ORTPACKS_API_KEY", ""))
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    running.post("/embed", {"texts": "east"})
                    break
                except OSError as error:
                    if isinstance(error, urllib.error.HTTPError) and error.code == 400:
                        break  # a virtual card computes nothing, and the service refuses vectors of zeros
                    assert process.poll() is None, process.communicate()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            yield running
        finally:
            process.kill()
