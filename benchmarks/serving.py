"""This benchmark measures embedding with MiniLM: runtime layer, service, stock wheel and fastembed, in turn.

Each way is a process of its own that computes only in its turn, round by round, on the same texts, the same
model file and the same number of threads. Every number that is shown was measured in the run; a way that
cannot run has a reason in place of numbers.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO

import numpy as np

BATCHES = (1, 8, 32)

LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""The setting of the service's image, by which glibc asks Linux for large pages."""

_SETTINGS = {
    "config.json": {"pad_token_id": 0},
    "tokenizer_config.json": {"model_max_length": 256, "pad_token": "[PAD]"},
    "special_tokens_map.json": {
        f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")
    },
}
"""Settings files that fastembed wants beside a model, with MiniLM's own values."""

_BEGIN = "\u2581"
"""The character with which SentencePiece's tokens begin where a word does."""


@dataclass(frozen=True)
class Figures:
    """The measurements of a way for one batch size. Times are in seconds."""

    batch: int
    runs: int
    p50: float
    p95: float
    p99: float
    items: float
    """Texts per second."""
    cpu: float
    """CPU seconds per 1000 texts."""


@dataclass
class Row:
    """A way with its figures, or with the reason why it has none."""

    name: str
    provider: str
    level: str
    libraries: str = ""
    dtype: str = ""
    cold: float | None = None
    """Seconds from the process's start to its first answer; for the service, from its client's start."""
    memory: int | None = None
    figures: list[Figures] = field(default_factory=list)
    reason: str = ""


@dataclass
class _Way:
    row: Row
    asked: dict[str, object]
    interpreter: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    said: IO[str] | None = None
    """The file that receives the process's error output."""
    latencies: dict[int, list[float]] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    spent: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The settings of a measurement."""

    model: Path
    """A folder with model.onnx and tokenizer.json."""
    root: Path
    cache: Path
    providers: Sequence[str]
    package_env: Mapping[str, str]
    """The environment variables with which Python uses a package; empty without a package."""
    threads: int
    fastembed: str = "fastembed==0.7.4"
    """The requirement that pip installs into an environment of its own, with this process's ONNX Runtime."""
    seconds: float = 2.0
    """Length of each turn in seconds."""
    rounds: int = 5

    def rows(self) -> list[Row]:
        """Measure every way and return its rows."""
        with ExitStack() as stack:
            ways = [*self._ours(), *self._others(stack)]
            for way in ways:
                stack.enter_context(_started(way))
            for _ in range(self.rounds):
                for batch in BATCHES:
                    for way in ways:
                        _turn(way, batch, self.seconds)
        for way in ways:
            if not way.row.reason:
                way.row.figures = [_figures(way, batch) for batch in BATCHES]
        return [way.row for way in ways]

    def _ours(self) -> Iterator[_Way]:
        for provider in self.providers:
            for level in ("low", "medium", "high"):
                asked = {"kind": "runtime", **self._same(), "provider": provider, "level": level}
                env = {} if provider == "cpu" else self.package_env
                yield _Way(Row("runtime layer", provider, level), asked, env=self._env(env))

    def _others(self, stack: ExitStack) -> Iterator[_Way]:
        port, process = stack.enter_context(self._service())
        known = {"port": port, "process": process, "name": self.model.name}
        asked = {"kind": "service", **self._same(), **known}
        yield _Way(Row("service, one client", "cpu", "medium"), asked, env=self._env({}))
        yield _Way(Row("stock wheel", "cpu", "medium"), {"kind": "stock", **self._same()}, env=self._env({}))
        row = Row("fastembed", "cpu", "medium")
        try:
            python = self._with_fastembed()
        except subprocess.CalledProcessError as error:
            row.reason = f"{self.fastembed} does not install here: {error.stderr.strip().splitlines()[-1]}"
            yield _Way(row, {})
            return
        folder = self._with_settings()
        yield _Way(row, {"kind": "fastembed", **self._same(), "model": str(folder)}, python, self._env({}))

    def _same(self) -> dict[str, object]:
        return {"model": str(self.model), "threads": self.threads, "texts": texts(self.model)}

    def _env(self, more: Mapping[str, str]) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("ORTPACKS_")}
        own = [str(self.root), str(self.root / "runtime"), str(self.root / "service")]
        path = os.pathsep.join([*filter(None, [more.get("PYTHONPATH")]), *own])
        return {**ours, **more, "PYTHONPATH": path}

    @contextmanager
    def _service(self) -> Iterator[tuple[int, int]]:
        """Start the service and yield its port and process id once it is ready."""
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        place = self.cache / "bench" / "service"
        shutil.rmtree(place, ignore_errors=True)
        (place / "models").mkdir(parents=True)
        (place / "models" / self.model.name).symlink_to(self.model, target_is_directory=True)
        argv = ["--models", str(place / "models"), "--data", str(place / "data"), "--port", str(port)]
        wanted = {
            "PROVIDER": "cpu",
            "LEVEL": "medium",
            "THREADS": self.threads,
            "MODEL_NAME": self.model.name,
        }
        named = {f"ORTPACKS_{name}": str(value) for name, value in wanted.items()}
        env = self._env({**named, **LARGE_PAGES})
        with subprocess.Popen(
            [sys.executable, "-m", "ortpacks_service", *argv], env=env, cwd=place, stderr=subprocess.DEVNULL
        ) as process:
            try:
                _await_ready(f"http://127.0.0.1:{port}/readyz")
                yield port, process.pid
            finally:
                process.terminate()

    def _with_fastembed(self) -> str:
        """Return the interpreter of an environment with fastembed, which is made on the first call."""
        wanted = [self.fastembed, f"onnxruntime=={version('onnxruntime')}"]
        folder = self.cache / "bench" / "-".join(wanted)
        python = folder / "bin" / "python"
        if not (folder / "made").is_file():
            _quiet([sys.executable, "-m", "venv", str(folder)])
            _quiet([str(python), "-m", "pip", "install", "--quiet", *wanted])
            (folder / "made").touch()
        return str(python)

    def _with_settings(self) -> Path:
        """Return a folder with links to the model's files and with the settings that fastembed wants."""
        folder = self.cache / "bench" / "model"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("model.onnx", "tokenizer.json"):
            link = folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(self.model / name)
        for name, value in _SETTINGS.items():
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
        return folder


