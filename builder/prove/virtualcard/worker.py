"""The child process ``worker HOST FOLDER [PLUGIN]``, which opens the models of ``FOLDER/jobs.json``.

Each model's answer is written to ``FOLDER/answers.jsonl`` at once, as a line of JSON. So the first model
without an answer is the one that crashed the process. Models are opened and run by the host library's C API.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
from onnx import helper

from builder.formats.ort_api import NO_GPU, OrtApi, OrtStatusError
from builder.formats.session_log import Placement
from builder.prove.virtualcard.sessions import NO_RUNTIME, CardAnswer, SessionJob

_FATAL = 4
"""A value of ``OrtLoggingLevel``; lower levels are not logged, because errors are returned as statuses."""

_LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_char_p] * 4)
"""``OrtLoggingFunction``: parameter, severity, category, id, place in the source, message."""


class LoggedApi(OrtApi):
    """A host library in this process, with an environment whose log a function takes.

    With ``plugin`` its CUDA provider is this library's, registered when the first session asks for it. Use it
    as a context manager: the environment must end before the process does.
    """

    def __init__(self, library: Path, log: Callable[[str, str], None], plugin: Path | None = None) -> None:
        """Load ``library``. ``log`` is called with place and message of each log line of verbose sessions.

        Raises as ``OrtApi`` does.
        """
        super().__init__(str(library))
        self._plugin, self._registered = plugin, False

        def listen(*arguments: bytes | int | None) -> None:
            *_, place, message = arguments
            log(_decoded(place), _decoded(message))

        self._logger = _LOGGER(listen)  # must live as long as the environment
        self.env = self.make(
            "CreateEnvWithCustomLogger", self._logger, None, ctypes.c_int(_FATAL), b"ortpacks"
        )

    def append_cuda(self, options: ctypes.c_void_p) -> None:
        """Add the CUDA provider to session options: the host's, or the plug-in's first GPU.

        Raises ``OrtStatusError``.
        """
        if self._plugin is None:
            super().append_cuda(options)
            return
        if not self._registered:
            self.register(self.env, str(self._plugin))
            self._registered = True
        self.append_plugin(self.env, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release("ReleaseEnv", self.env)

    def number(self, name: str, *arguments: object) -> int:
        """Return the ``size_t`` that a function sets through its last argument. Raises ``OrtStatusError``."""
        made = ctypes.c_size_t()
        self.call(name, *arguments, ctypes.byref(made))
        return made.value

    def text(self, name: str, *arguments: object) -> str:
        """Return the string that a function sets through its last argument, and free ORT's copy of it.

        Raises ``OrtStatusError``.
        """
        allocator = self.make("GetAllocatorWithDefaultOptions")
        made = self.make(name, *arguments, allocator)
        text = ctypes.string_at(made.value or 0).decode()
        self.call("AllocatorFree", allocator, made)
        return text


def _decoded(text: object) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else ""


NO_CUDA = ("CUDA failure", "Failed to load library", NO_GPU)
"""Parts of messages for a missing device and for a CUDA provider that cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """The settings of a session."""

    cuda: bool = True
    """Whether to use the CUDA provider, before the CPU provider."""
    verbose: bool = False
    """Whether to log at every level, which includes the provider of each node."""
    level: int | None = None
    """Value of ``GraphOptimizationLevel``; ``None`` for ORT's default (99, all)."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Entries of ORT's session configuration."""


class Session:
    """An open model on the CUDA and CPU providers. It has one thread, so that sums have a fixed order."""

    def __init__(self, api: LoggedApi, model: Path, wish: SessionSettings) -> None:
        """Open ``model``. Raises ``OrtStatusError`` for a model that cannot be opened.

        Without a device or a loadable CUDA provider, the model is opened on the CPU only, and ``refusal`` is
        ORT's message; else ``refusal`` is ``None``.
        """
        self._api = api
        self.refusal: str | None = None
        try:
            self._handle = _open(api, model, wish)
        except OrtStatusError as error:
            if not wish.cuda or not any(words in error.message for words in NO_CUDA):
                raise
            self.refusal = error.message
            self._handle = _open(api, model, replace(wish, cuda=False))
        self.inputs = self._names("Input")
        self.outputs = self._names("Output")

    def run(self, inputs: Sequence[ctypes.c_void_p]) -> list[ctypes.c_void_p]:
        """Run the model on OrtValues and return its outputs. The caller releases inputs and outputs.

        Raises ``OrtStatusError`` for a run that fails.
        """
        given = dict(zip(self.inputs, inputs, strict=False))
        return self._api.run(self._handle, given, self.outputs)

    def close(self) -> None:
        """Release the session, and with it the CUDA provider's memory."""
        self._api.release("ReleaseSession", self._handle)

    def _names(self, side: str) -> list[str]:
        count = self._api.number(f"SessionGet{side}Count", self._handle)
        get = f"SessionGet{side}Name"
        return [self._api.text(get, self._handle, ctypes.c_size_t(at)) for at in range(count)]


