"""Users' computers: containers of Debian 12 with Python, zstd and a stand-in for NVIDIA's driver.

A container can reach this machine's loopback, where the GitHub double listens, and has no file of the
project.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.io.docker.engine import LABEL
from builder.io.wiring import Wiring
from tests.elsewhere.systems import imported
from tests.support import ROOT
from tests.support.containers import docker

CLIENT = ("python3", "/root/ortpacks.pyz")
_DRIVER = Path(__file__).with_name("cards.c")
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_WHERE = "/usr/lib/x86_64-linux-gnu"
"""Folder of the driver's libraries in a container with a GPU."""


@dataclass(frozen=True)
class Card:
    """A GPU, as its driver describes it."""

    name: str
    capability: str
    mib: int

    @property
    def in_c(self) -> str:
        major, minor = self.capability.split(".")
        return f'{{"{self.name}", {major}, {minor}, {self.mib}}}'


@dataclass(frozen=True)
class Computer:
    """A computer, which is a running container."""

    container: str

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program in the container, with the container's environment and ``env``."""
        told = [f"--env={name}={value}" for name, value in (env or {}).items()]
        words = ["docker", "exec", *told, self.container, *argv]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def sh(self, script: str) -> str:
        """Run a shell script, which must succeed, and return its stdout."""
        done = self.run("sh", "-euc", script)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@dataclass(frozen=True)
class Bought:
    """The GPUs and the driver of a computer, and the package that its user should get."""

    cards: Sequence[Card]
    driver: str
    cuda: int
    """CUDA version in the driver's form: 12090 is 12.9."""
    variant: str
    support: str = "native"
    """Expected support of the computer by the package: native or jit."""

    @property
    def version(self) -> str:
        """The package's version of ONNX Runtime: the assembled base's, but for modern (--mixed)."""
        project = Wiring(ROOT).project
        mixed = self.variant == "modern"
        return project.onnxruntime.version if mixed else project.bases["assembled"].ort_version


@dataclass(frozen=True)
class User:
    """A user of a computer with the release's client."""

    computer: Computer
    has: Bought

    def client(self, *words: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """Run a command of the client, which must exit with ``code``, and return its output."""
        done = self._ran(words, code, env)
        return done.stdout + done.stderr

    def ask(self, *words: str, env: Mapping[str, str] | None = None) -> dict[str, object]:
        """Run a command of the client, which must succeed, and return its JSON answer."""
        return json.loads(self._ran((*words, "--json"), 0, env).stdout)  # type: ignore[no-any-return]

    def _ran(
        self, words: Sequence[str], code: int, env: Mapping[str, str] | None
    ) -> subprocess.CompletedProcess[str]:
        done = self.computer.run(*CLIENT, *words, env=env)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def variant(self, *words: str, env: Mapping[str, str] | None = None) -> object:
        """Return the variant of the package in a command's answer."""
        package = self.ask(*words, env=env)["package"]
        assert isinstance(package, dict)
        return package["variant"]


@contextmanager
def image() -> Iterator[str]:
    """Make the image of the computers' system inside the block, and yield its name."""
    shop = Wiring(ROOT)
    tar = shop.rootfs(shop.reporter).tar("bookworm", ["python3", "zstd"])
    with imported(tar, "user") as name:
        yield name


@contextmanager
def computer(image: str, mounts: Mapping[str, Path]) -> Iterator[Computer]:
    """Start a new computer inside the block; ``mounts``, by path inside, are read-only."""
    volumes = [f"--volume={path.resolve()}:{place}:ro" for place, path in mounts.items()]
    start = ["run", "--detach", "--rm", "--network=host", f"--label={LABEL}=run", *volumes]
    container = docker(*start, image, "sleep", "infinity")
    try:
        yield Computer(container)
    finally:
        docker("rm", "--force", container)


def driver(cards: Sequence[Card], version: str, cuda: int, folder: Path) -> dict[str, Path]:
    """Compile a driver with these cards and return its mounts. ``cuda``: the version as in 12090."""
    library = folder / "driver.so"
    told = [
        f"-DCARDS={', '.join(card.in_c for card in cards)}",
        f'-DDRIVER="{version}"',
        f"-DCUDA={cuda}",
    ]
    compile_c(_DRIVER, library, "-shared", "-fPIC", *told)
    return {f"{_WHERE}/{name}": library for name in _LIBRARIES}


def compile_c(source: Path, target: Path, *flags: str) -> None:
    """Compile C with this machine's compiler; skip the test where there is none."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for what stands in the container for a driver and an application")
    subprocess.run([compiler, "-w", *flags, "-o", target, source], check=True)
