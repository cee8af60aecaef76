"""Trials of a package in child processes load its libraries, open a model, and run a session."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Optional, Tuple

from builder.client.doctor.messages import explain, number_of
from builder.client.doctor.observations import SessionTrial
from builder.client.probe.processes import Ask, ProcessAnswer, child
from builder.errors import LoadError, NothingToDoError, ValidationError
from builder.files.disk import absolute
from builder.files.safe_paths import bad_package
from builder.formats.manifest import Manifest
from builder.formats.onnx_file import read_onnx
from builder.formats.package_names import CPU, HOSTS, LIB
from builder.formats.session_log import Placement
from builder.formats.text import printable

LOAD_SECONDS = 60.0
"""Time limit in seconds. The first time, a gigabyte of libraries is read from the disk."""

MODEL_SECONDS = 30.0

SESSION_SECONDS = 60.0
"""Time limit in seconds. The first time, the driver may compile too."""

MEASURE_SECONDS = 100.0
"""Time limit in seconds for all runs of a model. The first time, the driver may compile too."""

_CHILD = "builder.client.trials.ort_calls"

_GLIBC = re.compile(r"version [`']((?:GLIBC|GLIBCXX|CXXABI)_[0-9.]+)' not found")

_ABSENT = re.compile(r"([\w.+-]{1,255}): cannot open shared object file")

_DRIVER = "libcuda.so.1"

_WINDOWS_126 = re.compile(r"(?i)error 126\b|or one of its dependencies")
"""ERROR_MOD_NOT_FOUND in ONNX Runtime's message and in Python's. Windows does not name the missing DLL."""

_IN_LOG = re.compile(
    r"Failed to load library .*? with error: (.+)"
    r"|((?:Error loading \"[^\"]+\"|LoadLibrary failed with error \d+) .+)"
)
"""The loader's message in ONNX Runtime's log, on Linux and on Windows. The status of the call lacks it."""

_CUDA = re.compile(r"CUDA failure (\d+): ([^;]+)")

_BY_NAME = re.compile(r"CUDA error (cudaError\w+):\s*([^;]+)")
"""ONNX Runtime's message for a kernel that does not start, with the error's name in driver_types.h."""

_NUMBERS = {"D033": 2, "D028": 999}
"""CUDA's number for findings of messages that may lack it."""


@dataclass(frozen=True)
class TryOut:
    """The result of a trial; ``failure`` is ``None`` for success, ``ran`` is false where it could not run."""

    ran: bool
    failure: Optional[str] = None
    code: Optional[int] = None
    """CUDA's number of the failure, where it has one."""
    version: Optional[str] = None
    """ONNX Runtime's version, as the host library gives it."""
    gpu_memory_mib: Optional[int] = None
    """GPU memory in MiB that the session took."""
    placement: Optional[Placement] = None
    """The provider of each node, where the log names it."""
    loaded: Tuple[str, ...] = ()
    """The libraries of ONNX Runtime and CUDA that the child had loaded in the end."""
    figures: Mapping[str, Optional[float]] = field(default_factory=dict)
    """``difference``, ``gpu_ms`` and ``cpu_ms`` of ``OrtTrials.measure``."""


@dataclass(frozen=True)
class OrtTrials:
    """Trials in child processes of the interpreter ``python``. No method raises."""

    ask: Ask
    python: str

    def load(self, folder: Path, manifest: Manifest) -> TryOut:
        """Load the host library of the package in ``folder``, its provider and their dependencies.

        No GPU is used. ``ran`` is false where the package lists no host library or no child can be started.
        """
        host = host_of(folder, manifest)
        if host is None:
            return TryOut(ran=False, failure="the package lists no host library")
        tried = self._try(LOAD_SECONDS, "load", str(host), manifest.provider)
        wanted = manifest.onnxruntime.version
        if tried.version is not None and tried.version != wanted:
            why = f"{host.name} says it is version {tried.version}, the manifest says {wanted}"
            return TryOut(ran=True, failure=why, version=tried.version)
        return tried

    def register(self, host: Path, plugin: Path) -> TryOut:
        """Let the host register the plug-in, which loads what it is linked with. No GPU is used."""
        return self._try(LOAD_SECONDS, "register", str(host), str(plugin))

    def link(self, library: Path) -> TryOut:
        """Load a library and its dependencies without a host; the result has no version."""
        return self._try(LOAD_SECONDS, "link", str(library), "")

    def version(self, host: Path) -> Optional[str]:
        """Return the version of a host library; ``None`` where it does not load."""
        return self._try(LOAD_SECONDS, "version", str(host), "").version

    def open(self, host: Path, provider: str, model: Path) -> TryOut:
        """Open a session for ``model`` on ``provider`` (``cuda``, ``cpu`` …)."""
        return self._try(MODEL_SECONDS, "open", str(host), provider, str(model))

    def compute(self, host: Path, provider: str) -> SessionTrial:
        """Run a session of one node on ``provider``; where that fails, on the CPU as well."""
        tried = self._try(SESSION_SECONDS, "compute", str(host), provider)
        if tried.failure is None or provider == CPU:
            return SessionTrial(provider, tried.failure, tried.code, loaded=tried.loaded)
        on_cpu = self._try(SESSION_SECONDS, "compute", str(host), CPU).failure is None
        return SessionTrial(provider, tried.failure, tried.code, on_cpu=on_cpu, loaded=tried.loaded)

    def measure(self, host: Path, provider: str, samples: Path, name: str) -> TryOut:
        """Run a model of ``samples``, a ``models.json``, on the provider and on the CPU; compare and time.

        ``provider`` is ``cuda``, or the path of a plug-in.
        """
        return self._try(MEASURE_SECONDS, "measure", str(host), provider, str(samples), name)

    def _try(self, seconds: float, *arguments: str) -> TryOut:
        try:
            answer = self.ask(child(self.python, _CHILD, *arguments), seconds)
        except TimeoutError as error:
            return TryOut(ran=True, failure=str(error))
        except OSError as error:
            return TryOut(ran=False, failure=f"{self.python} cannot be started: {error.strerror or error}")
        return _read(answer)


