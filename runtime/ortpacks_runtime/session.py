"""This module opens a model on the best provider that works, and reports why it is not a better one."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from ortpacks_runtime import plugins, warm_up
from ortpacks_runtime.client import advice, loaded_libraries
from ortpacks_runtime.libraries import cuda_failure, in_use, require
from ortpacks_runtime.limits import (
    Needs,
    ends_on_empty_inputs,
    limit_of_package,
    limits_of_onnxruntime,
    needs_of,
)
from ortpacks_runtime.options import (
    Model,
    dtype_of,
    engine_cache,
    model_file,
    plugin_entries,
    provider_options,
    shown_as,
)
from ortpacks_runtime.places import Place, prepare
from ortpacks_runtime.providers import CPU, CUDA, ORT_NAMES, TENSORRT, ProviderError, chain
from ortpacks_runtime.report import Report, Step
from ortpacks_runtime.settings import Settings, settings
from ortpacks_runtime.warm_up import Feed, Recording, WarmUpError

log = logging.getLogger("ortpacks_runtime")

_NVIDIA = (CUDA, TENSORRT)

_LEFT_TO_PARENTS: list[object] = []
"""Sessions of the process that this one was forked from. They are kept: their end would wait for threads that
are not here."""

_FORKED = ProviderError(
    "this process was forked after the session was opened, and CUDA works only in the one that started it",
    "open the session after the fork (gunicorn: post_fork, or no preload_app; celery: worker_process_init), "
    "or start processes by spawn",
)

_MEMORY = re.compile(
    r"out of memory|Failed to allocate memory|is smaller than requested bytes|CUDA failure 2:"
    r"|ALLOC_FAILED|DEVICE_ALLOCATION_FAILED"
)
"""Messages of ONNX Runtime, CUDA, cuDNN and cuBLAS for a GPU whose memory, or the limit on it, is full."""

_DEVICE = re.compile(
    r"\b(CUDA|CUDNN|CUBLAS|CUFFT|CURAND) (failure|error)\b|\bTensorRT EP\b|DXGI_ERROR|887A00"
)
"""Messages of the CUDA libraries, TensorRT and DirectML for a failure of the GPU or its driver."""

_NUMBERED = re.compile(r"\b(CUDA|CUDNN|CUBLAS|CUFFT) failure \d+: [^;]+")

_CALLERS_FAULTS = (
    *("InvalidArgument", "InvalidProtobuf", "InvalidGraph", "NoSuchFile"),
    *("ValueError", "TypeError", "KeyError"),
)
"""Exceptions of ONNX Runtime and of its Python module for a wrong input or model, whatever their message."""

_BATCH = re.compile(r"batch(_?size)?|N")
"""Names that exporters give to a dimension whose items do not depend on each other."""

_STILL_LOADING_SECONDS = 10

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of the file that a clone of a repository has in a large file's place without Git LFS."""


class _Inner(onnxruntime.InferenceSession):  # type: ignore[misc] # onnxruntime ships no types
    """ONNX Runtime's session without its own fallback, which prints, and hides the cause."""

    _enable_fallback = property(lambda _self: False, lambda _self, _value: None)


