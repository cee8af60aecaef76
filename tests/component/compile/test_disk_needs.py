"""Tests of the disk space that a build needs: sums computed by hand, and refusals before any download."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builder.compile.estimate import (
    DiskNeed,
    by_step,
    disk_lines,
    disk_needs,
    engine_needs,
    image_needs,
    require_disk_space,
    together,
    tool_needs,
)
from builder.config.build_plan import NOTHING_RENDERED, BuildPlan
from builder.config.inputs import Input, Lock, Pin
from builder.config.variants import SuiteSystem
from builder.contents.required_files import required_files
from builder.errors import DiskError
from builder.formats.package_names import Profile
from builder.io.docker.engine import EngineResource
from tests.support.factories import packages
from tests.support.fakes.ports import FakeRootfs, FakeStore
from tests.support.tables import table

GB = 1_000_000_000

TOOLS = EngineResource("image", "ortpacks/bare:assembled-0123456789ab", "x")


def locked(plan: BuildPlan) -> Lock:
    """Return a lock in which the plan's wheels have 2 GB in total."""
    files = {file.source for file in required_files(plan) if file.source}
    return Lock(
        pins={file.key: Pin(filename="f", size=2 * GB // len(files), sha256="0" * 64) for file in files}
    )


def steps(plan: BuildPlan, folder: Path) -> dict[str, float]:
    store = FakeStore(folder)
    found = disk_needs(plan, NOTHING_RENDERED, locked(plan), store, cache=folder, dist=folder / "dist")
    return {need.step: round(need.size / GB, 1) for need in by_step(found)}


def test_packages_and_their_proof_follow_from_the_wheels_they_are_made_of(tmp_path: Path) -> None:
    """A run of ``modern --mixed`` used wheels of 1.95 GB and made packages of 2.18 GB and 2.94 GB
    of other files."""
    assert steps(packages.official(), tmp_path) == {"inputs": 0, "unpacked": 0, "packages": 2.2, "proof": 3.1}
    compiled = {"inputs": 0, "unpacked": 0, "compiled": 0.3, "packages": 1.5, "proof": 3.1}
    assert steps(packages.plan(), tmp_path) == compiled


@pytest.mark.parametrize(("held", "asked", "expected"), table("compile/engine-needs.txt"))
def test_what_the_engine_has_is_not_asked_for_again(
    tmp_path: Path, held: str, asked: str, expected: str
) -> None:
    plan = packages.plan(profile=Profile.LEAN)
    wheel = Input.wheel("nvidia-cudnn-cu12==9.10.2.21")
    rendered = replace(NOTHING_RENDERED, contexts={"cudnn-lib": wheel}, toolchain_key="e09f9280")
    lock = Lock(pins={wheel.key: Pin(filename="f", size=GB, sha256="0" * 64)})
    trees = {f"ortpacks-{name}" for name in held.split()} - {"ortpacks-tools"}
    has = [EngineResource("cache", name, "x") for name in trees] + [TOOLS] * ("tools" in held)
    wishes: dict[str, Any] = dict(wish.split("=") for wish in asked.split())
    options = {"tools": "assembled", **wishes, "compiles": "compiles" not in wishes}
    found = engine_needs(plan, rendered, lock, has, tmp_path, **options)
    sizes = {name: float(size) for name, size in (need.split("=") for need in expected.split())}
    assert {need.step.replace(" ", "-"): need.size / GB for need in found} == pytest.approx(sizes, abs=0.06)


def test_wheels_and_their_inputs_take_room_where_a_build_makes_them(tmp_path: Path) -> None:
    plan = packages.plan()
    asked = replace(plan, project=replace(plan.project, bundle=replace(plan.project.bundle, wheels=True)))
    pins = {f"wheel:onnxruntime-gpu==1.21.0@cp3{one}-cp3{one}": GB // 4 for one in (10, 11, 12, 13)}
    others = {"wheel:onnxruntime-gpu==1.21.0@win-x64": GB, "wheel:onnxruntime-gpu==1.23.2@cp310-cp310": GB}
    pinned = {key: Pin(filename="f", size=size, sha256="0" * 64) for key, size in {**pins, **others}.items()}
    lock, store = Lock(pins={**locked(plan).pins, **pinned}), FakeStore(tmp_path)
    found = disk_needs(asked, NOTHING_RENDERED, lock, store, cache=tmp_path, dist=tmp_path)
    assert [need.size for need in found if need.step == "wheels"] == [2 * GB]


def test_file_systems_take_room_until_they_are_made(tmp_path: Path) -> None:
    system, rootfs = SuiteSystem(suite="bookworm", packages=("ccache", "g++-12")), FakeRootfs(tmp_path)
    base = replace(packages.plan().on, system=system)

    def sizes() -> list[int]:
        found = tool_needs(base, FakeStore(tmp_path), rootfs, tmp_path)
        return [need.size for need in found if need.step == "file systems"]

    assert sizes() == [964_000_000, 340_000_000]
    rootfs.tar(system.suite, system.packages)
    assert sizes() == [340_000_000]
    rootfs.tar(system.suite, ())
    assert sizes() == []


def test_an_image_takes_its_tree_and_layers_twice(tmp_path: Path) -> None:
    plan, folders = packages.official(), {"dist": tmp_path / "dist", "engine": tmp_path / "engine"}
    plain, served = (
        {need.folder: need.size for need in image_needs(plan, locked(plan), service=service, **folders)}
        for service in (False, True)
    )
    assert plain[tmp_path / "dist"] == plain[tmp_path / "engine"] == pytest.approx(2 * 3.21 * GB, rel=1e-3)
    assert served[tmp_path / "engine"] - plain[tmp_path / "engine"] == 230_000_000


def test_a_disk_that_is_too_small_is_refused_with_what_to_free(tmp_path: Path) -> None:
    needed = [
        DiskNeed(step="inputs", size=2 * GB, folder=tmp_path / "not yet"),
        DiskNeed(step="proof", size=10**18, folder=tmp_path),
    ]
    (line,) = disk_lines(needed)
    assert line.startswith("room     1,000,000,002.0 GB (inputs 2.0, proof 1,000,000,000.0) of ")
    with pytest.raises(
        DiskError, match=r"legacy does not fit: about 1,000,000,002\.0 GB \(inputs 2\.0, proof "
    ):
        require_disk_space("legacy does not fit", needed)


def test_each_file_system_is_held_to_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is on one file system; dist and the engine's data are on another, mounted at two places."""
    file_systems = {"cache": 1, "dist": 2, "engine": 2}
    real = Path.stat

    def stat(path: Path) -> SimpleNamespace:
        found = real(path)
        return SimpleNamespace(st_mode=found.st_mode, st_dev=file_systems.get(path.name, found.st_dev))

    sizes = {"cache": 8, "dist": 6, "engine": 2}
    needed = [DiskNeed(step=name, size=size * GB, folder=tmp_path / name) for name, size in sizes.items()]
    for name in file_systems:
        (tmp_path / name).mkdir()
    free = {"cache": 8, "dist": 7}
    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path.name] * GB))
    with pytest.raises(DiskError, match=r"8\.0 GB \(dist 6\.0, engine 2\.0\) are needed in \S+/dist, 7\.0"):
        require_disk_space("legacy does not fit", needed)
    free["dist"] = 8
    require_disk_space("legacy does not fit", needed)
    assert len([*disk_lines(needed)]) == 2


def test_inputs_of_two_plans_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both plans need the same wheels of 2 GB, none of which is in the cache; files and trees take space."""
    plan = packages.official()
    lock, store = locked(plan), FakeStore(tmp_path)
    store.absent = lambda item: (lock.pins[item.key].size,) * 2  # type: ignore[method-assign]
    found = [*disk_needs(plan, NOTHING_RENDERED, lock, store, cache=tmp_path, dist=tmp_path)]
    disk = SimpleNamespace(free=16 * GB)  # 2.0 + 3.1 once, 2.2 + 3.1 twice
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    require_disk_space("all do not fit", together({"modern": found, "another": found}))
    disk.free = 15 * GB
    require_disk_space("modern does not fit", found)
    with pytest.raises(DiskError, match=r"15\.\d GB \(modern 10\.\d, another 5\.\d\) .* 15\.0 GB are free"):
        require_disk_space("all do not fit", together({"modern": found, "another": found}))