def require_loading(tried: TryOut, name: str) -> TryOut:
    """Return the trial. Raise ``LoadError`` with advice where it ran and failed.

    Providers of 1.30 are linked with the driver's library. Where a machine lacks it, as an image does that is
    built for others, no trial has run.
    """
    absent = _ABSENT.search(tried.failure or "")
    if absent and absent[1] == _DRIVER:
        return TryOut(
            ran=False, failure=f"its provider needs {_DRIVER} of NVIDIA's driver, which is not here"
        )
    if tried.ran and tried.failure is not None:
        raise LoadError(
            f"{name}: its libraries do not load on this machine: {tried.failure}. {_advice(tried.failure)} "
            "What was installed before is unchanged."
        )
    return tried


def host_of(folder: Path, manifest: Manifest) -> Optional[Path]:
    """Return the path of the package's host library; ``None`` where the package lists none."""
    listed = {entry.path for entry in manifest.files}
    name = f"{LIB}{HOSTS.get(manifest.platform)}"
    return folder / name if name in listed else None


def require_host(folder: Path, manifest: Manifest) -> Path:
    """Return the path of the package's host library. Raises ``IntegrityError`` where it lists none."""
    host = host_of(folder, manifest)
    if host is None:
        raise bad_package(str(folder), "the package lists no host library")
    return host


def no_host(manifest: Manifest, flag: str) -> NothingToDoError:
    """Return the error of a command that opens models, where the package in use is a plug-in."""
    return NothingToDoError(
        f"{flag}: {manifest.name} is a plug-in and has no host of its own to open a model with.",
        advice="Open it in the application, or install a package of form provider under another --prefix.",
    )


def model_file(path: str, given: str, advice: str) -> Path:
    """Return the absolute path of a model, once it is read as one.

    Raises ``ValidationError`` with the user's text ``given`` and ``advice`` where there is no such file, and
    the errors of ``read_onnx``.
    """
    file = absolute(Path(path))
    if not file.is_file():
        raise ValidationError(f"--try {printable(given)}: no such file, or no regular one.", advice=advice)
    read_onnx(file)
    return file


def _read(process: ProcessAnswer) -> TryOut:
    log = process.stderr.replace("\0", "")  # under Wine, ONNX Runtime's log is UTF-16
    try:
        answer = json.loads(process.stdout)
        loaded = tuple(answer.get("loaded", ()))
        if "failed" in answer:
            failure, code = reason(str(answer["failed"]), log)
            return TryOut(ran=True, failure=failure, code=code, loaded=loaded)
        used = answer["gpu_memory"]
        return TryOut(
            ran=True,
            version=answer["version"],
            gpu_memory_mib=None if used is None else used // 2**20,
            placement=_placement(log),
            loaded=loaded,
            figures=answer.get("figures", {}),
        )
    except (ValueError, KeyError, TypeError):
        return _without_words(process)


def _placement(log: str) -> Optional[Placement]:
    """Return the nodes' providers; ``None`` where the log has none, or is not understood."""
    placement = Placement()
    placement.add_log(log)
    try:
        return placement if placement.nodes_by_kind() else None
    except ValueError:
        return None


def _without_words(answer: ProcessAnswer) -> TryOut:
    """Return the result of a child without an answer: it died, or its Python lacks ctypes."""
    if "No module named '_ctypes'" in answer.stderr or "No module named 'ctypes'" in answer.stderr:
        return TryOut(ran=False, failure="this Python has no ctypes")
    if answer.killed_by:
        return TryOut(ran=True, failure=f"the process died of {answer.killed_by}")
    last = " ".join(answer.stderr.strip().splitlines()[-1:]) or "no word"
    return TryOut(ran=True, failure=f"the process ended with exit code {answer.code}: {last}")


def reason(message: str, log: str) -> Tuple[str, Optional[int]]:
    """Return ``(failure, number)``: a message, and CUDA's error number, ``None`` where it has none.

    Full memory always gets number 2, and an unknown error 999, whoever reports it. The message is CUDA's own,
    else the loader's in ``log``, else the whole ``message``.
    """
    cuda, named, loader = _CUDA.search(message), _BY_NAME.search(message), _IN_LOG.search(log)
    number = number_of(message)
    if cuda:
        return f"CUDA failure {cuda[1]}: {cuda[2].strip()}", int(cuda[1])
    if named and number is not None:
        return f"CUDA failure {number}: {named[2].strip()}", number
    if loader:
        return (loader[1] or loader[2]).strip(), None
    code, _ = explain(message) or ("", {})
    return " ".join(message.split()), _NUMBERS.get(code, number)


def _advice(failure: str) -> str:
    symbol, absent = _GLIBC.search(failure), _ABSENT.search(failure)
    if symbol:
        return f"This system is older than the package: it needs {symbol[1]} or newer. Update the system."
    if absent:
        return f"Install the system's package that has {absent[1]}."
    if _WINDOWS_126.search(failure):
        return (
            "A DLL that it imports is not here. All but Microsoft's run time is in the package: install the "
            "Visual C++ Redistributable (x64), https://aka.ms/vs/17/release/vc_redist.x64.exe."
        )
    if "failed to map segment" in failure:
        return "Its file system may be mounted noexec: choose another place with --prefix."
    return "`verify` says whether the files are as they were released."
