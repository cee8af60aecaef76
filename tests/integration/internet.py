"""A machine on the double of the internet: an engine, the variables of its user, and an empty clone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.io.wiring import Wiring
from tests.doubles.internet.sites import Sites, proxy
from tests.doubles.internet.world import GATEWAY, REGISTRY_PORT, World
from tests.integration.faults_world import Engine, dying_engine
from tests.support import ROOT, ran

_NETWORK = (
    f"--bip={GATEWAY}/24",
    f"--dns={GATEWAY}",
    f"--registry-mirror=http://127.0.0.1:{REGISTRY_PORT}",
)


def engine_on(world: World) -> AbstractContextManager[Engine]:
    """Return what runs an engine inside a block, whose only network is ``world``."""
    return dying_engine(None, _NETWORK, (sys.executable, "-m", "tests.doubles.internet", world.folder))


@dataclass(frozen=True)
class Clone:
    """A clone of this repository, whose verbs reach a double of the internet alone, PyPI and Debian."""

    folder: Path
    env: Mapping[str, str]
    sites: Sites

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Call ``./run`` as a user does, for at most 50 minutes. ``more`` are further variables."""
        argv, env = ["./run", *words], {**self.env, **more}
        return ran(argv, cwd=self.folder, env=env, timeout=3000)


@contextmanager
def cloned(world: World, engine: str, folder: Path, upstreams: Mapping[str, str]) -> Iterator[Clone]:
    """Clone this repository into ``folder``, and run the proxy that leads to ``world`` inside the block.

    ``engine`` is the endpoint of the engine, and ``upstreams`` are those of ``Sites``. The cache has what
    PyPI and Debian gave to this machine before, and the shared compile cache what was compiled on it.
    """
    clone, cache, real = folder / "ortpacks", folder / "cache", Wiring(ROOT).cache
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    changed = ("git", "ls-files", "-z", "--modified", "--others", "--exclude-standard")
    told = ran(changed, cwd=ROOT, check=True).stdout
    for name in filter(None, told.split("\0")):
        (clone / name).unlink(missing_ok=True)
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    (clone / ".venv").symlink_to((ROOT / ".venv").resolve())  # else ./run makes one, in half a minute
    cache.mkdir()
    compiled = real / "test-compiled"
    compiled.mkdir(parents=True, exist_ok=True)
    for name in ("store", "unpacked", "rootfs", "made", "relocated"):
        (real / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(real / name)
    sites = world.sites(upstreams)
    with proxy(sites) as url:
        ours = {
            "DOCKER_HOST": engine,
            "ORTPACKS_CACHE": str(cache),
            "NO_PROXY": "127.0.0.1",
            "ORTPACKS_COMPILE_CACHE": str(compiled),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_STRANGE)}
        yield Clone(clone, {**kept, **world.environment(url), **ours}, sites)


_STRANGE = ("ORTPACKS_", "GITHUB_", "DOCKER_", "BUILDX_")
"""Beginnings of the names of variables that would lead elsewhere."""
