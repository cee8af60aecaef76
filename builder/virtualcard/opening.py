"""Opens models on a virtual card, in a child process, and reads back what the session did."""

from __future__ import annotations

import ctypes
import json
import mmap
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from builder.binary.elf import Elf, read_elf
from builder.errors import LoadError
from builder.ports import Runner
from builder.virtualcard.stubs import stub_library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.generic]"
NO_RUNTIME = 3
"""The worker's exit code for a host library that does not load."""
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
DISABLED, BASIC, EXTENDED, ALL = 0, 1, 2, 99
"""``GraphOptimizationLevel``."""
HOST, PROVIDER = "libonnxruntime.so.1", "libonnxruntime_providers_cuda.so"
_RUNTIME = re.compile(r"libcudart\.so\.(1[23])")
_OPENED = ("libcudnn.so.9", "libcufft.so.12")
"""What a provider for CUDA 13 opens by name, and asks for functions by theirs."""
_ASKED_BY_NAME = re.compile(rb"\0((?:cudnn|cufft)[A-Z]\w+)(?=\0)")
_STANDS_FOR = re.compile(r"lib(cu|nv)")
"""The beginning of the names of NVIDIA's libraries."""
_ANSWERED = re.compile(r"(?:__)?cuda|cublas|cudnn|cufft|curand|nvrtc")
"""The beginning of the functions that they define."""
_COMPUTES = re.compile(r"cublas(Lt)?[SDGM]|cudnn|cufftXtExec|curandGenerate|fmha")
_PREPARES = re.compile(r"Create|Destroy|Set|Get|Finalize|Init|Desc")
DRIVER = "580.65.06"
"""CUDA 13.0's first: its branch is the last with Maxwell to Volta and the first with every Blackwell.

Source: CUDA Toolkit 13.0 release notes.
"""


class CardAnswer(TypedDict):
    """The worker's line of JSON on one model."""

    error: str
    nodes: list[tuple[str, str, str, int]]
    """Provider, operator, name, how many of this name."""
    no_kernel: list[tuple[str, str]]
    """Operator and name of each node that the CUDA provider's registry has no kernel for."""
    unsupported: list[tuple[str, str]]
    """The same of those whose attributes its kernel does not do."""
    cheaper: list[str]
    """Names of nodes that have a kernel and are left to the CPU because they compute shapes."""
    containers: list[tuple[str, int, int, int]]
    """Library, CUDA error or 0, whether it is JIT, kernels; one for each container."""
    kernels: list[tuple[str, int, int]]
    """Mangled name, launches, CUDA error or 0."""
    calls: list[tuple[str, int]]
    """Function of NVIDIA's libraries, how often."""


@dataclass(frozen=True, kw_only=True)
class VirtualCard:
    """A GPU and a driver that the stand-in claims to be."""

    capability: str
    """Compute capability, ``8.6``. Calls fail with error 100 for one that ``resolver.c`` does not list."""
    driver: str = DRIVER
    """Version of NVIDIA's driver, ``535.54.03``."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that runtime.c reads."""
        return {"VIRTUALCARD_CAPABILITY": self.capability, "VIRTUALCARD_DRIVER": self.driver}


@dataclass(frozen=True, kw_only=True)
class CardRuntime:
    """The compiled stand-in, and the runner of processes that load it."""

    library: Path
    """``libvirtualcard.so``, as ``compile.sh`` made it."""
    runner: Runner

    def error_of(self, card: VirtualCard) -> int:
        """The CUDA error of each call on ``card``: 0, 35 (its driver is too old) or 100 (no device)."""
        answer = ctypes.CDLL(str(self.library)).virtualcard_error
        return int(answer(card.capability.encode(), card.driver.encode()))


@dataclass(frozen=True, kw_only=True)
class ModelToOpen:
    """A model to open, and with what."""

    model: Path
    feed: Mapping[str, Array] | None = None
    """The model's inputs by name. With them it is also run once, on kernels that compute nothing."""
    level: int = ALL
    """``GraphOptimizationLevel``; ORT's default unless said."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Entries of ORT's session configuration."""
    seconds: int = 300
    """How long opening and running may take: no kernel computes, so a loop over its zeros may never end."""


