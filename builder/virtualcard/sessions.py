"""This module opens models on a virtual card, in a child process, and reads the report of the sessions."""

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
from builder.binary.library_names import HOST, PROVIDER
from builder.errors import LoadError
from builder.ports import Runner
from builder.virtualcard.stubs import stub_library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.generic]"
NO_RUNTIME = 3
"""The worker's exit code for a host library that does not load."""
DISABLED, BASIC, EXTENDED, ALL = 0, 1, 2, 99
"""Values of ORT's ``GraphOptimizationLevel``."""
_RUNTIME = re.compile(r"libcudart\.so\.(1[23])")
_OPENED = ("libcudnn.so.9", "libcufft.so.12")
"""Libraries that a provider for CUDA 13 opens by ``dlopen``, to look functions up in them by name."""
_ASKED_BY_NAME = re.compile(rb"\0((?:cudnn|cufft)[A-Z]\w+)(?=\0)")
_STANDS_FOR = re.compile(r"lib(cu|nv)")
"""The beginning of the file names of NVIDIA's libraries."""
_ANSWERED = re.compile(r"(?:__)?cuda|cublas|cudnn|cufft|curand|nvrtc")
"""The beginning of the names of functions in NVIDIA's libraries."""
_COMPUTES = re.compile(r"cublas(Lt)?[SDGM]|cudnn|cufftXtExec|curandGenerate|fmha")
_PREPARES = re.compile(r"Create|Destroy|Set|Get|Finalize|Init|Desc")
DRIVER = "580.65.06"
"""The default driver, that of CUDA 13.0. Its branch is the last that supports Maxwell to Volta, and the first
that supports all Blackwell GPUs. Source: CUDA Toolkit 13.0 release notes."""


_BUILD_AGAIN = "Build the package again."


class CardAnswer(TypedDict):
    """The worker's line of JSON on one model."""

    error: str
    nodes: list[tuple[str, str, str, int]]
    """Provider, operator, name, and the number of nodes with this name."""
    no_kernel: list[tuple[str, str]]
    """Operator and name of each node that the CUDA provider's registry has no kernel for."""
    unsupported: list[tuple[str, str]]
    """Operator and name of each node whose attributes the CUDA provider's kernel does not support."""
    cheaper: list[str]
    """Names of nodes that have a kernel but are left to the CPU because they compute shapes."""
    containers: list[tuple[str, int, int, int]]
    """For each container: its library, CUDA error or 0, 1 for JIT or 0, number of kernels."""
    kernels: list[tuple[str, int, int]]
    """For each kernel: mangled name, number of launches, CUDA error or 0."""
    calls: list[tuple[str, int]]
    """For each called function of NVIDIA's libraries: name, number of calls."""


@dataclass(frozen=True, kw_only=True)
class VirtualCard:
    """The GPU and the driver that the stand-in claims."""

    capability: str
    """Compute capability, ``8.6``. Calls fail with error 100 for a capability that ``resolver.c`` lacks."""
    driver: str = DRIVER
    """Version of the driver, ``535.54.03``."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that runtime.c reads."""
        return {"VIRTUALCARD_CAPABILITY": self.capability, "VIRTUALCARD_DRIVER": self.driver}


@dataclass(frozen=True, kw_only=True)
class CardRuntime:
    """The compiled stand-in, and the runner of processes that load it."""

    library: Path
    """The path of ``libvirtualcard.so``, which ``compile.sh`` makes."""
    runner: Runner

    def error_of(self, card: VirtualCard) -> int:
        """Return the CUDA error of each call on ``card``: 0, 35 (driver too old) or 100 (no device)."""
        answer = ctypes.CDLL(str(self.library)).virtualcard_error
        return int(answer(card.capability.encode(), card.driver.encode()))


@dataclass(frozen=True, kw_only=True)
class ModelToOpen:
    """A model to open, with its inputs and the session's settings."""

    model: Path
    feed: Mapping[str, Array] | None = None
    """The model's inputs by name, to run the model once with them; ``None`` for opening it only."""
    level: int = ALL
    """Value of ``GraphOptimizationLevel``; the default is ORT's."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Entries of ORT's session configuration."""
    seconds: int = 300
    """Most seconds for opening and running; as no kernel computes, a loop in a model may never end."""


@dataclass(kw_only=True)
class Containers:
    """Numbers of the fatbin containers that one library registered, by how the claimed driver runs them."""

    native: int = 0
    jit: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    """Numbers of refused containers by CUDA's error number, 209 or 222."""
    kernels: Counter[str] = field(default_factory=Counter)
    """Numbers of the kernels in these containers: ``native``, ``jit``, ``refused``."""

    @property
    def total(self) -> int:
        """The number of all registered containers."""
        return self.native + self.jit + self.refused.total()


