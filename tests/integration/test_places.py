"""Tests of a build where not all is as usual: a path with spaces and umlauts, a read-only HOME, no network.

They run ``./run`` on a copy of the project, with this machine's environment and cache. Root alone can have a
file system of its own to read from, and no network.
"""

import json
import os
from pathlib import Path

import pytest

from builder.io.wiring import Wiring
from tests.support import ROOT, ran
from tests.support.checkout import copy_to_run

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="unshare --mount and --net need root"),
]

BUILD = 'mount -t tmpfs -o ro none /mnt && HOME=/mnt exec ./run build --variant cpu --force --json "$@"'
"""A script that builds with a HOME that takes no file."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project's files in a folder whose name has spaces and letters beyond ASCII."""
    return copy_to_run(tmp_path_factory.mktemp("places") / "Größe und Öl")


def built(project: Path, *flags: str, without: str = "--mount") -> dict[str, str]:
    """Build the package for the CPU and return the sha256 of each archive by its name."""
    env = {**os.environ, "ORTPACKS_CACHE": str(Wiring(ROOT).cache), "LC_ALL": "C"}
    argv = ["unshare", "--mount", without, "sh", "-c", BUILD, "sh", *flags]
    done = ran(argv, cwd=project, env=env)
    assert done.returncode == 0, done.stderr
    found = {Path(one["path"]): one for one in json.loads(done.stdout)["packages"]}
    assert all(path.is_relative_to(project) and one["verified"] for path, one in found.items())
    return {path.name: one["sha256"] for path, one in found.items()}


@pytest.mark.thorough
def test_the_same_bytes_come_out_without_a_network(project: Path) -> None:
    first = built(project)
    assert {name.partition(".tar")[2] for name in first} == {".zst", ".gz"}
    assert built(project, "--offline", without="--net") == first