@dataclass(kw_only=True)
class Containers:
    """The fatbin containers that one library registered, by what the claimed driver takes of each."""

    native: int = 0
    jit: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    """By CUDA's error number: 209, 222."""
    kernels: Counter[str] = field(default_factory=Counter)
    """Kernels that were registered with them: ``native``, ``jit``, ``refused``."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.native + self.jit + self.refused.total()


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The result of opening one model: nodes, containers, launches, or the error."""

    nodes: Mapping[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    """Provider → operator and name of each of its nodes, subgraphs' too."""
    no_kernel: frozenset[tuple[str, str]] = frozenset()
    """Operator and name of each node that the CUDA provider's registry has no kernel for, fused or not."""
    unsupported: frozenset[tuple[str, str]] = frozenset()
    """The same of those whose attributes its kernel does not do."""
    cheaper: frozenset[str] = frozenset()
    """Names of nodes that have a kernel and are left to the CPU because they compute shapes."""
    error: str = ""
    """What opening or running it failed with, or nothing."""
    libraries: Mapping[str, Containers] = field(default_factory=dict)
    """Library's file name → its containers."""
    launches: Mapping[str, int] = field(default_factory=dict)
    """Kernel by its mangled name, or function of NVIDIA's libraries that launches some → how often."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Kernel that could not be used → CUDA's error number."""

    @property
    def counts(self) -> dict[str, int]:
        """Provider → number of nodes."""
        return {provider: nodes.total() for provider, nodes in sorted(self.nodes.items())}

    @property
    def launched(self) -> int:
        """Launches of all kinds."""
        return sum(self.launches.values())


def open_models(
    libraries: Path, models: Sequence[ModelToOpen], card: VirtualCard, *, runtime: CardRuntime
) -> Iterator[Opening]:
    """Open models one after another on the CUDA provider of ``libraries``, the CPU's behind it.

    ``libraries``: folder with ONNX Runtime's own libraries, or the path of its host library; NVIDIA's are not
    needed. One process opens them all; a model that ends it gets that as its error, the rest a new process.
    Raises ``LoadError`` for what is no ONNX Runtime with a provider for CUDA 12 or 13.
    """
    host = libraries if libraries.is_file() else libraries / HOST
    with tempfile.TemporaryDirectory(prefix="ortpacks-card-") as name:
        folder = Path(name)
        environment = environment_of(host, card, runtime, folder)
        left = list(enumerate(models))
        while left:
            seen = _process(host, left, folder, environment, runtime.runner)
            yield from seen
            left = left[len(seen) :]


def environment_of(host: Path, card: VirtualCard, runtime: CardRuntime, folder: Path) -> dict[str, str]:
    """The environment of a process that opens the library ``host`` on ``card``, with stand-ins in ``folder``.

    Raises ``LoadError`` for a provider that is not for CUDA 12 or 13.
    """
    cuda = _link(host.with_name(PROVIDER), runtime.library, folder)
    return {**_loader(folder), **card.environment, "VIRTUALCARD_CUDA": cuda}


def _link(provider: Path, runtime: Path, folder: Path) -> str:
    """Link the stand-in into ``folder`` under the name of each NVIDIA library: ``12`` or ``13``, the CUDA."""
    asks, defined = _elf(provider), _elf(runtime)
    cuda = next((found[1] for found in map(_RUNTIME.fullmatch, asks.needed) if found), None)
    if cuda is None:
        got = ", ".join(name for name in asks.needed if _STANDS_FOR.match(name)) or "nothing of CUDA"
        raise LoadError(
            f"{provider} needs {got}: the virtual card stands in for CUDA 12 and 13. "
            "Verify a package for one of these, or leave --card out."
        )
    linked = {name for name in asks.needed if _STANDS_FOR.match(name)} | {"libcuda.so.1", runtime.name}
    for name in linked:
        (folder / name).symlink_to(runtime.resolve())
    known = {symbol.name for symbol in defined.symbols.exports}
    names = {symbol.name for symbol in asks.symbols.asks if _ANSWERED.match(symbol.name)}
    opened = set(_OPENED) - linked if cuda == "13" else set()
    if opened:
        names |= _asked_by_name(provider)
    stubs = folder / "libvirtualstubs.so"
    stubs.write_bytes(stub_library(sorted(names - known), needs=runtime.name))
    for name in opened:
        (folder / name).symlink_to(stubs.name)
    return cuda


def _asked_by_name(provider: Path) -> set[str]:
    with provider.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
        return {found[1].decode() for found in _ASKED_BY_NAME.finditer(buffer)}


def _elf(library: Path) -> Elf:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            return read_elf(buffer)
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{library} cannot be read as a library: {error}. Build the package again."
        ) from error


