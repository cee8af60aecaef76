"""Opens a model on the best provider that works, and says why it is not a better one."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ortpacks_runtime import warm_up
from ortpacks_runtime.client import advice
from ortpacks_runtime.libraries import require
from ortpacks_runtime.options import engine_cache, model_file, provider_options
from ortpacks_runtime.places import Place, prepare
from ortpacks_runtime.providers import CPU, CUDA, ORT_NAMES, TENSORRT, ProviderError, chain
from ortpacks_runtime.report import Report, Step
from ortpacks_runtime.settings import Settings, settings
from ortpacks_runtime.warm_up import Feed, WarmUpError

log = logging.getLogger("ortpacks_runtime")

_NVIDIA = (CUDA, TENSORRT)

_MEMORY = re.compile(r"out of memory|Failed to allocate memory|ALLOC_FAILED|CUDA failure 2:", re.IGNORECASE)
"""How ONNX Runtime, CUDA, cuDNN and cuBLAS tell that the GPU's memory is full."""

_DEVICE = re.compile(r"CUDA (failure|error)|CUDNN|CUBLAS|CUFFT|TensorRT|DXGI|Dml|CoreML", re.IGNORECASE)
"""How they tell that the GPU, or its driver, failed."""

_STILL_LOADING_SECONDS = 10


