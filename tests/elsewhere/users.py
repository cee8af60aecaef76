"""A user's computer: a container of Debian 12 with Python and zstd, and the NVIDIA driver that it is given.

It sees this machine's loopback, where the GitHub double listens, and nothing of the project.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.adapters.docker.buildx import LABEL
from builder.builds.wiring import Wiring
from tests.elsewhere.systems import imported
from tests.support import ROOT

CLIENT = ("python3", "/root/ortpacks.pyz")
_DRIVER = Path(__file__).with_name("cards.c")
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_WHERE = "/usr/lib/x86_64-linux-gnu"
"""Where the driver's libraries lie in a container that was given a GPU."""


@dataclass(frozen=True)
class Card:
    """A GPU as its driver tells of it."""

    name: str
    capability: str
    mib: int

    @property
    def in_c(self) -> str:
        major, minor = self.capability.split(".")
        return f'{{"{self.name}", {major}, {minor}, {self.mib}}}'


@dataclass(frozen=True)
class Computer:
    """A running container."""

    container: str

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program in it, with its own environment and ``env``."""
        told = [f"--env={name}={value}" for name, value in (env or {}).items()]
        return _docker("exec", *told, self.container, *argv)

    def sh(self, script: str) -> str:
        """What a shell script prints; it must succeed."""
        done = self.run("sh", "-euc", script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@dataclass(frozen=True)
class Bought:
    """What is in a computer, and what its user should get."""

    cards: Sequence[Card]
    driver: str
    cuda: int
    """As the driver says it: 12090 is 12.9."""
    variant: str
    support: str = "native"
    """How the package runs on it."""

    @property
    def version(self) -> str:
        """ONNX Runtime's: that of the assembled base, but of modern, which is made with --mixed."""
        project = Wiring(ROOT).project
        mixed = self.variant == "modern"
        return project.onnxruntime.version if mixed else project.bases["assembled"].ort_version


@dataclass(frozen=True)
class User:
    """Somebody with a computer and the release's client."""

    computer: Computer
    has: Bought

    def client(self, *words: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """Run a command of the client; what it printed."""
        done = self._ran(words, code, env)
        return done.stdout + done.stderr

    def ask(self, *words: str, env: Mapping[str, str] | None = None) -> dict[str, object]:
        """The JSON answer of a command. What it says of its doings is on stderr."""
        return json.loads(self._ran((*words, "--json"), 0, env).stdout)  # type: ignore[no-any-return]

    def _ran(
        self, words: Sequence[str], code: int, env: Mapping[str, str] | None
    ) -> subprocess.CompletedProcess[str]:
        done = self.computer.run(*CLIENT, *words, env=env)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def variant(self, *words: str, env: Mapping[str, str] | None = None) -> object:
        """Of the package that a command answers with."""
        package = self.ask(*words, env=env)["package"]
        assert isinstance(package, dict)
        return package["variant"]


@contextmanager
def image() -> Iterator[str]:
    """The computer's system, inside the block only: its name."""
    shop = Wiring(ROOT)
    tar = shop.rootfs(shop.reporter).tar("bookworm", ["python3", "zstd"])
    with imported(tar, "user") as name:
        yield name


@contextmanager
def computer(image: str, mounts: Mapping[str, Path]) -> Iterator[Computer]:
    """A computer just taken out of its box; ``mounts`` by place inside can only be read."""
    volumes = [f"--volume={path.resolve()}:{place}:ro" for place, path in mounts.items()]
    start = ["run", "--detach", "--rm", "--network=host", f"--label={LABEL}=run", *volumes]
    done = _docker(*start, image, "sleep", "infinity")
    assert done.returncode == 0, done.stderr
    container = done.stdout.strip()
    try:
        yield Computer(container)
    finally:
        _docker("rm", "--force", container)


def driver(cards: Sequence[Card], version: str, cuda: int, folder: Path) -> dict[str, Path]:
    """Mounts that are NVIDIA's driver with these cards. ``cuda`` as the driver says it: 12090."""
    library = folder / "driver.so"
    told = [
        f"-DCARDS={', '.join(card.in_c for card in cards)}",
        f'-DDRIVER="{version}"',
        f"-DCUDA={cuda}",
    ]
    compile_c(_DRIVER, library, "-shared", "-fPIC", *told)
    return {f"{_WHERE}/{name}": library for name in _LIBRARIES}


def compile_c(source: Path, target: Path, *flags: str) -> None:
    """By this machine's compiler: Debian 12's libraries are older than what they may be linked with."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for what stands in the container for a driver and an application")
    subprocess.run([compiler, "-w", *flags, "-o", target, source], check=True)


def _docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
