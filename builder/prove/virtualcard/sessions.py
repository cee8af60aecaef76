"""This module opens models on a virtual card, in a child process, and reads the report of the sessions.

``ModelPlan`` says from it which nodes run on the CPU, and why. ``stub_library`` writes, without a compiler, a
library of functions that count their calls and return success. These are the functions of NVIDIA's libraries
that a provider needs and the stand-in does not define. They differ between versions of ONNX Runtime. Sources
of its format: the System V ABI and its x86-64 supplement.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
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
from builder.errors import LoadError, ToolMissingError
from builder.io.process import ProcessRunner

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


import struct
from collections import defaultdict
from dataclasses import asdict

from builder.facts.ort.operators import OperatorTable
from builder.formats.session_log import CPU_PROVIDER, EVERY_NODE
from builder.formats.text import abridged, shortened

Array: TypeAlias = "NDArray[np.generic]"
WORKER = "builder.prove.virtualcard.worker"
"""The module of the child process."""
NO_RUNTIME = 3
"""The worker's exit code for a host library that does not load."""
DISABLED, BASIC, EXTENDED, ALL = 0, 1, 2, 99
"""Values of ORT's ``GraphOptimizationLevel``."""
_RUNTIME = re.compile(r"libcudart\.so\.(1[23])")
_CUDNN = "libcudnn.so.9"
_OPENED = (_CUDNN, "libcufft.so.11", "libcufft.so.12")
"""Libraries that a provider for CUDA 13, or of ORT 1.30, opens by ``dlopen``, to look names up in them."""
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


class SessionJob(TypedDict):
    """A model for the worker to open; ``feed`` is an ``.npz`` file of inputs, ``None`` for opening only."""

    model: str
    level: int
    feed: str | None
    config: dict[str, str]
    seconds: int


class CardAnswer(TypedDict):
    """The worker's line of JSON on one model."""

    error: str
    nodes: list[tuple[str, str, str, int]]
    """Provider, operator, name, and the number of nodes with this name."""
    no_kernel: list[tuple[str, str]]
    unsupported: list[tuple[str, str]]
    cheaper: list[str]
    """As in ``CardSession``."""
    report: str
    """The lines that ``virtualcard_report`` of runtime.c writes."""


@dataclass(frozen=True, kw_only=True)
class VirtualCard:
    """The GPU and the driver that the stand-in claims."""

    capability: str
    """Compute capability, ``8.6``. Calls fail with error 100 for a capability that ``resolver.c`` lacks."""
    driver: str = DRIVER
    """Version of the driver, ``535.54.03``."""


@dataclass(frozen=True, kw_only=True)
class CardRuntime:
    """The compiled stand-in, and the runner of processes that load it."""

    library: Path
    """The path of ``libvirtualcard.so``, which ``compile.sh`` makes."""
    runner: ProcessRunner

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
    libraries: Path,
    models: Sequence[ModelToOpen],
    card: VirtualCard,
    *,
    runtime: CardRuntime,
    plugin: Path | None = None,
) -> Iterator[CardSession]:
    """Open models one after another on the CUDA and CPU providers of ``libraries``; yield each one's result.

    ``libraries``: the folder of ONNX Runtime's libraries, or the path of its host library; NVIDIA's libraries
    are not needed. ``plugin``: a library that the host registers in place of a provider of its own, on a GPU
    of ``machine_with_gpus``. One process opens the models. A model that ends the process has this as its
    error, and a new process opens the models after it. Raises ``LoadError`` for libraries that do not load,
    or are no ONNX Runtime with a provider for CUDA 12 or 13 on x86-64, and ``ToolMissingError`` where a GPU
    cannot be made.
    """
    host = libraries if libraries.is_file() else libraries / HOST
    with tempfile.TemporaryDirectory(prefix="ortpacks-card-") as name:
        folder = Path(name)
        environment = environment_of(host, card, runtime, folder, plugin=plugin)
        python = [*(machine_with_gpus(folder / "class") if plugin else ()), sys.executable]
        argv = [*python, "-m", WORKER, str(host), str(folder), *([str(plugin.resolve())] if plugin else [])]
        jobs = [_job(model, folder / f"feed-{at}.npz") for at, model in enumerate(models)]
        while jobs:
            seen = _process(argv, jobs, folder, environment, runtime.runner)
            yield from seen
            jobs = jobs[len(seen) :]


