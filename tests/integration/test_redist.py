"""Test of base ``redist`` with servers here in place of NVIDIA's, GitHub's and GitLab's.

From ``lock --missing`` to the first libraries: archives of NVIDIA's layout make nvcc, and ORT's CMake
downloads nothing. docs/builds.md has a whole build.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.app.locking import check_lock, lock_missing
from builder.builds.wiring import Wiring
from builder.ports import CompileCaches
from builder.project.inputs import InputKind
from tests.doubles.loopback import static_server
from tests.integration.machines import Machine, Watching, record
from tests.support import ROOT
from tests.support.factories.project_copy import Place, copied_to
from tests.support.factories.redist import RELEASE, Hosts, hosts
from tests.support.fakes.ports import FakeReporter

pytestmark = pytest.mark.integration

PATCH = "patches/ort-1.21-open-the-driver-late.patch"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Yield the hosts, to which the environment leads, with a cache that has this machine's inputs."""
    real = Wiring(ROOT)
    found = hosts(real, tmp_path / "hosts")
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("store", "unpacked", "rootfs"):
        (cache / name).symlink_to(real.cache / name)
    with static_server(found.mirror) as url:
        for name, value in {**found.environment(url), "ORTPACKS_CACHE": str(cache)}.items():
            monkeypatch.setenv(name, value)
        yield found


def project(folder: Path) -> Place:
    """Return a copy of the project whose base ``redist`` has the versions that the hosts have."""
    folder.mkdir()
    place = copied_to(folder)
    place.edit(
        "onnxruntime: 1.23.2\n    rootfs:\n      suite", "onnxruntime: 1.21.0\n    rootfs:\n      suite"
    )
    place.edit("redist: 12.9.1", f"redist: {RELEASE}")
    last = "onnxruntime@v1.23.2}\n    cmake: cmake==3.31.6\n\nvariants:"
    place.edit(last, last.replace("1.23.2", "1.21.0").replace("\n\n", f"\n    patches: [{PATCH}]\n\n"))
    return place


def test_what_nvidia_and_github_serve_compiles(
    made: Hosts, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = project(tmp_path / "project")
    reporter = FakeReporter()
    shop = Wiring(place.folder, dist=tmp_path / "dist", reporter=reporter)
    lock_missing(shop)
    locked = Wiring(place.folder, dist=tmp_path / "dist", reporter=reporter)
    check_lock(locked, "redist")
    pins = locked.lock.pins
    assert sum(key.startswith(f"{InputKind.REDIST.value}:{RELEASE}/") for key in pins) == 3
    machine = Machine(tmp_path, place.folder, "redist", new=True)
    request.addfinalizer(machine.forget)
    artifact = machine.compile(CompileCaches(), Watching())
    assert record(artifact).units >= 20
    log = (tmp_path / machine.name / "legacy/build.log").read_text(encoding="utf-8")
    assert "The CUDA compiler identification is NVIDIA 12.4.131" in log
    assert "Check for working CUDA compiler: /usr/local/cuda/bin/nvcc" in log
    assert "Configuring done" in log