class Session:
    """An open model. ``run`` has the parameters of ``onnxruntime.InferenceSession.run``."""

    def __init__(
        self,
        inner: onnxruntime.InferenceSession,
        report: Report,
        wanted: Settings,
        path: Model,
        recording: Recording | None = None,
        *,
        refuses_empty: bool = False,
    ) -> None:
        """``inner`` is a session that ``report`` describes, and ``path`` the requested model.

        ``recording`` is the folder where ``inner`` records its runs, if no run has proved the provider yet.
        ``refuses_empty``: inputs without an item are refused (``ends_on_empty_inputs``).
        """
        self._inner = inner
        self._path = path
        self._recording = recording
        self._reopening = threading.RLock()
        self._refuses_empty = refuses_empty
        self._process = os.getpid()
        self.report = report
        self.settings = wanted

    @property
    def inner(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's session, which is replaced when the session is reopened."""
        self._require_own_process()
        return self._inner

    def example_inputs(self) -> dict[str, Any]:
        """Return ones for every input.

        Raises ``WarmUpError`` for an input that is not a tensor of plain numbers.
        """
        return warm_up.made_up(self.inner)

    def run(self, outputs: Sequence[str] | None, feed: Feed, options: Any = None) -> list[Any]:
        """Run the model and return the outputs.

        A batch that does not fit into the GPU's memory is halved, and a GPU that fails is replaced by the
        CPU. ``report`` has both, and the log has each once. With ``strict`` the failure is raised instead.

        Raises ``ValueError`` for an input without an item if the model has an LSTM or a GRU, with which ONNX
        Runtime ends the process, as far as the client could read the model.
        """
        if self._refuses_empty:
            _require_items(feed)
        used = self.inner
        try:
            found = used.run(outputs, feed, options)
        except Exception as error:
            if used is not self._inner:  # another thread has reopened the session
                return self.run(outputs, feed, options)
            if self.settings.strict or self.report.provider == CPU or not device_failed(error):
                raise
            return self._rescued(used, error, outputs, feed, options)
        if not self.report.proved:
            self._prove(used)
        return list(found)

    def _require_own_process(self) -> None:
        """Reopen the session in a process that was forked: it has neither its threads nor its CUDA.

        On the CPU it is opened as it was, from a GPU it moves to the CPU. Raises ``ProviderError`` there with
        ``strict``.
        """
        if self._process == os.getpid():
            return
        if self.report.provider in _NVIDIA and self.settings.strict:
            raise _FORKED
        self._process, self._reopening, self._recording = os.getpid(), threading.RLock(), None
        used = self._inner
        _LEFT_TO_PARENTS.append(used)
        if self.report.provider in _NVIDIA:
            self._reopen(used, _FORKED)
        else:
            name, place = self.report.provider, Place(_wheel())
            self._inner, _, _ = _open_preferred_file(self._path, self.settings, name, place, None)

    def _prove(self, used: onnxruntime.InferenceSession) -> None:
        """Count on which providers the nodes of the first run ran.

        Raises ``ProviderError`` with ``strict``.
        """
        with self._reopening:
            if self.report.proved or used is not self._inner:
                return
            provider, recording, self._recording = self.report.provider, self._recording, None
            nodes = _recorded(used, recording)
            self.report.nodes = nodes or {}
            self.report.proved = provider == CPU or bool(self.report.nodes.get(ORT_NAMES[provider]))
            if self.report.proved or nodes is None:
                self.report.steps[-1:] = [Step(provider, taken=True, reason=_placed(self.report.nodes))]
                return
        idle = ProviderError(f"{ORT_NAMES[provider]} runs no node of the model")
        if self.settings.strict:
            raise idle
        self._reopen(used, idle)

    def _rescued(
        self,
        used: onnxruntime.InferenceSession,
        error: Exception,
        outputs: Sequence[str] | None,
        feed: Feed,
        options: Any,
    ) -> list[Any]:
        if _MEMORY.search(str(error)) and (size := _batch_of(used, feed)) > 1:
            half = size // 2
            if self.report.batch is None or half < self.report.batch:
                log.warning("Out of GPU memory with a batch of %d: halving it", size)
                self.report.batch = half
            parts = [self.run(outputs, part, options) for part in _split(feed, half)]
            return [np.concatenate(values) for values in zip(*parts, strict=True)]
        self._reopen(used, error)
        return self.run(outputs, feed, options)

    def _reopen(self, used: onnxruntime.InferenceSession, error: Exception) -> None:
        """Replace ``used`` by a session on the CPU, unless another thread has done so, and say why.

        Raises ``error`` if the CPU does not open the model. The advice comes after the session, since the
        client that knows it may take a minute.
        """
        with self._reopening:
            if self._inner is not used:
                return
            refused = Step(self.report.provider, taken=False, reason=_first_line(str(error)))
            self._open_on_cpu(error, refused)
        do = error.do if isinstance(error, ProviderError) else ""
        advised = replace(refused, advice=do or advice(str(error)))
        self.report.steps[self.report.steps.index(refused)] = advised
        _log_fallback(advised)

    def _open_on_cpu(self, error: Exception, refused: Step) -> None:
        try:
            inner, file, note = _open_preferred_file(self._path, self.settings, CPU, Place(_wheel()), None)
        except Exception as failure:
            raise error from failure
        self._inner = inner
        report = self.report
        report.steps += [refused, Step(CPU, taken=True, reason="reopened")]
        report.provider, report.device, report.options, report.batch = CPU, None, {}, None
        report.libraries, report.model, report.dtype = _wheel(), shown_as(file), dtype_of(file)
        report.proved, report.nodes = True, {}
        report.notes += [note] if note else []


def open_session(
    model: str | os.PathLike[str] | bytes,
    provider: str | None = None,
    device: int | str | None = None,
    level: str | None = None,
    strict: bool | None = None,
    *,
    threads: int | None = None,
    feed: Feed | None = None,
    report: Report | None = None,
) -> Session:
    """Open ``model``, a path or bytes, on the first provider of a chain that runs it; the CPU is the last.

    ``provider`` is a name or alias (``auto``, ``cpu``, ``cuda``, ``gpu``, ``tensorrt``, ``coreml`` …),
    ``device`` a GPU by its number in CUDA's order or its UUID, ``level`` one of ``low``, ``medium`` and
    ``high``, ``threads`` the number of threads that compute on the CPU. A value of ``None`` is taken from the
    environment, else from ``config.toml``, else it is ``auto``, the GPU that fits best, ``medium``, false and
    a thread for each core. ``feed`` are inputs for the warm-up; without it they are made up. ``report``
    becomes the session's; while the model loads, its notes say why that may take long.

    Raises ``ProviderError`` for a wrong setting and, with ``strict``, if another provider than ``provider``
    would be used; ``FileNotFoundError`` for a path without a file, ``ValueError`` for one that is not UTF-8,
    for no bytes, a pointer of Git LFS and a ``feed`` that ``Session.run`` refuses, ``TypeError`` for a value
    that is neither; and what ONNX Runtime raises for a model that the CPU cannot open either.
    """
    given = {"provider": provider, "device": device, "level": level, "strict": strict, "threads": threads}
    wanted = settings(given)
    path = _model_path(model)
    report = report or Report()
    report.level = wanted.level
    needs = needs_of(path)
    if feed is not None and ends_on_empty_inputs(needs):
        _require_items(feed)
    limits = limits_of_onnxruntime(needs) if needs else []
    for limit in limits:
        log.warning(limit)
    report.notes = [*limits]
    names = chain(wanted.provider, sys.platform)
    with ThreadPoolExecutor() as advisers:
        refused: list[Future[Step]] = []
        for name in names:
            try:
                inner, recording = _try(path, name, wanted, needs, report, feed)
                break
            except ProviderError as error:
                report.notes = [*limits]
                if wanted.strict and name == names[0] and wanted.provider != "auto":
                    raise ProviderError(f"{name.upper()} requested but not available: {error}") from error
                refused.append(advisers.submit(_refused, name, error))
        else:
            raise AssertionError("the CPU refuses no session")
    report.steps[:0] = [one.result() for one in refused]
    if report.fallback:
        _log_fallback(report.fallback)
    return Session(inner, report, wanted, path, recording, refuses_empty=ends_on_empty_inputs(needs))


def _refused(name: str, error: ProviderError) -> Step:
    """Return the step of a provider that failed. The client is asked for advice unless the error has some."""
    do = error.do or ("" if name == TENSORRT else advice(error.what))
    return Step(name, taken=False, reason=_first_line(error.what), advice=do)


def _model_path(model: object) -> Model:
    if isinstance(model, bytes):
        if not model or model.startswith(_LFS_POINTER):
            raise ValueError(f"model: {shown_as(model)} are no model. Give those of an ONNX file.")
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"model: an ONNX file's path or bytes are wanted, found {type(model).__name__}")
    path = Path(model).absolute()
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {what}. Name an ONNX model.")
    shown = str(path).encode("utf-8", "backslashreplace").decode()
    if shown != str(path):  # ONNX Runtime takes no such path
        raise ValueError(f"{shown}: the path is not UTF-8. Rename it.")
    if _begins_with(path, _LFS_POINTER):
        raise ValueError(f"{path}: a pointer of Git LFS, not the model. Run git lfs pull in its repository.")
    return path