def _open(api: LoggedApi, model: Path, wish: SessionSettings) -> ctypes.c_void_p:
    options = api.make("CreateSessionOptions")
    try:
        api.call("SetIntraOpNumThreads", options, ctypes.c_int(1))
        if wish.level is not None:
            api.call("SetSessionGraphOptimizationLevel", options, ctypes.c_int(wish.level))
        if wish.verbose:
            api.call("SetSessionLogSeverityLevel", options, ctypes.c_int(0))
        for key, value in wish.config.items():
            api.call("AddSessionConfigEntry", options, key.encode(), value.encode())
        if wish.cuda:
            api.append_cuda(options)
        return api.make("CreateSession", api.env, str(model).encode(), options)
    finally:
        api.release("ReleaseSessionOptions", options)


def main(host: str, folder: str, plugin: str | None = None) -> None:
    """Open every model of ``jobs.json`` and write its line to ``answers.jsonl``."""
    jobs: list[SessionJob] = json.loads((Path(folder) / "jobs.json").read_text(encoding="utf-8"))
    placement = Placement()
    try:
        api = LoggedApi(Path(host), placement.add_message, Path(plugin) if plugin else None)
    except (OSError, AttributeError) as error:
        sys.stderr.write(str(error))
        sys.exit(NO_RUNTIME)
    with api, (Path(folder) / "answers.jsonl").open("w", encoding="utf-8") as answers:
        for job in jobs:
            signal.alarm(job["seconds"])  # SIGALRM ends the process by default
            answers.write(json.dumps(_answer(api, job, placement, Path(folder) / "report.txt")) + "\n")
            answers.flush()


def _answer(api: LoggedApi, job: SessionJob, placement: Placement, report: Path) -> CardAnswer:
    placement.reset()
    try:
        error = _open_and_run(api, job)
        nodes = [] if error else placement.nodes_by_kind()
    except OrtStatusError as refusal:
        error, nodes = str(refusal), placement.nodes_by_kind()
    ctypes.CDLL(None).virtualcard_report(str(report).encode())
    return CardAnswer(
        error=error,
        nodes=nodes,
        no_kernel=sorted(placement.no_kernel),
        unsupported=sorted(placement.unsupported),
        cheaper=sorted(placement.cheaper),
        report=report.read_text(encoding="utf-8"),
    )


def _open_and_run(api: LoggedApi, job: SessionJob) -> str:
    """Open and run a model. Return why there was no CUDA provider, empty with one.

    Raises ``OrtStatusError`` for a model that fails.
    """
    session = Session(
        api, Path(job["model"]), SessionSettings(verbose=True, level=job["level"], config=job["config"])
    )
    try:
        if session.refusal is None and job["feed"] is not None:
            _run(api, session, Path(job["feed"]))
    finally:
        session.close()
    return session.refusal or ""


def _run(api: LoggedApi, session: Session, feed: Path) -> None:
    """Run a model once and discard the outputs, which are meaningless because no kernel computed them."""
    with np.load(feed) as arrays:
        feeds = [np.require(arrays[name], requirements="C") for name in session.inputs]
    values = [
        api.tensor(
            helper.np_dtype_to_tensor_dtype(array.dtype),
            array.shape,
            ctypes.c_void_p(array.ctypes.data),
            array.nbytes,
        )
        for array in feeds
    ]
    try:
        values += session.run(values)
    finally:
        for value in values:
            api.release("ReleaseValue", value)


if __name__ == "__main__":
    main(*sys.argv[1:])
