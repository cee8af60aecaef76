"""A model on a library's CUDA and CPU providers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from builder.virtualcard.capi import Api, ApiStatusError
from builder.virtualcard.values import Value, Values

NO_CUDA = ("CUDA failure", "Failed to load library")
"""What a refusal says: there is no device, or the provider cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """Settings of a session."""

    cuda: bool = True
    """Ask for the CUDA provider before the CPU's."""
    verbose: bool = False
    """ORT tells on stderr, among much else, where it places each node."""
    level: int | None = None
    """``GraphOptimizationLevel``; ORT's own choice (99, all) unless said."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Entries of ORT's session configuration."""


class Session:
    """An open session. One thread: sums come out in one order."""

    def __init__(self, api: Api, model: Path, wish: SessionSettings) -> None:
        """Where CUDA finds no device, ``refusal`` says so, and the CPU serves. Raises ``ApiStatusError``."""
        self._api = api
        self.refusal: str | None = None
        try:
            self._handle = _open(api, model, wish)
        except ApiStatusError as error:
            if not wish.cuda or not any(words in error.message for words in NO_CUDA):
                raise
            self.refusal = error.message
            self._handle = _open(api, model, replace(wish, cuda=False))
        self.inputs = self._names("Input")
        self.outputs = self._names("Output")

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        """The outputs. Raises ``ApiStatusError``, ``InexpressibleError``."""
        values = Values(self._api)
        try:
            return [values.read(handle) for handle in self._run(values, inputs)]
        finally:
            values.close()

    def close(self) -> None:
        """Release the session; what the CUDA provider holds goes with it."""
        self._api.release("ReleaseSession", self._handle)

    def _run(self, values: Values, inputs: Sequence[Value]) -> list[ctypes.c_void_p]:
        feeds = [values.make(value) for value in inputs]
        fetched = (ctypes.c_void_p * len(self.outputs))()
        self._api.call(
            "Run",
            self._handle,
            None,
            _texts(self.inputs[: len(feeds)]),
            (ctypes.c_void_p * len(feeds))(*feeds),
            ctypes.c_size_t(len(feeds)),
            _texts(self.outputs),
            ctypes.c_size_t(len(self.outputs)),
            fetched,
        )
        return [ctypes.c_void_p(handle) for handle in fetched]

    def _names(self, side: str) -> list[str]:
        count = self._api.number(f"SessionGet{side}Count", self._handle)
        get = f"SessionGet{side}Name"
        return [self._api.text(get, self._handle, ctypes.c_size_t(at)) for at in range(count)]


def _texts(names: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


def _open(api: Api, model: Path, wish: SessionSettings) -> ctypes.c_void_p:
    options = api.handle("CreateSessionOptions")
    try:
        _prepare(api, options, wish)
        return api.handle("CreateSession", api.env, str(model).encode(), options)
    finally:
        api.release("ReleaseSessionOptions", options)


def _prepare(api: Api, options: ctypes.c_void_p, wish: SessionSettings) -> None:
    api.call("SetIntraOpNumThreads", options, ctypes.c_int(1))
    if wish.level is not None:
        api.call("SetSessionGraphOptimizationLevel", options, ctypes.c_int(wish.level))
    if wish.verbose:
        api.call("SetSessionLogSeverityLevel", options, ctypes.c_int(0))
    for key, value in wish.config.items():
        api.call("AddSessionConfigEntry", options, key.encode(), value.encode())
    if wish.cuda:
        _append_cuda(api, options)


def _append_cuda(api: Api, options: ctypes.c_void_p) -> None:
    cuda = api.handle("CreateCUDAProviderOptions")
    try:
        api.call("SessionOptionsAppendExecutionProvider_CUDA_V2", options, cuda)
    finally:
        api.release("ReleaseCUDAProviderOptions", cuda)