def _require_items(feed: Feed) -> None:
    """Raise ``ValueError`` for a tensor without an item."""
    empty = [name for name, value in feed.items() if 0 in _shape(value)]
    if empty:
        raise ValueError(
            f"{', '.join(empty)}: no item, with which ONNX Runtime's LSTM and GRU end the process. Give at "
            "least one."
        )


def _shape(value: object) -> Sequence[int]:
    """Return the shape of an array, an ``OrtValue`` or nested lists; empty for what has none."""
    if isinstance(value, (list, tuple)):
        with suppress(ValueError):  # lists of different lengths, or a sequence of tensors
            return np.shape(value)
        return ()
    shape = getattr(value, "shape", ())
    return tuple(shape() if callable(shape) else shape)


def _begins_with(path: Path, head: bytes) -> bool:
    with suppress(OSError), path.open("rb") as file:  # ONNX Runtime says what it cannot read
        return file.read(len(head)) == head
    return False


def _log_fallback(step: Step) -> None:
    message = f"Falling back to CPU: {step.provider}: {step.reason}"
    log.warning("%s%s", message, f", try: {step.advice}" if step.advice else "")


def _try(
    path: Model, name: str, wanted: Settings, needs: Needs | None, report: Report, feed: Feed | None
) -> tuple[onnxruntime.InferenceSession, Recording | None]:
    """Open the model on ``name`` and run it. Raises ``ProviderError`` if a provider other than the CPU fails.

    Returns the session, and its recording if no run has proved the provider.
    """
    if name == CPU:
        return _open_and_run(path, name, wanted, Place(_wheel()), report, feed)
    try:
        place = plugins.place_of(wanted) if name == CUDA else None
        if place is None:
            require(name)
            place = prepare(name, wanted) if name in _NVIDIA else Place(_wheel())
        limit = limit_of_package(place.libraries, place.cannot_run, needs)
        if limit:
            log.warning(limit)
        slow = _slow(name, place)
        report.notes += [text for text in (limit, slow) if text]
        with _progress_logged(slow):
            return _open_and_run(path, name, wanted, place, report, feed)
    except ProviderError:
        raise
    except Exception as error:
        raise ProviderError(str(error)) from error


