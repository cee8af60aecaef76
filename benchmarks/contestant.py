"""``python -m benchmarks.contestant`` measures one way of embedding texts for ``benchmarks.serving``.

Its argument is a JSON object. After the first embedding it prints a line of JSON with its provider, libraries
and data type. It then reads lines of JSON from stdin, each with a batch size and a number of seconds, and
answers each with a line of JSON: latencies, CPU seconds and peak memory.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.measuring import peak_of

Embed: TypeAlias = Callable[[Sequence[str]], object]

Prepared: TypeAlias = Callable[[Sequence[str]], Callable[[], object]]
"""A way's function that returns the call to measure for some texts."""

_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure until stdin ends."""
    asked = json.loads(sys.argv[1])
    prepared, told = _KINDS[asked["kind"]](asked)
    watched = asked.get("process") or os.getpid()
    prepared(asked["texts"][:1])()
    _say(told)
    for line in sys.stdin:
        turn = json.loads(line)
        cpu, began = cpu_of(watched), time.perf_counter()
        latencies = _latencies(prepared, _batches(asked["texts"], turn["batch"]), turn["seconds"])
        spent = {"cpu": cpu_of(watched) - cpu, "seconds": time.perf_counter() - began}
        _say({"latencies": latencies, "peak": peak_of(watched), **spent})


def cpu_of(process: int) -> float:
    """Return the CPU seconds, user and system, of all threads of a process."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _batches(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield batches of ``size`` texts without end, in the same order in every process."""
    for start in itertools.count(0, size):
        yield [texts[(start + at) % len(texts)] for at in range(size)]


def _latencies(prepared: Prepared, batches: Iterator[Sequence[str]], seconds: float) -> list[float]:
    found: list[float] = []
    until = time.perf_counter() + seconds
    while not found or time.perf_counter() < until:
        call = prepared(next(batches))
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


def _unprepared(embed: Embed) -> Prepared:
    return lambda texts: functools.partial(embed, texts)


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _runtime(asked: Mapping[str, object]) -> tuple[Prepared, dict[str, object]]:
    """Return the embedding call of the runtime layer's session, and facts on it.

    Tokenizer and pooling are the service's.
    """
    from ortpacks_runtime import open_session  # noqa: PLC0415 - only this kind needs the import
    from ortpacks_service.embedding import Embedder  # noqa: PLC0415

    folder = Path(str(asked["model"]))
    session = open_session(
        folder / "model.onnx",
        str(asked["provider"]),
        level=str(asked["level"]),
        threads=int(str(asked["threads"])),
    )
    report = session.report
    refused = {step.provider: step.reason for step in report.steps if not step.taken}
    told: dict[str, object] = {"provider": report.provider, "refused": refused, "libraries": report.libraries}
    told["dtype"] = report.dtype or "fp32"
    return _unprepared(Embedder(session, folder / "tokenizer.json").embed), told


def _stock(asked: Mapping[str, object]) -> tuple[Prepared, dict[str, object]]:
    """Return the embedding call of the stock wheel's session, and facts on it.

    Tokenizer and pooling are the service's.
    """
    import onnxruntime  # noqa: PLC0415
    from ortpacks_runtime import Report  # noqa: PLC0415
    from ortpacks_service.embedding import Embedder  # noqa: PLC0415

    folder = Path(str(asked["model"]))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(str(asked["threads"]))
    file = str(folder / "model.onnx")
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    session.inner, session.report = session, Report(provider="cpu", model=file)
    version = f"onnxruntime {onnxruntime.__version__}"
    told: dict[str, object] = {"provider": "cpu", "libraries": version, "dtype": "fp32"}
    return _unprepared(Embedder(session, folder / "tokenizer.json").embed), told


def _fastembed(asked: Mapping[str, object]) -> tuple[Prepared, dict[str, object]]:
    """Return the embedding call of fastembed on the same model file, and facts on it.

    The model's folder must also have the settings files that fastembed wants.
    """
    import fastembed  # type: ignore[import-not-found] # noqa: PLC0415 - in an environment of its own
    import onnxruntime  # noqa: PLC0415
    from fastembed.common.model_description import (  # type: ignore[import-not-found] # noqa: PLC0415
        ModelSource,
        PoolingType,
    )

    fastembed.TextEmbedding.add_custom_model(
        model="ours",
        pooling=PoolingType.DISABLED,
        normalization=True,
        sources=ModelSource(url="https://localhost/none"),
        dim=384,
        model_file="model.onnx",
    )
    made = fastembed.TextEmbedding(
        "ours", specific_model_path=str(asked["model"]), threads=int(str(asked["threads"]))
    )
    versions = f"fastembed {fastembed.__version__}, onnxruntime {onnxruntime.__version__}"
    told: dict[str, object] = {"provider": "cpu", "libraries": versions, "dtype": "fp32"}
    return _unprepared(lambda texts: list(made.embed(list(texts), batch_size=len(texts)))), told


def _service(asked: Mapping[str, object]) -> tuple[Prepared, dict[str, object]]:
    """Return the embedding call of a client with one connection to the service, and facts on it.

    CPU seconds and memory are measured on the service's process. A call lasts from the request's first byte
    to the answer's last, as load generators count: the client's JSON is not the service's.
    """
    line = _Connection(int(str(asked["port"])))

    def answer(request: bytes) -> bytes:
        try:
            return line.answer(request)
        except ConnectionError:  # closed between two turns
            line.open()
            return line.answer(request)

    def prepared(texts: Sequence[str]) -> Callable[[], object]:
        return functools.partial(answer, _request("POST", "/embed", json.dumps({"texts": texts}).encode()))

    report = json.loads(answer(_request("GET", "/providers")))[asked["name"]]
    return prepared, {
        "provider": report["provider"],
        "libraries": "over HTTP",
        "dtype": report["dtype"] or "fp32",
    }


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Connection:
    """One connection to the service, over which requests go one after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open()

    def open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self, request: bytes) -> bytes:
        """Return the body of the answer.

        Raises ``ConnectionError``, or ``RuntimeError`` for another status than 200.
        """
        self._socket.sendall(request)
        told = self._received()
        while b"\r\n\r\n" not in told:
            told += self._received()
        top, _, content = told.partition(b"\r\n\r\n")
        size = int(re.search(rb"(?i)\ncontent-length: (\d+)", top)[1])  # type: ignore[index] # uvicorn's
        while len(content) < size:
            content += self._received()
        if not top.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{top[:30]!r}: {content[:200]!r}")
        return content

    def _received(self) -> bytes:
        found = self._socket.recv(1 << 16)
        if not found:
            raise ConnectionResetError("the service closed the connection")
        return found


_KINDS = {"runtime": _runtime, "stock": _stock, "fastembed": _fastembed, "service": _service}

if __name__ == "__main__":
    main()
