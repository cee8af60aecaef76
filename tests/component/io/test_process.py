"""Tests of the process runner with real programs."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builder.errors import CommandError, ToolMissingError
from builder.io.process import Completed, ProcessRunner
from tests.support.messages import Refused


def runner() -> ProcessRunner:
    return ProcessRunner(os.environ, hints={"no-such-program": "apt-get install it."})


def python(script: str, *words: str, **more: Any) -> Completed:  # noqa: ANN401 - of ``run``
    return runner().run([sys.executable, "-c", script, *words], **more)


def test_missing_program_is_named_with_a_hint(refused: Refused) -> None:
    with refused(ToolMissingError):
        runner().run(["no-such-program"])


def test_failure_shows_the_last_30_lines() -> None:
    with pytest.raises(CommandError, match="exited with 3") as caught:
        python("print(*range(100), sep='\\n'); raise SystemExit(3)")
    assert caught.value.code == 3
    assert caught.value.tail == tuple(str(number) for number in range(70, 100))
    with pytest.raises(CommandError, match="was ended by signal 9"):
        python("import os; os.kill(os.getpid(), 9)")


def test_a_failure_shows_no_passwords() -> None:
    url = "http://user:p@ss@mirror.example/debian"
    with pytest.raises(CommandError) as caught:
        python("import sys; sys.exit('failed: ' + sys.argv[1])", url)
    assert "ss@" not in f"{caught.value} {caught.value.argv} {caught.value.tail}"
    assert str(caught.value).count("http://…@mirror.example/debian") == 2


def test_lines_stream_with_stderr_merged() -> None:
    lines: list[str] = []
    script = "import sys; print('a', flush=True); print('b', file=sys.stderr, flush=True)"
    python(script, on_line=lines.append)
    assert lines == ["a", "b"]


def test_an_interrupted_stream_ends_the_child(tmp_path: Path) -> None:
    """A build must not continue after Ctrl-C."""
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    pids: list[int] = []

    def interrupt(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        python(script, on_line=interrupt)
    assert not Path(f"/proc/{pids[0]}").exists()


def test_an_interrupt_ends_what_streams_in_other_threads_and_starts_nothing_more() -> None:
    script = "import time; print('compiling', flush=True); time.sleep(60)"
    runs, started = runner(), threading.Semaphore(0)

    def compiling() -> None:
        runs.run([sys.executable, "-c", script], on_line=lambda _: started.release(), check=False)

    with ThreadPoolExecutor(max_workers=2) as pool:
        ends = [pool.submit(compiling) for _ in range(2)]
        assert all(started.acquire(timeout=10) for _ in ends)
        runs.interrupt()
        assert [type(end.exception(timeout=10)) for end in ends] == [KeyboardInterrupt] * 2
    with pytest.raises(KeyboardInterrupt):
        runs.run([sys.executable, "-c", "raise SystemExit('started')"], check=False)