def _open_and_run(
    path: Model, name: str, wanted: Settings, place: Place, report: Report, feed: Feed | None
) -> tuple[onnxruntime.InferenceSession, Recording | None]:
    recording, before = _recording(), loaded_libraries()
    inner, file, note = _open_preferred_file(path, wanted, name, place, recording)
    ran, why = _warm(inner, name, feed)
    recorded = _recorded(inner, recording) if ran else None
    nodes = recorded or {}
    if recorded is not None and name != CPU and not nodes.get(ORT_NAMES[name]):
        raise ProviderError(f"{ORT_NAMES[name]} runs no node of the model")
    report.provider, report.nodes, report.device = name, nodes, place.device
    report.proved = ran and (name == CPU or bool(nodes))
    report.libraries, report.model, report.dtype = place.libraries, shown_as(file), dtype_of(file)
    report.options = provider_options(name, place.ordinal, wanted.level, place.profile)
    report.batch = place.profile["batch"] if place.profile else None
    unused = f"device {wanted.device} is not used: {name} has no choice of devices"
    report.loaded = in_use()
    report.notes += [text for text in (place.note, note, why, _loaded_before(name, before, report)) if text]
    report.notes += [unused] if wanted.device is not None and name not in _NVIDIA else []
    report.steps.append(Step(name, taken=True, reason=_placed(nodes) if ran else "opened, not run yet"))
    return inner, None if ran else recording


def _open_preferred_file(
    path: Model,
    wanted: Settings,
    name: str,
    place: Place,
    recording: Recording | None,
) -> tuple[onnxruntime.InferenceSession, Model, str]:
    """Return the session, the opened file, and a note if it is not the file that the level prefers."""
    options = provider_options(name, place.ordinal, wanted.level, place.profile)
    providers = [(name, options)]
    if name == TENSORRT:
        providers.append((CUDA, provider_options(CUDA, place.ordinal, wanted.level, place.profile)))
    preferred, note = model_file(path, wanted.level, place.profile)
    opened = partial(
        _open_file,
        providers=providers,
        threads=wanted.threads,
        recording=recording,
        ep_device=place.ep_device,
    )
    if isinstance(preferred, Path) and preferred != path:
        try:
            inner = opened(preferred)
            if _inputs(inner) == _inputs(_open_for_its_inputs(path)):
                return inner, preferred, note
            note = f"{preferred.name} takes other inputs than {Path(shown_as(path)).name}, which is used"
        except Exception as error:  # noqa: BLE001 - the requested file is used instead
            note = f"{preferred.name} is not used: {_first_line(str(error))}"
    return opened(path), path, note


