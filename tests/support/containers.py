"""Calls of Docker's command line, and a client of the service in a container."""

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.files.file_lock import exclusive
from tests.support import ran

JSON = {"Content-Type": "application/json"}


def docker(*arguments: str | Path) -> str:
    return ran(["docker", *arguments], check=True).stdout.strip()


@contextlib.contextmanager
def image_made_here(name: str, dist: Path) -> Iterator[None]:
    """Hold a lock on the image name, and at the end remove the image unless it existed before."""
    with exclusive(dist.parent / f"{name.replace('/', '-')}.lock", lambda: None):
        somebodys = docker("images", "--quiet", name)
        yield
        if not somebodys and docker("images", "--quiet", name):
            docker("rmi", name)


def drop_copies() -> None:
    """Drop what BuildKit keeps of the folders that were built in: 0.6 to 2.4 GB for each.

    What a build reads is kept; a later build from the same folder sends its files again.
    """
    with contextlib.suppress(OSError, subprocess.CalledProcessError):  # no Docker: the tests say so
        docker("builder", "prune", "--force", "--filter=type=source.local")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Served:
    """The service in the container ``name``, reachable at ``port`` of 127.0.0.1."""

    name: str
    port: int

    def ask(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, JSON)
        with urllib.request.urlopen(asked, timeout=600) as answer:
            text = answer.read()
        return json.loads(text) if path != "/metrics" else text.decode()

    def ready(self, *, within: float = 60) -> dict[str, Any]:
        """Return the answer of ``/readyz``, ready or with a reason, once no model is being opened.

        Raises ``AssertionError`` with the container's log after ``within`` seconds.
        """
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                try:
                    return dict(self.ask("/readyz"))
                except urllib.error.HTTPError as waiting:
                    told = dict(json.loads(waiting.read()))
                    if "reason" in told:
                        return told
            time.sleep(0.05)
        raise AssertionError(docker("logs", self.name))

    def log(self) -> list[dict[str, Any]]:
        done = ran(["docker", "logs", self.name], check=True)
        return [json.loads(line) for line in done.stderr.splitlines()]
