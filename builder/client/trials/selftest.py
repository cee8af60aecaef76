"""Tries a package out in a child process: whether its libraries load here, and whether they open a model."""

from __future__ import annotations

import json
import pkgutil
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Optional

from builder.client.probe.processes import Answer, Ask
from builder.errors import LoadError
from builder.formats.manifest import Manifest
from builder.formats.providers import HOSTS
from builder.formats.session_log import Placement

LOAD_SECONDS = 60.0
"""The first time, a gigabyte of libraries comes from the disk."""

MODEL_SECONDS = 30.0

_GLIBC = re.compile(r"version [`']((?:GLIBC|GLIBCXX|CXXABI)_[0-9.]+)' not found")

_ABSENT = re.compile(r"([\w.+-]+): cannot open shared object file")

_IN_LOG = re.compile(r"Failed to load library .*? with error: (.+)")

_CUDA = re.compile(r"CUDA failure \d+: [^;]+")


@dataclass(frozen=True)
class Tried:
    """How a try went: ``failure`` is ``None`` where well. ``ran`` is false where none could be made."""

    ran: bool
    failure: Optional[str] = None
    version: Optional[str] = None
    """What ONNX Runtime says of itself."""
    gpu_memory_mib: Optional[int] = None
    """What the session took of the GPU's memory."""
    placement: Optional[Placement] = None
    """Where the nodes of the session are, as far as the log says."""


@dataclass(frozen=True)
class Prover:
    """The interpreter that children are run with, and the door to them."""

    ask: Ask
    python: str

    def load(self, folder: Path, manifest: Manifest) -> Tried:
        """Load the host library of the package in ``folder``, its provider, and all that this needs.

        No GPU is used. Where the package has no host library or no child can be started, nothing is tried.
        """
        host = host_of(folder, manifest)
        if host is None:
            return Tried(ran=False, failure="the package lists no host library")
        tried = self.run([str(host), manifest.provider], LOAD_SECONDS)
        wanted = manifest.onnxruntime.version
        if tried.version is not None and tried.version != wanted:
            why = f"{host.name} says it is version {tried.version}, the manifest says {wanted}"
            return Tried(ran=True, failure=why, version=tried.version)
        return tried

    def open(self, host: Path, provider: str, model: Path) -> Tried:
        """Open a session for ``model`` on ``provider`` (``cuda``, ``cpu`` …)."""
        return self.run([str(host), provider, str(model)], MODEL_SECONDS)

    def run(self, arguments: List[str], seconds: float) -> Tried:
        """One child: never an exception, whatever becomes of it."""
        script = (pkgutil.get_data("builder.client.trials", "ort_probe.py") or b"").decode()
        try:
            answer = self.ask([self.python, "-I", "-S", "-c", script, *arguments], seconds)
        except TimeoutError as error:
            return Tried(ran=True, failure=str(error))
        except OSError as error:
            return Tried(ran=False, failure=f"{self.python} cannot be started: {error.strerror or error}")
        return _read(answer)


def require_loading(tried: Tried, name: str) -> None:
    """``LoadError`` with what to do, unless the try went well or could not be made."""
    if tried.ran and tried.failure is not None:
        raise LoadError(
            f"{name}: its libraries do not load on this machine: {tried.failure}. {_advice(tried.failure)} "
            "What was installed before is unchanged."
        )


def host_of(folder: Path, manifest: Manifest) -> Optional[Path]:
    """The package's host library, where it lists one."""
    listed = {entry.path for entry in manifest.files}
    name = f"lib/{HOSTS.get(manifest.platform)}"
    return folder / name if name in listed else None


def _read(answer: Answer) -> Tried:
    try:
        said = json.loads(answer.stdout)
        if "failed" in said:
            return Tried(ran=True, failure=_reason(said["failed"], answer.stderr))
        return Tried(True, None, said["version"], _mib(said), _placement(answer.stderr))
    except (ValueError, KeyError, TypeError):
        return _without_words(answer)


def _placement(log: str) -> Optional[Placement]:
    """``None`` where the log says nothing of nodes, or in words that are not known."""
    heard = Placement()
    heard.read(log)
    try:
        return heard if heard.take() else None
    except ValueError:
        return None


def _without_words(answer: Answer) -> Tried:
    """A child that died, or a Python without ctypes: then nothing was tried."""
    if "No module named '_ctypes'" in answer.stderr or "No module named 'ctypes'" in answer.stderr:
        return Tried(ran=False, failure="this Python has no ctypes")
    if answer.code < 0:
        return Tried(ran=True, failure=f"the process died of {_signal_name(-answer.code)}")
    last = " ".join(answer.stderr.strip().splitlines()[-1:])
    return Tried(ran=True, failure=f"the process ended with exit code {answer.code}: {last or 'no word'}")


def _reason(said: str, log: str) -> str:
    """The line that tells: ONNX Runtime hides the loader's in its log, and CUDA's behind a page of C++."""
    in_log = _IN_LOG.search(log)
    cuda = _CUDA.search(said)
    if in_log:
        return in_log[1].strip()
    return cuda[0].strip() if cuda else " ".join(said.split())


def _advice(failure: str) -> str:
    symbol, absent = _GLIBC.search(failure), _ABSENT.search(failure)
    if symbol:
        return f"This system is older than the package: it needs {symbol[1]} or newer. Update the system."
    if absent:
        return f"Install the system's package that has {absent[1]}."
    if "failed to map segment" in failure:
        return "Its file system may be mounted noexec: choose another place with --prefix."
    return "`verify` says whether the files are as they were released."


def _mib(said: Mapping[str, object]) -> Optional[int]:
    used = said.get("gpu_memory")
    return used // 2**20 if isinstance(used, int) else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