def _open_file(
    file: Model,
    providers: Sequence[tuple[str, Mapping[str, str]]],
    threads: int | None,
    recording: Recording | None,
    ep_device: Any = None,
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    # Threads that spin between two runs would take cores from the rest of the program.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # If the program has registered an allocator, with a limit for instance, it is the session's too.
    options.add_session_config_entry("session.use_env_allocators", "1")
    if recording is not None:
        warm_up.record(options, recording.folder)
    wanted = [(ORT_NAMES[name], dict(given)) for name, given in providers]
    if ep_device is not None:
        options.add_provider_for_devices([ep_device], {})
        for key, value in plugin_entries(providers[0][1]).items():
            options.add_session_config_entry(key, value)
        wanted = []
    inner = _Inner(_openable(file), options, providers=wanted or None)
    first = ORT_NAMES[providers[0][0]]
    if first not in inner.get_providers():
        why = cuda_failure(int(providers[0][1].get("device_id", 0))) if providers[0][0] in _NVIDIA else ""
        raise ProviderError(f"ONNX Runtime opened the model without {first}: {why or 'its log says why'}")
    return inner


def _loaded_before(name: str, before: Sequence[str], report: Report) -> str:
    """Return which of cuDNN and cuBLAS the session took from the process instead of its own; else empty."""
    early = [
        f"{path} {report.loaded.get(path, '')}".rstrip()
        for path in before
        if re.search(r"cudnn\.so|cudnn64|cublasLt(\.so|64)", path)
    ]
    if name not in _NVIDIA or not early:
        return ""
    return f"in this process before the session, and used by it: {', '.join(early)}"


def _openable(file: Model) -> str | bytes:
    return file if isinstance(file, bytes) else str(file)


def _open_for_its_inputs(file: Model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _Inner(_openable(file), options, providers=[ORT_NAMES[CPU]])


def _inputs(inner: onnxruntime.InferenceSession) -> list[tuple[str, str]]:
    return [(value.name, value.type) for value in inner.get_inputs()]


def _warm(inner: onnxruntime.InferenceSession, name: str, feed: Feed | None) -> tuple[bool, str]:
    """Run the session once; return whether it ran, and why not if it did not.

    Raises ``ProviderError`` if the provider fails.
    """
    try:
        inner.run(None, warm_up.made_up(inner) if feed is None else dict(feed))
    except WarmUpError as error:
        return False, f"no warm-up: {error}"
    except Exception as error:
        if name != CPU and device_failed(error):
            raise ProviderError(str(error)) from error
        if feed is not None:
            raise
        return False, f"no warm-up: the model takes no made-up input: {_first_line(str(error))}"
    return True, ""


def _recording() -> Recording | None:
    """Return a folder for a session's records; ``None`` if nothing can be written."""
    with suppress(OSError):
        return Recording()
    return None


def _recorded(inner: onnxruntime.InferenceSession, recording: Recording | None) -> Mapping[str, int] | None:
    """Return the number of nodes that ran, by provider, and end the recording; ``None`` without a record."""
    if recording is None:
        return None
    nodes = warm_up.nodes_of(inner)
    recording.close()
    return nodes


def _placed(nodes: Mapping[str, int]) -> str:
    placed = (f"{count} nodes on {ort}" for ort, count in sorted(nodes.items(), reverse=True))
    return ", ".join(placed) or "has run, without a record of its nodes"


def _slow(name: str, place: Place) -> str:
    """Return why a model's first start may take long; empty if it does not."""
    if name == TENSORRT:
        return f"TensorRT compiles an engine for 30 to 60 s if {engine_cache()} has none of this model"
    if place.jit and place.device:
        return (
            f"{place.libraries} serves {place.device['name']} by JIT alone: the driver compiles kernels for "
            "minutes if its cache has none"
        )
    return ""


@contextmanager
def _progress_logged(slow: str) -> Iterator[None]:
    """Log why the block takes long, before it and while it lasts; nothing if ``slow`` is empty."""
    if not slow:
        yield
        return
    log.warning(slow)
    loaded = threading.Event()

    def log_progress() -> None:
        seconds = 0
        while not loaded.wait(_STILL_LOADING_SECONDS):
            seconds += _STILL_LOADING_SECONDS
            log.warning("the model is loading for %d s now", seconds)

    thread = threading.Thread(target=log_progress, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loaded.set()
        thread.join()


def device_failed(error: Exception) -> bool:
    """Return whether a device or its memory failed, and not the model or its inputs."""
    if type(error).__name__ in _CALLERS_FAULTS:
        return False
    return bool(_MEMORY.search(str(error)) or _DEVICE.search(str(error)))


def _first_line(text: str) -> str:
    """Return CUDA's own message with its number, else the first line."""
    cuda = _NUMBERED.search(text)
    if cuda:
        return cuda[0].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no word"


def _wheel() -> str:
    return f"onnxruntime {onnxruntime.__version__}"


def _batch_of(inner: onnxruntime.InferenceSession, feed: Feed) -> int:
    """Return the batch size if every input and output begins with the same batch dimension, else 1."""
    shapes = [value.shape for value in (*inner.get_inputs(), *inner.get_outputs())]
    names = {str(shape[0]) if shape else "" for shape in shapes}
    if len(names) != 1 or not _BATCH.fullmatch(name := names.pop()):
        return 1
    if any(shape.count(name) != 1 for shape in shapes):
        return 1
    sizes = {np.shape(value)[:1] for value in feed.values()}
    return sizes.pop()[0] if len(sizes) == 1 and () not in sizes else 1


def _split(feed: Feed, half: int) -> tuple[Feed, Feed]:
    return (
        {name: value[:half] for name, value in feed.items()},
        {name: value[half:] for name, value in feed.items()},
    )
