"""This module alone starts the client's programs: with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, List, Mapping, Optional, Sequence, cast

from builder.formats.text import amount

_GRACE_SECONDS = 1.0

_PIPE_BYTES = 2**20
"""The most bytes that are read of a program's output at once."""

_MOST_BYTES = 64 * 2**20
"""The most bytes that a program may write: the log of a session with a large model has a tenth of them."""


@dataclass(frozen=True)
class ProcessAnswer:
    """The exit code and the output of a program that ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def killed_by(self) -> Optional[str]:
        """Return the signal that ended the program, ``SIGSEGV``; ``None`` where it exited by itself."""
        if self.code >= 0:
            return None
        names = {item.value: item.name for item in signal.Signals}
        return names.get(-self.code, f"signal {-self.code}")


Ask = Callable[[Sequence[str], float], ProcessAnswer]
"""``ask(argv, seconds)`` runs a program. Raises ``OSError`` when the program cannot be started,
``TimeoutError`` when it was killed at the time limit or after more than ``_MOST_BYTES``."""

_ROOT = Path(__file__).parents[3]
"""The folder that ``builder`` is imported from: the source tree, or the client's ``.pyz``."""

_RUN = (
    "import sys; from importlib import import_module; sys.path.append(sys.argv[1]); "
    "import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def child(python: str, module: str, *arguments: str) -> List[str]:
    """Return the command line that runs ``main`` of ``module`` in an interpreter of its own.

    The interpreter ignores the user's environment and ``site-packages`` (``-I -S``).
    """
    return [python, "-I", "-S", "-c", _RUN, str(_ROOT), module, *arguments]


Work = Callable[[Sequence[str], Path], ProcessAnswer]
"""``work(argv, folder)`` runs a program without a time limit, with its temporary files in ``folder``. Raises
``OSError`` when the program cannot be started, ``TimeoutError`` when it was killed after more than
``_MOST_BYTES``."""


def asker(env: Mapping[str, str]) -> Ask:
    """Return an ``Ask`` that starts real programs, found on ``env['PATH']``, with the environment ``env``."""
    return lambda argv, seconds: _run(argv, env, seconds)


def worker(env: Mapping[str, str]) -> Work:
    """Return a ``Work`` that starts real programs, found on ``env['PATH']``, with the environment ``env``."""
    temporary = ("TMPDIR", "TEMP", "TMP")
    return lambda argv, folder: _run(argv, {**env, **dict.fromkeys(temporary, str(folder))}, None)


def _run(argv: Sequence[str], env: Mapping[str, str], seconds: Optional[float]) -> ProcessAnswer:
    process = subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    readers = [_OutputReader(process, cast("IO[bytes]", pipe)) for pipe in (process.stdout, process.stderr)]
    try:
        _await_output(process, readers, seconds)
    except BaseException:
        _kill(process)
        raise
    finally:
        for reader in readers:
            reader.close()
    stdout, stderr = (reader.output.decode(errors="replace") for reader in readers)
    return ProcessAnswer(process.returncode, stdout, stderr)


def _await_output(
    process: subprocess.Popen[bytes], readers: Sequence[_OutputReader], seconds: Optional[float]
) -> None:
    deadline = time.monotonic() + (threading.TIMEOUT_MAX / 2 if seconds is None else seconds)
    for reader in readers:
        reader.join(max(deadline - time.monotonic(), 0))
    if any(len(reader.output) > _MOST_BYTES for reader in readers):
        raise TimeoutError(f"stopped, because it wrote more than {amount(_MOST_BYTES)}")
    held = any(reader.is_alive() for reader in readers)  # by a child of the program
    with suppress(subprocess.TimeoutExpired):
        process.wait(0 if held else max(deadline - time.monotonic(), 0))
        if not held:
            return
    raise TimeoutError(f"no answer within {seconds:g} s")


class _OutputReader(threading.Thread):
    """A thread that reads a program's output from a pipe, and kills the program at ``_MOST_BYTES``."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.output = bytearray()
        self._process, self._pipe = process, pipe
        self.start()

    def run(self) -> None:
        while len(self.output) <= _MOST_BYTES:
            chunk = os.read(self._pipe.fileno(), _PIPE_BYTES)
            if not chunk:
                return
            self.output += chunk
        _kill(self._process)

    def close(self) -> None:
        """Close the pipe, unless a program that cannot be killed still holds it."""
        self.join(_GRACE_SECONDS)
        if not self.is_alive():
            self._pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and its children. A program that hangs in the kernel driver is not waited for."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
