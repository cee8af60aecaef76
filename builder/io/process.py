"""Runner of programs, the only module among the adapters that starts processes; tasks that run at once."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from builder.errors import BuilderError, CommandError, ToolMissingError, VariantsFailedError
from builder.formats.text import redacted

TAIL_LINES = 30
_GRACE_SECONDS = 20


@dataclass(frozen=True)
class Completed:
    """The output of a finished process and its exit code, which the caller judges."""

    code: int
    stdout: str
    stderr: str


class ProcessRunner:
    """The runner of programs found on ``env['PATH']``."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        hints: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        lent: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Take the programs' environment; ``hints`` maps a program's name to advice on how to get it.

        ``secrets`` are variables that no program gets, unless ``lent`` has them under the program's name.
        """
        self._env = dict(env)
        self._secrets = frozenset(secrets)
        self._lent = dict(lent or {})
        self._hints = dict(hints or {})
        self._streaming: set[subprocess.Popen[bytes]] = set()
        self._interrupted = False

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        check: bool = True,
    ) -> Completed:
        """Run a program to its end and return its exit code and output.

        ``on_line`` gets each line of output as it comes, with stderr merged into stdout; the result then has
        only the last lines. ``env`` is added to the runner's own environment. Raises ``ToolMissingError``
        when the program is not there and, with ``check``, ``CommandError`` with the last lines when the exit
        code is not 0.
        """
        self._stop_if_interrupted()
        given = {**self._env, **(env or {})}
        hidden = self._secrets.difference(self._lent.get(argv[0], ()))
        merged = {name: value for name, value in given.items() if name not in hidden}
        command = [self._resolve(argv[0], merged), *argv[1:]]
        if on_line is None:
            done = _capture(command, cwd, merged)
        else:
            done = self._stream(command, cwd, merged, on_line)
        self._stop_if_interrupted()
        if check and done.code != 0:
            raise _failure(argv, done)
        return done

    def interrupt(self) -> None:
        """End the streaming processes of all threads and start no more, because the user pressed Ctrl-C."""
        self._interrupted = True
        for process in list(self._streaming):
            _stop(process)

    def _stop_if_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _resolve(self, program: str, env: Mapping[str, str]) -> str:
        path = shutil.which(program, path=env.get("PATH"))
        if path is None:
            hint = self._hints.get(program, f"Install {program} or put it on PATH.")
            raise ToolMissingError(f"{program} is not on PATH. {hint}")
        return path

    def _stream(
        self, command: Sequence[str], cwd: Path | None, env: Mapping[str, str], on_line: Callable[[str], None]
    ) -> Completed:
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        with subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            self._streaming.add(process)
            try:
                self._stop_if_interrupted()
                for line in _lines(process.stdout):
                    tail.append(line)
                    on_line(line)
            except BaseException:
                _stop(process)
                raise
            finally:
                self._streaming.discard(process)
        return Completed(code=process.returncode, stdout="\n".join(tail), stderr="")


def _capture(command: Sequence[str], cwd: Path | None, env: Mapping[str, str]) -> Completed:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, check=False, stdin=subprocess.DEVNULL
    )
    return Completed(
        code=done.returncode,
        stdout=done.stdout.decode(errors="replace"),
        stderr=done.stderr.decode(errors="replace"),
    )


def _lines(stream: IO[bytes] | None) -> Iterator[str]:
    return (raw.decode(errors="replace").rstrip("\r\n") for raw in stream or ())


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the process, so that a build keeps its caches; kill it after 20 seconds."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _failure(argv: Sequence[str], done: Completed) -> CommandError:
    output = (done.stderr.strip() or done.stdout.strip()).splitlines()
    how = f"was ended by signal {-done.code}" if done.code < 0 else f"exited with {done.code}"
    # URLs of mirrors and indexes may contain passwords, which messages must not show.
    shown = [redacted(word) for word in argv]
    tail = [redacted(line) for line in output[-TAIL_LINES:]]
    message = f"{Path(argv[0]).name} {how}: {' '.join(shown)}"
    return CommandError(message, argv=shown, code=done.code, tail=tail)


T = TypeVar("T")


def side_by_side(builds: Mapping[str, Callable[[], T]], interrupt: Callable[[], None]) -> list[T]:
    """Run builds, or other tasks, at once by name, and return their results in order.

    Each task runs to its end before a failure is raised. ``interrupt`` ends their child processes when the
    user presses Ctrl-C. Raises ``VariantsFailedError`` with every failure, or the exception of a bug. A
    single task runs in this thread, where Ctrl-C ends it at once.
    """
    if len(builds) == 1:
        return [build() for build in builds.values()]
    with ThreadPoolExecutor(max_workers=len(builds)) as pool:
        futures = {name: pool.submit(build) for name, build in builds.items()}
        try:
            wait(futures.values())
        except KeyboardInterrupt:
            interrupt()
            raise
    failures: dict[str, BuilderError] = {}
    for name, future in futures.items():
        error = future.exception()
        if isinstance(error, BuilderError):
            failures[name] = error
        elif error is not None:
            raise error
    if failures:
        raise VariantsFailedError(failures)
    return [future.result() for future in futures.values()]