def environment_of(
    host: Path, card: VirtualCard, runtime: CardRuntime, folder: Path, *, plugin: Path | None = None
) -> dict[str, str]:
    """Return the environment variables for a process that opens the library ``host`` on ``card``.

    Its provider is ``plugin``, by default the one beside it.

    Links the stand-ins into ``folder``. Raises ``LoadError`` for a provider that is not for CUDA 12 or 13, or
    for another processor.
    """
    cuda = _link(plugin or host.with_name(PROVIDER), runtime.library, folder)
    return {
        "LD_LIBRARY_PATH": str(folder),
        # Without their folder, whose name may contain a space.
        "LD_PRELOAD": "libvirtualcard.so libvirtualstubs.so",
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "VIRTUALCARD_CAPABILITY": card.capability,
        "VIRTUALCARD_DRIVER": card.driver,
        "VIRTUALCARD_CUDA": cuda,
    }


def machine_with_gpus(folder: Path, count: int = 1) -> list[str]:
    """Return the beginning of a command that finds ``count`` GPUs of NVIDIA's below ``/sys/class``.

    ONNX Runtime looks for the GPUs of plug-ins there. The files are written into ``folder``. The command has
    a mount namespace of its own, and fails for a user who may make none.
    """
    for at in range(count):
        device, card = folder / f"pci/0000:{at:02x}:00.0", folder / f"drm/card{at}"
        for made in (device, card):
            made.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n", encoding="ascii")
        (device / "device").write_text(f"0x{0x2230 + at:x}\n", encoding="ascii")
        (card / "device").symlink_to(f"../../pci/{device.name}")
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = 'mount --bind "$0" /sys/class && exec "$@"'
    return ["unshare", "--mount", *mapped, "sh", "-c", script, str(folder)]


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
    cuda = next((match[1] for match in map(_RUNTIME.fullmatch, asks.needed) if match), None)
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
    opened = set(_OPENED) - linked if cuda == "13" or _CUDNN not in linked else set()
    if opened:
        names |= _asked_by_name(provider)
    stubs = folder / "libvirtualstubs.so"
    stubs.write_bytes(stub_library(sorted(names - known), needs=runtime.name))
    for name in opened:
        (folder / name).symlink_to(stubs.name)
    return cuda


def _asked_by_name(provider: Path) -> set[str]:
    with provider.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
        return {match[1].decode() for match in _ASKED_BY_NAME.finditer(buffer)}


def _elf(library: Path) -> Elf:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
            return read_elf(buffer)
    except (OSError, ValueError) as error:
        raise LoadError(
            f"{library} cannot be read as a library", cause=str(error), advice=_BUILD_AGAIN
        ) from error