def texts(model: Path) -> list[str]:
    """Return 256 texts of 4 to 40 words of the model's vocabulary, the same texts on every call.

    Raises what Python does for a tokenizer without a vocabulary of words.
    """
    vocabulary = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    tokens = vocabulary if isinstance(vocabulary, dict) else [token for token, _ in vocabulary]
    begun = (token.removeprefix(_BEGIN) for token in tokens)
    words = sorted(word for word in begun if word.isascii() and word.isalpha() and len(word) > 2)  # noqa: PLR2004
    random = np.random.default_rng(0)
    return [" ".join(random.choice(words, size)) for size in random.integers(4, 41, 256)]


def facts(bench: Bench) -> dict[str, object]:
    """Return facts on the machine and the settings of the measurement, by name."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = next((line.partition(":")[2].strip() for line in cpu.splitlines() if "model name" in line), "?")
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": bench.threads,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
        "model": bench.model.name,
        "date": time.strftime("%Y-%m-%d"),
        "rounds": bench.rounds,
        "seconds": bench.seconds,
    }


def _await_ready(url: str) -> None:
    """Wait until the service answers 200, for a minute at most.

    After a timeout the service's row has a reason.
    """
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own
                return
        except OSError:
            time.sleep(0.02)


def _quiet(argv: Sequence[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True)


@contextmanager
def _started(way: _Way) -> Iterator[None]:
    """Start the way's process and wait for its first answer.

    A way that already has a reason is not started. If the process fails or runs on another provider, its row
    gets the reason and it takes no turns.
    """
    if way.row.reason:
        yield
        return
    began = time.perf_counter()
    argv = [way.interpreter, "-m", "benchmarks.contestant", json.dumps(way.asked)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            argv, env=way.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
        ) as process,
    ):
        way.said = said
        line = process.stdout.readline() if process.stdout else ""
        cold = time.perf_counter() - began
        told = json.loads(line) if line else {}
        if told.get("provider") == way.row.provider:
            way.process = process
            way.row.libraries, way.row.dtype, way.row.cold = told["libraries"], told["dtype"], cold
        else:
            way.row.reason = told.get("refused", {}).get(way.row.provider) or _last_word(way)
        try:
            yield
        finally:
            process.kill()


def _last_word(way: _Way) -> str:
    if way.said is None:
        return "it said nothing"
    way.said.seek(0)
    lines = way.said.read().strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _turn(way: _Way, batch: int, seconds: float) -> None:
    process = way.process
    if process is None or process.stdin is None or process.stdout is None:
        return
    try:
        process.stdin.write(json.dumps({"batch": batch, "seconds": seconds}) + "\n")
        process.stdin.flush()
        told = json.loads(process.stdout.readline())
    except (OSError, ValueError):
        way.process, way.row.reason = None, _last_word(way)
        return
    way.latencies.setdefault(batch, []).extend(told["latencies"])
    for kept, key in ((way.cpu, "cpu"), (way.spent, "seconds")):
        kept[batch] = kept.get(batch, 0.0) + told[key]
    way.row.memory = told["peak"]


def _figures(way: _Way, batch: int) -> Figures:
    found = way.latencies[batch]
    p50, p95, p99 = (float(np.quantile(found, share)) for share in (0.5, 0.95, 0.99))
    done = batch * len(found)
    return Figures(batch, len(found), p50, p95, p99, done / way.spent[batch], 1000 * way.cpu[batch] / done)
