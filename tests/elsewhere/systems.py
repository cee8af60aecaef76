"""Other Linux systems, reduced to the C and C++ libraries that the loader needs.

mmdebstrap unpacks Debian's packages from the mirror of this machine's apt, without configuring them.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.io.docker.engine import LABEL
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.containers import docker

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr"
_BARE = ("libc6", "libstdc++6", "zlib1g")
"""Debian packages of every system. NVIDIA's libraries need zlib, which dpkg and rpm need too."""


@dataclass(frozen=True)
class System:
    """A Debian suite with further packages."""

    name: str
    suite: str
    more: Sequence[str] = ()


DEBIAN_11 = System("debian-11", "bullseye", more=("libc6-dev",))  # libc6-dev: to link programs for it
DEBIAN_12 = System("debian-12", "bookworm", more=("bash", "libc-bin"))  # bash and libc-bin: for ldd
DEBIAN_13 = System("debian-13", "trixie")


def tar(system: System) -> Path:
    """Return the tar of a system's file system, which the first call writes to the cache."""
    digest = hashlib.sha256(repr((system, _BARE)).encode()).hexdigest()[:16]
    path = Wiring(ROOT).cache / "elsewhere" / f"{system.name}-{digest}.tar"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part-{os.getpid()}")
        try:
            _make(system, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    return path


@contextmanager
def imported(file_system: Path, name: str) -> Iterator[str]:
    """Import a file system's tar as an image inside the block, and yield the image's name."""
    tag = f"ortpacks/elsewhere-{os.getpid()}:{name}"
    docker("import", "--change", f"LABEL {LABEL}=elsewhere", file_system, tag)
    try:
        yield tag
    finally:
        docker("image", "rm", tag)


def run(
    image: str,
    argv: Sequence[str],
    *,
    mounts: Mapping[str, Path],
    env: Mapping[str, str] | None = None,
    writable: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program in a container without a network.

    ``mounts``: paths of this machine by path in the container. All but the ``writable`` ones are read-only.
    """
    where = [
        f"--volume={path.resolve()}:{place}{'' if place in writable else ':ro'}"
        for place, path in mounts.items()
    ]
    told = [f"--env={name}={value}" for name, value in (env or {}).items()]
    user = f"--user={os.getuid()}:{os.getgid()}"
    start = ["docker", "run", "--rm", "--network=none", f"--label={LABEL}=run", user, *where, *told]
    return subprocess.run(
        [*start, f"--entrypoint={argv[0]}", image, *argv[1:]], capture_output=True, text=True, check=False
    )


def _make(system: System, part: Path) -> None:
    mirror = Wiring(ROOT).mirrors.find()[0]
    include = ",".join((*_BARE, *system.more))
    argv = [
        *("setsid", "--wait", "mmdebstrap"),
        *(f"--mode={'root' if os.geteuid() == 0 else 'unshare'}", "--variant=extract", "--format=tar"),
        *(f"--hook-dir={_HOOKS}", f"--include={include}"),
        *([f"--keyring={_KEYRING}"] if _KEYRING.is_file() else []),
        *(system.suite, str(part), mirror),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{system.name}: {done.stderr[-2000:]}"
