"""How much memory the process may use, and what of it is for runs of models and for requests.

Runs share one arena of ONNX Runtime with a limit: a run that finds no room fails, and the process goes on.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import onnxruntime
from ortpacks_runtime import Session
from ortpacks_runtime.providers import CPU

_RESERVE = 96 << 20
"""Bytes for what open models and a tokenizer take beside the arena, Python, and 512 connections' buffers."""

_BODIES = 4
"""Times the largest body that requests may take together, with what is read from them and their answers."""

_COPIES = 2
"""Times that the arena may have a model's weights: as they are in the file, and packed for the CPU."""

_LEAST_RUNS = 24 << 20
"""The least bytes for runs beside the models' weights."""

_FULL = re.compile(r"Available memory of .* requested bytes of \d+|Failed to allocate memory[ \w]*|bad_alloc")
"""What ONNX Runtime says of an arena that is full, and of a system that gives no more memory."""

_AS_REQUESTED = 1
"""The arena grows by what is asked for; by default it doubles, and is at its limit with half of it unused."""

_ONLY_CPU = ("CPUExecutionProvider", "AzureExecutionProvider")

_GROUPS, _CONTROLLERS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")

_MIB = 1 << 20

_UNLIMITED = 1 << 60
"""Control groups of version 1 have a number above this one where there is no limit."""

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""``M_MMAP_THRESHOLD`` and ``M_ARENA_MAX`` of glibc's ``mallopt``."""

_OWN_PAGES = 1 << 17
"""The least bytes of a block of memory that goes back to the system at once; smaller ones may leave holes.

With 128 hostile clients the holes were 186 MiB when it was 1 MiB, and are 76 MiB.
"""

TOO_LARGE = "the run needs more memory than models may use here (--memory-mib, or the container's limit)"


class RunTooLargeError(Exception):
    """A run of a model needs more memory than all runs together may use."""


def plan_memory(limit_mib: int | None, body_mib: int, models: Sequence[int]) -> tuple[int, int] | None:
    """Return the bytes for requests with their answers, and for models with their runs.

    ``models`` are the sizes of the models.

    Without ``limit_mib`` the limit is what is free, at most the container's; the container's alone, if models
    may need some of what other programs have now. ``None``: there is none.
    Raises ``ValueError`` if the models do not fit into the limit.
    """
    free = _free()
    limit = container_limit(_GROUPS, _CONTROLLERS) if limit_mib is None else limit_mib * _MIB
    total = min(limit, free) if limit_mib is None else limit
    if total == sys.maxsize:
        return None
    requests = min(_BODIES * body_mib * _MIB, total // 4)
    others = _resident() + _RESERVE + requests
    runs = total - others
    if runs < _COPIES * sum(models) + _LEAST_RUNS:
        if total < limit:
            return None if limit == sys.maxsize else plan_memory(limit // _MIB, body_mib, models)
        needed = (_COPIES * sum(models), _LEAST_RUNS, others)
        parts = "models take {}, runs {}, all else {}".format(*(size // _MIB for size in needed))
        do = "Allow more, or serve fewer or smaller models."
        raise ValueError(f"{total // _MIB} MiB of memory are too few: {parts}. {do}")
    return requests, runs


def limit_runs(size: int) -> None:
    """Give all sessions that are opened later one arena of ``size`` bytes. A process can do it once."""
    arena = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    info = onnxruntime.OrtMemoryInfo("Cpu", arena, 0, onnxruntime.OrtMemType.DEFAULT)
    settings = {"max_mem": size, "arena_extend_strategy": _AS_REQUESTED}
    onnxruntime.create_and_register_allocator(info, onnxruntime.OrtArenaCfg(settings))
    with suppress(AttributeError, TypeError):  # else glibc keeps much of what large requests leave
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)  # what one thread has freed, others may take


class Runs:
    """Runs of all models: beside each other, and, for one that found too little memory, alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = 0
        """Number of those that want or have all memory, for which others wait."""

    @property
    def busy(self) -> bool:
        """Whether a run would wait, or would have to share the memory."""
        return bool(self._running or self._alone)

    def run(
        self,
        session: Session,
        outputs: Sequence[str] | None,
        feed: Mapping[str, Any],
        options: onnxruntime.RunOptions | None = None,
    ) -> list[Any]:
        """Return the outputs. Raises ``RunTooLargeError`` if they fit no more when nothing else runs."""
        try:
            with self._beside():
                return session.run(outputs, feed, options)
        except Exception as error:
            if not _full(session, error):
                raise
        options, full = _shrinking(options), ""
        with self._without_others():
            for _ in range(2):  # the first gives back pieces of memory between which there is no room
                try:
                    return session.run(outputs, feed, options)
                except Exception as error:  # noqa: PERF203 - a run takes longer
                    if not (full := _full(session, error)):
                        raise
        raise RunTooLargeError(full)

    def opened(self, open_: Callable[[], Session], feed: Mapping[str, Any] | None) -> Session:
        """Return the session that ``open_`` opens.

        Weights take room in the arena whatever its limit is, and void a limit that is exceeded. So nothing
        runs meanwhile on a CPU, and what is not used is given back then.
        """
        on_cpu = set(onnxruntime.get_available_providers()) <= set(_ONLY_CPU)
        with self._without_others() if on_cpu else nullcontext():
            session = open_()
            with suppress(Exception):  # inputs cannot be made up for each model
                session.run(None, feed or session.example_inputs(), _shrinking(None))
        return session

    @contextmanager
    def _beside(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def _without_others(self) -> Iterator[None]:
        """Wait until nothing runs, and let nothing begin meanwhile."""
        with self._changed:
            self._alone += 1
            try:
                self._changed.wait_for(lambda: not self._running)
                yield
            finally:
                self._alone -= 1
                self._changed.notify_all()


def _shrinking(options: onnxruntime.RunOptions | None) -> onnxruntime.RunOptions:
    """Return options by which ONNX Runtime gives back, after a run, what the arena does not use."""
    options = options or onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _full(session: Session, error: Exception) -> str:
    """Return what ONNX Runtime says of memory that is full; empty for any other failure."""
    said = _FULL.search(str(error)) if session.report.provider == CPU else None
    return said[0] if said else ""


def _free() -> int:
    """Return the bytes that the process has or may get; the largest number where the system does not tell."""
    try:
        available = Path("/proc/meminfo").read_text("ascii").partition("MemAvailable:")[2]
        return _resident() + int(available.split()[0]) * 1024
    except (OSError, IndexError):
        return sys.maxsize


def container_limit(groups: Path, root: Path) -> int:
    """Return the least limit in bytes of the process's control groups, of version 1 or 2."""
    limits = [sys.maxsize]
    for line in groups.read_text("utf-8").splitlines() if groups.exists() else ():
        _, kinds, path = line.split(":", 2)
        top = root / ("memory" if "memory" in kinds.split(",") else "")
        folder = top / path.strip("/")
        for place in (folder, *folder.parents):
            files = (place / name for name in ("memory.max", "memory.limit_in_bytes"))
            texts = [file.read_text("ascii").strip() for file in files if file.is_file()]
            limits += [int(text) for text in texts if text.isdecimal() and int(text) < _UNLIMITED]
            if place == top:
                break
    return min(limits)


def _resident() -> int:
    """Return the bytes of the process that are in memory; 0 where the system does not tell."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
