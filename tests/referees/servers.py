"""Runners of the referees that are servers, each on a free port of 127.0.0.1."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.referees.install import HERE, Referees
from tests.support.containers import free_port

_START_SECONDS = 60
_STOP_SECONDS = 10


@contextmanager
def prism(referees: Referees, description: Path, log: Path) -> Iterator[str]:
    """Run Prism inside the block and yield its URL.

    Prism answers with the description's examples, and with 4xx to a request that does not fit the
    description. The option ``--errors`` is not used, as GitHub's example of a repository does not fit
    GitHub's own schema.
    """
    port = free_port()
    words = [str(referees.prism), "mock", "--host=127.0.0.1", f"--port={port}", str(description)]
    with _running([referees.node, *words], port, log) as url:
        yield url


@contextmanager
def emulate(referees: Referees, log: Path) -> Iterator[str]:
    """Run emulate's GitHub inside the block and yield its URL; ``loopback.cjs`` limits it to 127.0.0.1."""
    port = free_port()
    guard = f"--require={HERE / 'loopback.cjs'}"
    words = [guard, str(referees.emulate), "start", "--service=github", f"--port={port}"]
    with _running([referees.node, *words], port, log) as url:
        yield url


@contextmanager
def _running(argv: Sequence[str], port: int, log: Path) -> Iterator[str]:
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            _await(process, url, log)
            yield url
        finally:
            _stop(process)


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not _answers(url):
        running = process.poll() is None and time.monotonic() < end
        assert running, f"{' '.join(map(str, process.args))}:\n{log.read_text()[-3000:]}"  # type: ignore[arg-type]
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
