"""The only module of the client that starts programs: questions with a time limit, and one stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Iterator, List, Mapping, Optional, Sequence, cast

from builder.errors import CommandError

if sys.platform == "linux":
    import fcntl

_GRACE_SECONDS = 1.0

_SET_PIPE_SIZE = 1031
"""``F_SETPIPE_SZ``, which ``fcntl`` names from Python 3.10 on."""

_PIPE_BYTES = 2**20
"""As much as Linux gives to anybody; 64 KiB without asking."""

_LITTLE = 2**20
"""Bytes; a tar ends with at most some ten thousand that nobody reads."""


@dataclass(frozen=True)
class ProcessAnswer:
    """What a program that ran to its end said."""

    code: int
    stdout: str
    stderr: str

    @property
    def killed_by(self) -> Optional[str]:
        """The signal that it died of, ``SIGSEGV``; ``None`` where it ended by itself."""
        if self.code >= 0:
            return None
        names = {item.value: item.name for item in signal.Signals}
        return names.get(-self.code, f"signal {-self.code}")


Ask = Callable[[Sequence[str], float], ProcessAnswer]
"""``ask(argv, seconds)``. Raises ``OSError`` when the program cannot be started, ``TimeoutError`` when it was
stopped at the time limit."""

_ROOT = Path(__file__).parents[3]
"""What ``builder`` is imported from: the source tree, or the one file of the client."""

_RUN = (
    "import sys; from importlib import import_module; sys.path.append(sys.argv[1]); "
    "import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def child(python: str, module: str, *arguments: str) -> List[str]:
    """The command line that runs ``main`` of one of our modules in a Python of its own.

    Nothing of the user's environment is imported there (``-I -S``).
    """
    return [python, "-I", "-S", "-c", _RUN, str(_ROOT), module, *arguments]


Work = Callable[[Sequence[str], Path], ProcessAnswer]
"""``work(argv, folder)``: a program that may take its time and keeps its temporary files in ``folder``.
Raises ``OSError`` when it cannot be started."""


def asker(env: Mapping[str, str]) -> Ask:
    """The real one: programs are found on ``env['PATH']`` and get ``env``."""
    return lambda argv, seconds: _run(argv, env, seconds)


def worker(env: Mapping[str, str]) -> Work:
    """The real one: programs are found on ``env['PATH']`` and get ``env``."""
    temporary = ("TMPDIR", "TEMP", "TMP")
    return lambda argv, folder: _run(argv, {**env, **dict.fromkeys(temporary, str(folder))}, None)


@contextmanager
def output_of(argv: Sequence[str]) -> Iterator[IO[bytes]]:
    """What a program writes, as a stream. ``CommandError`` when it exits non-zero.

    Where the reader leaves more than a little of it, the program is ended and how it fared is not known.
    """
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        stream = cast("IO[bytes]", process.stdout)
        _widen(stream)
        try:
            yield stream
            wanted = len(stream.read(_LITTLE)) < _LITTLE
        except BaseException:
            process.kill()
            raise
        if not wanted:
            process.kill()
            return
    if process.returncode != 0:
        raise CommandError(f"{argv[0]} exited with {process.returncode}", argv=argv, code=process.returncode)


def _widen(pipe: IO[bytes]) -> None:
    """Room for more at a time, where the system gives it: the two programs wake each other less often."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(pipe.fileno(), _SET_PIPE_SIZE, _PIPE_BYTES)


def _run(argv: Sequence[str], env: Mapping[str, str], seconds: Optional[float]) -> ProcessAnswer:
    process = subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        _kill(process)
        raise TimeoutError(f"no answer within {error.timeout:g} s") from None
    except BaseException:
        _kill(process)
        raise
    return ProcessAnswer(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started. A program stuck in the kernel driver is left behind, not waited for."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return
