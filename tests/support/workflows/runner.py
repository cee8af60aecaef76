"""A hosted runner: a container of Debian 12 with a runner's programs, on this machine's Docker engine.

It is this machine's user with ``sudo``, has this machine's network, and sees a folder and the cache of inputs
at their own paths. It can change no other file of this machine.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from builder.io.docker.engine import LABEL
from builder.io.wiring import Wiring
from tests.elsewhere.systems import imported
from tests.support import ROOT
from tests.support.checkout import copy_checkout
from tests.support.containers import docker

_PROGRAMS = ("ca-certificates", "curl", "git", "jq", "python3", "python3-venv", "sudo", "xz-utils", "zstd")
"""Debian packages of what the workflows use of a hosted runner's programs, beside Docker's client."""

_SOCKET = Path("/var/run/docker.sock")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

_START = """\
getent passwd {uid} >/dev/null || echo 'runner:x:{uid}:{gid}::{home}:/bin/bash' >>/etc/passwd
echo "$(id -nu {uid}) ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/runner
for file in /etc/subuid /etc/subgid; do echo "$(id -nu {uid}):100000:65536" >>$file; done
chown {uid}:{gid} {home}
echo 'deb {mirror} bookworm main' >/etc/apt/sources.list
"""


@dataclass(frozen=True)
class Runner:
    """A running container."""

    container: str

    def run(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in ``folder`` with the container's environment and ``env``.

        Its messages and its output are one text, in ``stdout``.
        """
        told = [f"--env={name}={value}" for name, value in env.items()]
        return subprocess.run(
            ["docker", "exec", *told, f"--workdir={folder}", self.container, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


class Runners:
    """Hosted runners that share ``folder``: each one that is started is new."""

    def __init__(self, image: str, folder: Path) -> None:
        self._image, self._folder, self._home = image, folder, Path.home()
        self._mounts = [
            *(f"--volume={path}:{path}" for path in (folder, _SOCKET, Wiring(ROOT).cache)),
            *(f"--volume={path}:{inside}:ro" for inside, path in self._programs().items()),
        ]

    def _programs(self) -> dict[Path, Path]:
        """Return the mounts of Docker's client, certificates and this Python's files, by path inside."""
        found = shutil.which("docker")
        plugins = json.loads(docker("info", "--format", "{{json .ClientInfo.Plugins}}"))
        (buildx,) = (Path(one["Path"]) for one in plugins if one["Name"] == "buildx")
        assert found is not None
        python = () if sys.base_prefix == "/usr" else (Path(sys.base_prefix),)
        own = {path: path for path in (Path(sys.prefix).resolve(), *python, _CERTIFICATES) if path.exists()}
        plugin = Path("/usr/libexec/docker/cli-plugins/docker-buildx")
        return {Path("/usr/bin/docker"): Path(found).resolve(), plugin: buildx.resolve(), **own}

    @contextmanager
    def started(self) -> Iterator[Runner]:
        """Start a runner inside the block."""
        uid, gid, group = os.getuid(), os.getgid(), _SOCKET.stat().st_gid
        env = {"HOME": self._home, "PIP_CERT": _CERTIFICATES} | {
            name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")
        }
        container = docker(
            *("run", "--detach", "--rm", "--init", "--privileged", "--network=host", f"--label={LABEL}=run"),
            *(f"--user={uid}:{gid}", f"--group-add={group}", *self._mounts),
            *(f"--env={name}={value}" for name, value in env.items()),
            *(self._image, "sleep", "infinity"),
        )
        try:
            mirror = Wiring(ROOT).mirrors.find()[0]
            words = {"uid": uid, "gid": gid, "home": shlex.quote(str(self._home)), "mirror": mirror}
            docker("exec", "--user=0", container, "sh", "-euc", _START.format(**words))
            yield Runner(container)
        finally:
            docker("rm", "--force", container)

    @cached_property
    def environment(self) -> Path:
        """A ``.venv`` that works in a runner: this process's own, else one that ``./run`` makes there."""
        own = Path(sys.prefix).resolve()
        with self.started() as runner:
            if runner.run([str(own / "bin/python"), "-c", ""], self._folder, {}).returncode == 0:
                return own
            first = copy_checkout(self._folder / "first")
            done = runner.run(["./run", "--list"], first, {})
            assert done.returncode == 0, done.stdout
            return first / ".venv"


@contextmanager
def runners(folder: Path) -> Iterator[Runners]:
    """Make the runners' image inside the block, and yield its runners, which share ``folder``."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, which makes the runners' system: apt-get install mmdebstrap")
    wiring = Wiring(ROOT)
    with imported(wiring.rootfs(wiring.reporter).tar("bookworm", _PROGRAMS), "runner") as image:
        yield Runners(image, folder)