@dataclass(frozen=True, kw_only=True)
class CardSession:
    """The result of opening one model: nodes, containers, launches, or the error."""

    nodes: Mapping[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    """Numbers of nodes by provider, then by operator and name, with the nodes of subgraphs."""
    no_kernel: frozenset[tuple[str, str]] = frozenset()
    """Operator and name of each node that the CUDA provider's registry has no kernel for, fused or not."""
    unsupported: frozenset[tuple[str, str]] = frozenset()
    """Operator and name of each node whose attributes the CUDA provider's kernel does not support."""
    cheaper: frozenset[str] = frozenset()
    """Names of nodes that have a kernel but are left to the CPU because they compute shapes."""
    error: str = ""
    """The error of opening or running the model; empty on success."""
    libraries: Mapping[str, Containers] = field(default_factory=dict)
    """Containers by the file name of their library."""
    launches: Mapping[str, int] = field(default_factory=dict)
    """Numbers of launches by a kernel's mangled name, or of calls by a computing function of NVIDIA's."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """CUDA's error number of each kernel that could not be used, by the kernel's mangled name."""

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of nodes by provider."""
        return {provider: nodes.total() for provider, nodes in sorted(self.nodes.items())}

    @property
    def launched(self) -> int:
        """The sum of ``launches``."""
        return sum(self.launches.values())


def open_models(
    libraries: Path, models: Sequence[ModelToOpen], card: VirtualCard, *, runtime: CardRuntime
) -> Iterator[CardSession]:
    """Open models one after another on the CUDA and CPU providers of ``libraries``; yield each one's result.

    ``libraries``: the folder of ONNX Runtime's libraries, or the path of its host library; NVIDIA's libraries
    are not needed. One process opens the models. A model that ends the process has this as its error, and a
    new process opens the models after it. Raises ``LoadError`` for libraries that do not load, or are no ONNX
    Runtime with a provider for CUDA 12 or 13 on x86-64.
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
    """Return the environment variables for a process that opens the library ``host`` on ``card``.

    Links the stand-ins into ``folder``. Raises what ``_link`` does.
    """
    cuda = _link(host.with_name(PROVIDER), runtime.library, folder)
    return {**_loader(folder), **card.environment, "VIRTUALCARD_CUDA": cuda}


def _link(provider: Path, runtime: Path, folder: Path) -> str:
    """Link the stand-ins into ``folder`` under the names of NVIDIA's libraries. Return CUDA's major version.

    Raises ``LoadError`` for a provider that is not for CUDA 12 or 13, or for another processor.
    """
    asks, defined = _elf(provider), _elf(runtime)
    if asks.machine != defined.machine:
        raise LoadError(
            f"{provider.name} is for {asks.machine}",
            cause=f"the virtual card runs libraries for {defined.machine} only",
            advice="Take a package for linux-x64.",
        )
    cuda = next((found[1] for found in map(_RUNTIME.fullmatch, asks.needed) if found), None)
    if cuda is None:
        got = ", ".join(name for name in asks.needed if _STANDS_FOR.match(name)) or "nothing of CUDA"
        raise LoadError(
            f"{provider} needs {got}",
            cause="the virtual card stands in for CUDA 12 and 13",
            advice="Take a package for one of these.",
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
            f"{library} cannot be read as a library", cause=str(error), advice=_BUILD_AGAIN
        ) from error


def _loader(folder: Path) -> dict[str, str]:
    """Return the variables for the loader and Python.

    The preloaded libraries are named without their folder, whose name may contain a space.
    """
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
) -> list[CardSession]:
    """Open models in one process; return its results, the last one for the model that ended it early."""
    jobs = [_job(at, one, folder) for at, one in left]
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    answers = folder / "answers.jsonl"
    answers.unlink(missing_ok=True)
    argv = [sys.executable, "-m", "builder.virtualcard.worker", str(host), str(folder)]
    output: list[str] = []
    done = runner.run(argv, env=environment, on_line=output.append, check=False)
    if done.code == NO_RUNTIME:
        raise LoadError(f"{host} does not load", cause=_last(output), advice=_BUILD_AGAIN)
    text = answers.read_text(encoding="utf-8") if answers.is_file() else ""
    # The last line of a killed worker may be incomplete: it has no end of line.
    seen = [_card_session(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if len(seen) < len(jobs):
        seen.append(CardSession(error=_ended(done.code, left[len(seen)][1], output)))
    return seen


def _ended(code: int, model: ModelToOpen, output: Sequence[str]) -> str:
    """Return why the process ended before it had opened and run ``model``."""
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


def _card_session(answer: CardAnswer) -> CardSession:
    nodes: dict[str, Counter[tuple[str, str]]] = {}
    for provider, operator, name, count in answer["nodes"]:
        nodes.setdefault(provider, Counter())[operator, name] += count
    libraries: dict[str, Containers] = {}
    for library, error, jit, kernels in answer["containers"]:
        _count(libraries.setdefault(library, Containers()), error, kernels, jit=bool(jit))
    computing = {name: count for name, count in answer["calls"] if _computes(name)}
    return CardSession(
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
    """Return whether a function of NVIDIA's libraries computes something, by its name."""
    return _COMPUTES.match(function) is not None and not _PREPARES.search(function)
