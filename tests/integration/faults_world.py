"""Surroundings of a build under test: an engine that a test can kill, and a disk that can be too small."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.faults_run import end_session
from tests.support import ROOT
from tests.support.checkout import copy_to_run

_MEGABYTE = 1 << 20
_START_SECONDS = 30


@dataclass(frozen=True)
class Engine:
    """A dockerd of a single test."""

    host: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Send SIGKILL to dockerd and its containerd."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True)
class Disk:
    """A file system whose size a test can change."""

    folder: Path

    def resize(self, *, megabytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", self.folder], check=True)

    def used_megabytes(self) -> int:
        return shutil.disk_usage(self.folder).used // _MEGABYTE


def need_root(why: str) -> None:
    if os.geteuid() != 0:
        pytest.skip(f"needs root: {why}")


def networks() -> list[str]:
    """Return the machine's network devices, without those of containers and Docker networks."""
    names = sorted(device.name for device in Path("/sys/class/net").iterdir())
    return [name for name in names if not name.startswith(("veth", "br-"))]


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[Disk]:
    """Mount a tmpfs of this size inside the block; its files take memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


_NO_NETWORK = ("--bridge=none",)


@contextmanager
def dying_engine(
    data: Path | None = None, network: Sequence[str] = _NO_NETWORK, before: Sequence[str | Path] = ()
) -> Iterator[Engine]:
    """Run a second dockerd inside the block, with a socket, data and containerd of its own.

    Its data are in the folder ``data``, or in a temporary folder. It has namespaces of its own too, since a
    dockerd with ``--bridge=none`` deletes any ``docker0`` that it sees. ``network`` are its flags of the
    network, and the command ``before`` starts it. The test is skipped where no second engine can run.
    """
    need_root("starts an engine of its own")
    if not (shutil.which("dockerd") and shutil.which("unshare")):
        pytest.skip("needs dockerd and unshare on PATH: starts an engine of its own")
    folder = Path(tempfile.mkdtemp(prefix="engine-"))  # short: a socket's path has at most 107 bytes
    host = f"unix://{folder}/docker.sock"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *before,
                "dockerd",
                f"--host={host}",
                f"--data-root={data or folder / 'data'}",
                f"--exec-root={folder}/exec",
                f"--pidfile={folder}/pid",
                *network,
                *("--iptables=false", "--ip6tables=false", "--ip-masq=false", "--ip-forward=false"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
        )
    try:
        _await(host, process, folder / "log")
        yield Engine(host, process)
    finally:
        end_session(process.pid)
        process.wait()
        shutil.rmtree(folder)


def _await(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while subprocess.run(["docker", "--host", host, "version"], capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.skip(f"a second engine does not start here: {log.read_text()[-300:]}")
        time.sleep(0.2)


def copy_for_thin_packages(target: Path) -> None:
    """Copy the project; its builds make thin packages only, and so pack 0.4 GB where it would be 2.9 GB."""
    copy_to_run(target)
    replace(target / "variants.yaml", "layouts: [full, thin]", "layouts: [thin]")


def copy_for_compiling(target: Path, tree: str) -> None:
    """Copy the project, and reduce ``legacy`` to one architecture and a Ninja tree of its own.

    ``tree``: name of the tree, which differs for each checkout, as two checkouts may be tested at once.
    """
    copy_to_run(target)
    replace(target / "variants.yaml", "sm: [50, 52, 60, 61, 70]", "sm: [60]")
    replace(target / "variants.yaml", "generations: [Maxwell, Pascal, Volta]", "generations: [Pascal]")
    replace(target / "templates/variant.Dockerfile.j2", "type=cache,id={{ tree }}", f"type=cache,id={tree}")


NO_OBJECTS = "{ find /build -name '*.o' -delete; rm -rf /build/.ninja_* /build/*.log /build/record.json; }"
"""Shell command that empties a Ninja tree, except for what CMake found out, which takes 12 CPU seconds."""


def replace(path: Path, old: str, new: str) -> None:
    """Replace a text that must occur once in a file."""
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} in {path}"
    path.write_text(text.replace(old, new))