def _loader(folder: Path) -> dict[str, str]:
    """The loader's variables. They name the libraries without their folder, whose name may hold a space."""
    return {
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": "libvirtualcard.so libvirtualstubs.so",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }


def _process(
    host: Path,
    left: Sequence[tuple[int, ModelToOpen]],
    folder: Path,
    environment: Mapping[str, str],
    runner: Runner,
) -> list[Opening]:
    """The results of one process; where it ended early, the last is of the model that ended it."""
    jobs = [_job(at, one, folder) for at, one in left]
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    answers = folder / "answers.jsonl"
    answers.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "builder.virtualcard.worker", str(host), str(folder)]
    output: list[str] = []
    done = runner.run(argv, env=environment, on_line=output.append, check=False)
    if done.code == NO_RUNTIME:
        raise LoadError(f"{host} does not load: {_last(output)}. Build the package again.")
    text = answers.read_text(encoding="utf-8") if answers.is_file() else ""
    # What a worker that was killed was writing has no end of line.
    seen = [_opening(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if len(seen) < len(jobs):
        seen.append(Opening(error=_ended(done.code, left[len(seen)][1], output)))
    return seen


def _ended(code: int, model: ModelToOpen, output: Sequence[str]) -> str:
    """Why the process that opened ``model`` ended before it answered."""
    if code == -signal.SIGALRM:
        return f"it took longer than {model.seconds} s on the virtual card, whose kernels compute nothing"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    return f"the process ended with {how}: {_last(output)}"


def _last(lines: Sequence[str]) -> str:
    return "\n".join(lines)[-2000:].strip()


def _job(at: int, model: ModelToOpen, folder: Path) -> dict[str, object]:
    feed = folder / f"feed-{at}.npz"
    if model.feed is not None and not feed.exists():
        import numpy as np  # noqa: PLC0415 - slow to import, and every verb imports this module

        np.savez(feed, allow_pickle=False, **model.feed)
    return {
        "model": str(model.model),
        "level": model.level,
        "feed": str(feed) if model.feed is not None else None,
        "config": dict(model.config),
        "seconds": model.seconds,
    }


def _opening(answer: CardAnswer) -> Opening:
    nodes: dict[str, Counter[tuple[str, str]]] = {}
    for provider, operator, name, count in answer["nodes"]:
        nodes.setdefault(provider, Counter())[operator, name] += count
    libraries: dict[str, Containers] = {}
    for library, error, jit, kernels in answer["containers"]:
        _count(libraries.setdefault(library, Containers()), error, kernels, jit=bool(jit))
    computing = {name: count for name, count in answer["calls"] if _computes(name)}
    return Opening(
        nodes=nodes,
        no_kernel=frozenset((operator, name) for operator, name in answer["no_kernel"]),
        unsupported=frozenset((operator, name) for operator, name in answer["unsupported"]),
        cheaper=frozenset(answer["cheaper"]),
        error=answer["error"],
        libraries=libraries,
        launches={**{name: count for name, count, _ in answer["kernels"] if count}, **computing},
        refused={name: error for name, _, error in answer["kernels"] if error},
    )


def _count(containers: Containers, error: int, kernels: int, *, jit: bool) -> None:
    containers.kernels["refused" if error else "jit" if jit else "native"] += kernels
    if error:
        containers.refused[error] += 1
    elif jit:
        containers.jit += 1
    else:
        containers.native += 1


def _computes(function: str) -> bool:
    """Whether a function of NVIDIA's libraries makes no object, sets nothing and asks nothing."""
    return _COMPUTES.match(function) is not None and not _PREPARES.search(function)
