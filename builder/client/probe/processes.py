"""The only module of the client that starts programs: questions with a time limit, and one stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Iterator, List, Mapping, Optional, Sequence, cast

from builder.errors import CommandError
from builder.formats.text import amount

if sys.platform == "linux":
    import fcntl

_GRACE_SECONDS = 1.0

_SET_PIPE_SIZE = 1031
"""``F_SETPIPE_SZ``, which ``fcntl`` names from Python 3.10 on."""

_PIPE_BYTES = 2**20
"""As much as Linux gives to anybody; 64 KiB without asking."""

_MOST_BYTES = 64 * 2**20
"""Of what a program writes: a session's log of a large model has a tenth of it."""

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
stopped: at the time limit, or because it wrote without end."""

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
Raises ``OSError`` when it cannot be started, ``TimeoutError`` when it wrote without end."""


def asker(env: Mapping[str, str]) -> Ask:
    """The real one: programs are found on ``env['PATH']`` and get ``env``."""
    return lambda argv, seconds: _run(argv, env, seconds)


def worker(env: Mapping[str, str]) -> Work:
    """The real one: programs are found on ``env['PATH']`` and get ``env``."""
    temporary = ("TMPDIR", "TEMP", "TMP")
    return lambda argv, folder: _run(argv, {**env, **dict.fromkeys(temporary, str(folder))}, None)


@contextmanager
def output_of(argv: Sequence[str], *, quiet: bool = False) -> Iterator[IO[bytes]]:
    """What a program writes, as a stream. ``CommandError`` when it exits non-zero; ``quiet`` drops its words.

    Where the reader leaves more than a little of it, the program is ended and how it fared is not known.
    """
    stderr = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr) as process:
        stream = cast("IO[bytes]", process.stdout)
        _widen(stream)
        try:
            yield stream
            wanted = len(stream.read(_LITTLE)) < _LITTLE
        except Exception as error:
            if stream.read(1) or process.wait() == 0:
                process.kill()
                raise
            # What the reader made of the little that came is not the reason: the program failed.
            raise _failed(process) from error
        except BaseException:
            process.kill()
            raise
        if not wanted:
            process.kill()
            return
    if process.returncode != 0:
        raise _failed(process)


def _failed(process: subprocess.Popen[bytes]) -> CommandError:
    argv = cast("Sequence[str]", process.args)
    return CommandError(f"{argv[0]} exited with {process.returncode}", argv=argv, code=process.returncode)


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
    ears = [_Ear(process, cast("IO[bytes]", pipe)) for pipe in (process.stdout, process.stderr)]
    try:
        _hear_out(process, ears, seconds)
    except BaseException:
        _kill(process)
        raise
    finally:
        for ear in ears:
            ear.close()
    stdout, stderr = (ear.heard.decode(errors="replace") for ear in ears)
    return ProcessAnswer(process.returncode, stdout, stderr)


def _hear_out(process: subprocess.Popen[bytes], ears: Sequence[_Ear], seconds: Optional[float]) -> None:
    """Return when the program has ended and all it wrote is heard. Raises ``TimeoutError``."""
    deadline = time.monotonic() + (threading.TIMEOUT_MAX / 2 if seconds is None else seconds)
    for ear in ears:
        ear.join(max(deadline - time.monotonic(), 0))
    if any(len(ear.heard) > _MOST_BYTES for ear in ears):
        raise TimeoutError(f"stopped, for it wrote more than {amount(_MOST_BYTES)}")
    try:
        process.wait(0 if any(ear.is_alive() for ear in ears) else max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if any(ear.is_alive() for ear in ears):  # what it started still holds the pipe
        raise TimeoutError(f"no answer within {seconds:g} s")


class _Ear(threading.Thread):
    """Keeps what a program writes into a pipe. One that writes without end is ended."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.heard = bytearray()
        self._process, self._pipe = process, pipe
        self.start()

    def run(self) -> None:
        """Listen to the end."""
        while len(self.heard) <= _MOST_BYTES:
            chunk = os.read(self._pipe.fileno(), _PIPE_BYTES)
            if not chunk:
                return
            self.heard += chunk
        _kill(self._process)

    def close(self) -> None:
        """Give the pipe back, unless a program that cannot be ended still holds it."""
        self.join(_GRACE_SECONDS)
        if not self.is_alive():
            self._pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started. A program stuck in the kernel driver is left behind, not waited for."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
