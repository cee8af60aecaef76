"""Runner of programs, the only module among the adapters that starts processes."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from builder.errors import CommandError, ToolMissingError
from builder.formats.text import redacted
from builder.ports import Completed

TAIL_LINES = 30
_GRACE_SECONDS = 20


class ProcessRunner:
    """The runner of programs found on ``env['PATH']``; implements ``ports.Runner``."""

    def __init__(
        self, env: Mapping[str, str], *, hints: Mapping[str, str] | None = None, secrets: Sequence[str] = ()
    ) -> None:
        """Take the programs' environment; ``hints`` maps a program's name to advice on how to get it.

        ``secrets`` are variables that no program gets.
        """
        self._env = dict(env)
        self._secrets = frozenset(secrets)
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
        """See ``ports.Runner.run``. ``env`` is added to the runner's own environment."""
        self._stop_if_interrupted()
        given = {**self._env, **(env or {})}
        merged = {name: value for name, value in given.items() if name not in self._secrets}
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
        found = shutil.which(program, path=env.get("PATH"))
        if found is None:
            hint = self._hints.get(program, f"Install {program} or put it on PATH.")
            raise ToolMissingError(f"{program} is not on PATH. {hint}")
        return found

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