class Session:
    """An open model. ``run`` is that of ``onnxruntime.InferenceSession``."""

    def __init__(self, inner: onnxruntime.InferenceSession, report: Report, wanted: Settings) -> None:
        """``inner`` is a session that ``report`` describes."""
        self._inner = inner
        self._wanted = wanted
        self._reopening = threading.Lock()
        self.report = report

    @property
    def inner(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's session. It is another one after the session was reopened on the CPU."""
        return self._inner

    def run(self, outputs: Sequence[str] | None, feed: Feed, options: Any = None) -> list[Any]:
        """Compute. A batch that the GPU's memory does not hold is halved; the CPU replaces a GPU that fails.

        ``report`` and, once, the log tell both. With ``strict`` the failure is raised instead.
        """
        used = self._inner
        try:
            found = used.run(outputs, feed, options)
        except Exception as error:
            if used is not self._inner:  # another thread has reopened it meanwhile
                return self.run(outputs, feed, options)
            if self._wanted.strict or self.report.provider == CPU or not _failed(str(error)):
                raise
            return self._rescued(used, str(error), outputs, feed, options)
        self.report.proved = True
        return list(found)

    def _rescued(
        self,
        used: onnxruntime.InferenceSession,
        error: str,
        outputs: Sequence[str] | None,
        feed: Feed,
        options: Any,
    ) -> list[Any]:
        if _MEMORY.search(error) and (size := _batch_of(used, feed)) > 1:
            half = size // 2
            if self.report.batch is None or half < self.report.batch:
                log.warning("Out of GPU memory with a batch of %d: halving it", size)
                self.report.batch = half
            parts = [self.run(outputs, part, options) for part in _split(feed, half)]
            return [np.concatenate(values) for values in zip(*parts, strict=True)]
        with self._reopening:
            if self._inner is used:
                self._reopen(error)
        return self.run(outputs, feed, options)

    def _reopen(self, error: str) -> None:
        refused = Step(self.report.provider, taken=False, reason=_first_line(error), advice=advice(error))
        _tell_fallback(refused)
        self._inner = _opened(Path(self.report.model), CPU, {})
        self.report.steps += [refused, Step(CPU, taken=True, reason="reopened")]
        self.report.provider, self.report.device, self.report.options = CPU, None, {}
        self.report.proved, self.report.nodes = False, {}


def open_session(
    model: str | Path,
    provider: str | None = None,
    device: int | str | None = None,
    level: str | None = None,
    strict: bool | None = None,
    *,
    feed: Feed | None = None,
) -> Session:
    """Open ``model`` on the first provider of a chain that runs it; the CPU ends every chain.

    ``provider`` is a name or alias (``auto``, ``cpu``, ``cuda``, ``gpu``, ``tensorrt``, ``coreml`` …),
    ``device`` a GPU by its number in CUDA's order or its UUID, ``level`` one of ``low``, ``medium`` and
    ``high``. What is ``None`` is taken from the environment, else from ``config.toml``, else it is ``auto``,
    the GPU that fits best, ``medium`` and false. ``feed`` are inputs for the warm-up, else they are made up.

    Raises ``ProviderError`` for a wrong setting and, with ``strict``, where another provider than
    ``provider`` would be used; ``FileNotFoundError`` without the file; what ONNX Runtime raises for a model
    that the CPU cannot open either.
    """
    wanted = settings({"provider": provider, "device": device, "level": level, "strict": strict})
    path = Path(model)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Name an ONNX model.")
    report = Report(level=wanted.level)
    names = chain(wanted.provider, sys.platform)
    for name in names:
        try:
            inner = _try(path, name, wanted, report, feed)
        except ProviderError as error:
            _refuse(name, error, report)
            if wanted.strict and name == names[0] and wanted.provider != "auto":
                raise ProviderError(f"{name.upper()} requested but not available: {error}") from error
            continue
        if report.fallback and name == CPU:
            _tell_fallback(report.fallback)
        return Session(inner, report, wanted)
    raise AssertionError("the CPU refuses no session")


def _refuse(name: str, error: ProviderError, report: Report) -> None:
    do = error.do or ("" if name == TENSORRT else advice(error.what))
    report.steps.append(Step(name, taken=False, reason=_first_line(error.what), advice=do))


def _tell_fallback(step: Step) -> None:
    what = f"Falling back to CPU: {step.provider}: {step.reason}"
    log.warning("%s%s", what, f", try: {step.advice}" if step.advice else "")


def _try(
    path: Path, name: str, wanted: Settings, report: Report, feed: Feed | None
) -> onnxruntime.InferenceSession:
    """Open the model on ``name`` and run it. Raises ``ProviderError`` where a provider but the CPU cannot."""
    require(name)
    place = prepare(name, wanted) if name in _NVIDIA else Place(f"onnxruntime {onnxruntime.__version__}")
    file, dtype = model_file(path, wanted.level, place.profile)
    options = provider_options(name, place.ordinal, wanted.level, place.profile)
    with warm_up.scratch() as folder, _told(name):
        try:
            inner = _opened(file, name, options, folder)
        except ProviderError:
            raise
        except Exception as error:
            if name == CPU:
                raise
            raise ProviderError(str(error)) from error
        proved, nodes, note = _warm(inner, name, feed)
    report.provider, report.proved, report.nodes, report.device = name, proved, nodes, place.device
    report.libraries, report.model, report.dtype, report.options = place.libraries, str(file), dtype, options
    report.batch = place.profile["batch"] if place.profile else None
    report.notes += [text for text in (place.note, note) if text]
    placed = ", ".join(f"{count} nodes on {ort}" for ort, count in sorted(nodes.items(), reverse=True))
    report.steps.append(Step(name, taken=True, reason=placed or "opened, not run yet"))
    return inner


def _warm(
    inner: onnxruntime.InferenceSession, name: str, feed: Feed | None
) -> tuple[bool, Mapping[str, int], str]:
    """Whether a run proved the provider, the nodes it ran, and a note. ``ProviderError`` where it fails."""
    note = ""
    try:
        inner.run(None, warm_up.made_up(inner) if feed is None else dict(feed))
    except WarmUpError as error:
        note = f"no warm-up: {error}"
    except Exception as error:
        if name != CPU and _failed(str(error)):
            raise ProviderError(str(error)) from error
        if feed is not None:
            raise
        note = f"no warm-up: the model takes no made-up input: {_first_line(str(error))}"
    nodes = warm_up.nodes_of(inner)  # ends the recording, whatever came of it
    if not note and name != CPU and not nodes.get(ORT_NAMES[name]):
        raise ProviderError(f"{ORT_NAMES[name]} runs no node of the model")
    return not note, {} if note else nodes, note


def _opened(
    file: Path, name: str, options: Mapping[str, str], profile_in: str | None = None
) -> onnxruntime.InferenceSession:
    """ONNX Runtime's session, which falls back to nothing by itself."""
    asked = onnxruntime.SessionOptions()
    if profile_in is not None:
        warm_up.profiled(asked, profile_in)
    providers: list[Any] = [(ORT_NAMES[name], dict(options))]
    if name == TENSORRT:
        providers.append(ORT_NAMES[CUDA])
    inner = onnxruntime.InferenceSession(str(file), asked, providers=providers, enable_fallback=0)
    inner.disable_fallback()
    if ORT_NAMES[name] not in inner.get_providers():
        raise ProviderError(f"ONNX Runtime opened the model without {ORT_NAMES[name]}; its log says why")
    return inner


@contextmanager
def _told(name: str) -> Iterator[None]:
    """TensorRT compiles an engine when a model is first loaded: the log says so while that lasts."""
    if name != TENSORRT:
        yield
        return
    loaded = threading.Event()

    def tell() -> None:
        seconds = 0
        while not loaded.wait(_STILL_LOADING_SECONDS):
            seconds += _STILL_LOADING_SECONDS
            log.info("TensorRT compiles an engine into %s, for %d s now", engine_cache(), seconds)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loaded.set()
        thread.join()


def _failed(error: str) -> bool:
    """Whether these are words of a device, and not of a model or its inputs."""
    return bool(_MEMORY.search(error) or _DEVICE.search(error))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no word"


def _batch_of(inner: onnxruntime.InferenceSession, feed: Feed) -> int:
    """The batch's size, where all inputs and outputs begin with one and the same open dimension; else 1."""
    values = (*inner.get_inputs(), *inner.get_outputs())
    first, *others = {value.shape[0] if value.shape else None for value in values}
    sizes = {len(value) for value in feed.values()}
    return sizes.pop() if isinstance(first, str) and not others and len(sizes) == 1 else 1


def _split(feed: Feed, half: int) -> tuple[Feed, Feed]:
    return (
        {name: value[:half] for name, value in feed.items()},
        {name: value[half:] for name, value in feed.items()},
    )