def _process(
    argv: Sequence[str],
    jobs: Sequence[SessionJob],
    folder: Path,
    environment: Mapping[str, str],
    runner: ProcessRunner,
) -> list[CardSession]:
    """Open models in one process; return its results, the last one for the model that ended it early."""
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    answers = folder / "answers.jsonl"
    answers.unlink(missing_ok=True)
    output: list[str] = []
    done = runner.run(argv, env=environment, on_line=output.append, check=False)
    if done.code == NO_RUNTIME:
        raise LoadError(
            f"{argv[argv.index(WORKER) + 1]} does not load", cause=_last(output), advice=_BUILD_AGAIN
        )
    if not answers.is_file() and argv[0] == "unshare":
        raise ToolMissingError(
            "no GPU can be made below /sys here",
            cause=_last(output),
            advice="Run it as root, or as a user who may make namespaces; a container needs --privileged.",
        )
    text = answers.read_text(encoding="utf-8") if answers.is_file() else ""
    # The last line of a killed worker may be incomplete: it has no end of line.
    seen = [_card_session(json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if len(seen) < len(jobs):
        seen.append(CardSession(error=_ended(done.code, jobs[len(seen)]["seconds"], output)))
    return seen


def _ended(code: int, seconds: int, output: Sequence[str]) -> str:
    """Return why the process ended before it had opened and run a model, which may take ``seconds``."""
    if code == -signal.SIGALRM:
        return f"it took longer than {seconds} s on the virtual card, whose kernels compute nothing"
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    return f"the process ended with {how}: {_last(output)}"


def _last(lines: Sequence[str]) -> str:
    return "\n".join(lines)[-2000:].strip()


def _job(model: ModelToOpen, feed: Path) -> SessionJob:
    if model.feed is not None:
        import numpy as np  # noqa: PLC0415 - slow to import, and every verb imports this module

        np.savez(feed, allow_pickle=False, **model.feed)
    return SessionJob(
        model=str(model.model),
        level=model.level,
        feed=None if model.feed is None else str(feed),
        config=dict(model.config),
        seconds=model.seconds,
    )


def _card_session(answer: CardAnswer) -> CardSession:
    nodes: dict[str, Counter[tuple[str, str]]] = {}
    for provider, operator, name, count in answer["nodes"]:
        nodes.setdefault(provider, Counter())[operator, name] += count
    libraries: dict[str, Containers] = {}
    launches: dict[str, int] = {}
    refused: dict[str, int] = {}
    for line in answer["report"].splitlines():
        kind, name, *numbers = line.split("\t")
        if kind == "container":
            error, jit, _ = map(int, numbers)
            containers = libraries.setdefault(name, Containers())
            if error:
                containers.refused[error] += 1
            elif jit:
                containers.jit += 1
            else:
                containers.native += 1
            continue
        launched, error = map(int, numbers)
        if launched and (kind == "kernel" or _computes(name)):
            launches[name] = launched
        if error:
            refused[name] = error
    return CardSession(
        nodes=nodes,
        no_kernel=frozenset((operator, name) for operator, name in answer["no_kernel"]),
        unsupported=frozenset((operator, name) for operator, name in answer["unsupported"]),
        cheaper=frozenset(answer["cheaper"]),
        error=answer["error"],
        libraries=libraries,
        launches=launches,
        refused=refused,
    )


def _computes(function: str) -> bool:
    """Return whether a function of NVIDIA's libraries computes something, by its name."""
    return _COMPUTES.match(function) is not None and not _PREPARES.search(function)


_CHEAPER = "computes shapes: ONNX Runtime leaves that to the CPU, although there is a CUDA kernel"

_UNSUPPORTED = "its CUDA kernel does not do these attributes"

_UNSAID = "ONNX Runtime says no reason"

_NAMED = 3
"""The most nodes that a line names."""


@dataclass(frozen=True)
class OnCpu:
    """A group of nodes that run on the CPU, with one operator and name."""

    operator: str
    name: str
    """The nodes' name; empty if the model gives none."""
    count: int
    """The number of nodes with this operator and name."""
    why: str


@dataclass(frozen=True)
class ModelPlan:
    """A model opened at ONNX Runtime's default level, on a card that the package serves."""

    model: str
    package: str
    onnxruntime: str
    """The package's version of ONNX Runtime."""
    opsets: Mapping[str, int]
    """The opset that the model asks for, by domain."""
    nodes: Mapping[str, int]
    """The number of nodes after ONNX Runtime's optimisations, by provider."""
    cpu: tuple[OnCpu, ...]
    card: str
    """The compute capability of the card that was assumed."""

    def document(self) -> dict[str, object]:
        """Return the JSON form; its schema is ``docs/schemas/inspect-model.schema.json``."""
        return {"format": 1, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """Yield a line for the model, then a line for each operator and reason."""
        total = sum(self.nodes.values())
        where = ", ".join(f"{count} on {provider}" for provider, count in sorted(self.nodes.items()))
        yield (
            f"{self.model} with {self.package}, ONNX Runtime {self.onnxruntime}, on a card of {self.card}: "
            f"{total} node{'s' * (total != 1)}, {where}"
        )
        counts: Counter[tuple[str, str]] = Counter()
        names = defaultdict[tuple[str, str], list[str]](list)
        for item in self.cpu:
            counts[item.operator, item.why] += item.count
            names[item.operator, item.why].append(shortened(item.name) or "unnamed")
        for (operator, why), count in counts.most_common():
            who = f"{count} {operator} ({abridged(names[operator, why], _NAMED)})"
            yield f"  CPU: {operator if operator == EVERY_NODE[0] else who}: {why}"
        if not self.cpu:
            yield "  no node runs on the CPU"


def without_kernel(opening: CardSession) -> frozenset[str]:
    """Return the operators of nodes that run on the CPU because the CUDA provider has no kernel for them."""
    on_cpu = _on_cpu(opening)
    nodes = opening.no_kernel if EVERY_NODE in on_cpu else opening.no_kernel & on_cpu.keys()
    return frozenset(operator for operator, _ in nodes)


def nodes_on_cpu(opening: CardSession, table: OperatorTable | None) -> tuple[OnCpu, ...]:
    """Return the nodes that run on the CPU, sorted, each with the reason.

    ``table`` has the provider's kernels; ``None`` where they are not known.
    """
    return tuple(
        OnCpu(operator, name, count, _reason((operator, name), opening, table))
        for (operator, name), count in sorted(_on_cpu(opening).items())
    )


def _on_cpu(opening: CardSession) -> Counter[tuple[str, str]]:
    return opening.nodes.get(CPU_PROVIDER, Counter())


def _reason(node: tuple[str, str], opening: CardSession, table: OperatorTable | None) -> str:
    """Return why ``node`` runs on the CPU: ONNX Runtime's reason and, without a kernel, the existing kernels.

    For ``EVERY_NODE``, whose operators ONNX Runtime does not list, all reasons that it gave for any node.
    """
    every = node == EVERY_NODE
    missing = {lacking[0] for lacking in opening.no_kernel if every or lacking == node}
    plain = f"no CUDA kernel for {', '.join(sorted(missing))}"
    causes = (
        (table.why_missing(missing) if table else plain, bool(missing)),
        (_UNSUPPORTED, bool(opening.unsupported) if every else node in opening.unsupported),
        (_CHEAPER, bool(opening.cheaper) if every else node[1] in opening.cheaper),
    )
    reasons = [why for why, holds in causes if holds]
    return "; ".join(reasons if every else reasons[:1]) or _UNSAID


_PAGE = 0x1000
_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTION, _GLOBAL, _TEXT_SECTION = 2, 1, 1
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ_EXECUTE, _READ_WRITE = 5, 6
_NEEDED = 1
_HASH, _STRINGS, _SYMBOLS, _RELA, _RELA_SIZE, _RELA_ENTRY, _STRINGS_SIZE, _SYMBOL_ENTRY = range(4, 12)
_GLOB_DAT = 6
_COUNT, _MAKE = b"\x48\x8d\x3d", b"\x48\x8d\x35"
"""``lea rdi`` and ``lea rsi``: load the function's name as the first argument, or as the second one."""
_JUMP = b"\xff\x25"
"""``jmp`` to an address in a table."""
_STUB_SIZE = 16
_HELPERS = ("counted", "made")
"""The functions of runtime.c that stubs jump to."""
_HEADERS = 64 + 4 * 56


def stub_library(names: Sequence[str], *, needs: str) -> bytes:
    """Return the bytes of a shared library for x86-64 that defines the functions ``names``.

    The library has a NEEDED entry for ``needs``, so that functions of that library are found through it too.
    Each function counts its calls. A function with ``Create`` in its name also returns a block of zeros as a
    handle, except cuFFT's, whose handles are numbers.
    """
    strings, places = _strings([*_HELPERS, *names, needs])
    symbols_at = _HEADERS
    hash_at = symbols_at + _SYMBOL.size * (1 + len(_HELPERS) + len(names))
    hashes = _hash_table(len(_HELPERS) + len(names))
    strings_at = hash_at + len(hashes)
    text_at = -(-(strings_at + len(strings)) // _STUB_SIZE) * _STUB_SIZE
    relocations_at = text_at + _STUB_SIZE * len(names)
    dynamic_at = -(-(relocations_at + 24 * len(_HELPERS)) // _PAGE) * _PAGE
    table_at = dynamic_at + 16 * 10
    entries = [(places[name], 0, 0) for name in _HELPERS]
    entries += [(places[name], _TEXT_SECTION, text_at + _STUB_SIZE * at) for at, name in enumerate(names)]
    symbols = bytes(_SYMBOL.size) + b"".join(
        _SYMBOL.pack(name, _GLOBAL << 4 | _FUNCTION, 0, section, value, _STUB_SIZE if section else 0)
        for name, section, value in entries
    )
    text = b"".join(
        _stub(name, text_at + _STUB_SIZE * at, strings_at + places[name], table_at)
        for at, name in enumerate(names)
    )
    relocations = b"".join(
        struct.pack("<QQq", table_at + 8 * at, (at + 1) << 32 | _GLOB_DAT, 0) for at in range(len(_HELPERS))
    )
    dynamic = b"".join(
        struct.pack("<QQ", tag, value)
        for tag, value in (
            (_NEEDED, places[needs]),
            (_HASH, hash_at),
            (_STRINGS, strings_at),
            (_SYMBOLS, symbols_at),
            (_RELA, relocations_at),
            (_RELA_SIZE, len(relocations)),
            (_RELA_ENTRY, 24),
            (_STRINGS_SIZE, len(strings)),
            (_SYMBOL_ENTRY, _SYMBOL.size),
            (0, 0),
        )
    )
    readable = (
        _headers(relocations_at + len(relocations), dynamic_at, len(dynamic)) + symbols + hashes + strings
    )
    code = readable.ljust(text_at, b"\0") + text + relocations
    return code.ljust(dynamic_at, b"\0") + dynamic + bytes(8 * len(_HELPERS))


def _strings(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    table, places = bytearray(b"\0"), {}
    for name in names:
        places[name] = len(table)
        table += name.encode("ascii") + b"\0"
    return bytes(table), places


def _stub(name: str, at: int, text: int, table: int) -> bytes:
    makes = "Create" in name and not name.startswith("cufft")
    load, slot = (_MAKE, table + 8) if makes else (_COUNT, table)
    code = load + struct.pack("<i", text - (at + 7)) + _JUMP + struct.pack("<i", slot - (at + 13))
    return code.ljust(_STUB_SIZE, b"\xcc")


def _hash_table(count: int) -> bytes:
    """Return the DT_HASH table of the null symbol and ``count`` others: one bucket, a chain of all."""
    chain = (0, *range(2, count + 1), 0)
    return struct.pack(f"<{3 + len(chain)}I", 1, len(chain), 1, *chain)


def _headers(code_size: int, dynamic_at: int, dynamic_size: int) -> bytes:
    writable = dynamic_size + 8 * len(_HELPERS)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    file = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 0, 0, 0)
    segments = (
        (_LOAD, _READ_EXECUTE, 0, code_size, _PAGE),
        (_LOAD, _READ_WRITE, dynamic_at, writable, _PAGE),
        (_DYNAMIC, _READ_WRITE, dynamic_at, dynamic_size, 8),
        (_STACK, _READ_WRITE, 0, 0, 16),
    )
    table = (
        struct.pack("<IIQQQQQQ", *kind, at, at, at, size, size, align) for *kind, at, size, align in segments
    )
    return ident + file + b"".join(table)
