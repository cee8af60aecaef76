"""Tests of the disk space that a build needs: sums computed by hand, and refusals before any download."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((), {"check tools": 1.5, "compile": 3.6}),
        ((TOOLS,), {"compile": 3.6}),
        ((TOOLS, EngineResource("cache", "ortpacks-legacy-lean-wheel-e09f9280", "x")), {}),
        ((TOOLS, EngineResource("cache", "ortpacks-modern-lean-wheel-e09f9280", "x")), {"compile": 3.6}),
        ((TOOLS, EngineResource("cache", "ortpacks-legacy-lean-wheel-00000000", "x")), {"compile": 3.6}),
        ((TOOLS, EngineResource("cache", "ortpacks-legacy-lean-wheel-e09f928050-52", "x")), {"compile": 3.6}),
    ],
    ids=["nothing", "tools", "all", "another-variant", "another-toolchain", "compiled-ahead"],
)
def test_what_the_engine_has_is_not_asked_for_again(
    tmp_path: Path, held: tuple[EngineResource, ...], expected: dict[str, float]
) -> None:
    plan = packages.plan(profile=Profile.LEAN)
    wheel = Input.wheel("nvidia-cudnn-cu12==9.10.2.21")
    rendered = replace(NOTHING_RENDERED, contexts={"cudnn-lib": wheel}, toolchain_key="e09f9280")
    lock = Lock(pins={wheel.key: Pin(filename="f", size=GB, sha256="0" * 64)})
    found = engine_needs(plan, rendered, lock, held, tmp_path, tools="assembled", compiles=True)
    assert {need.step: round(need.size / GB, 2) for need in found} == pytest.approx(expected, abs=0.06)


def test_what_was_compiled_ahead_is_in_a_tree_of_its_architectures(tmp_path: Path) -> None:
    rendered = replace(NOTHING_RENDERED, toolchain_key="e09f9280")
    plan = packages.plan(profile=Profile.LEAN)
    held = [EngineResource("cache", "ortpacks-legacy-lean-wheel-e09f928050-52", "x")]
    for ahead, steps in (("50-52", []), ("50", ["compile"]), ("", ["compile"])):
        found = engine_needs(
            plan, rendered, Lock(pins={}), held, tmp_path, tools=None, compiles=True, ahead=ahead
        )
        assert [need.step for need in found] == steps


def test_what_others_compile_takes_no_room_here(tmp_path: Path) -> None:
    plan = packages.plan(profile=Profile.LEAN)
    found = engine_needs(
        plan, NOTHING_RENDERED, Lock(pins={}), (), tmp_path, tools="assembled", compiles=False
    )
    assert [need.step for need in found] == ["check tools"]


def test_wheels_and_their_inputs_take_room_where_a_build_makes_them(tmp_path: Path) -> None:
    plan = packages.plan()
    asked = replace(plan, project=replace(plan.project, bundle=replace(plan.project.bundle, wheels=True)))
    pins = {f"wheel:onnxruntime-gpu==1.21.0@cp3{one}-cp3{one}": GB // 4 for one in (10, 11, 12, 13)}
    others = {"wheel:onnxruntime-gpu==1.21.0@win-x64": GB, "wheel:onnxruntime-gpu==1.23.2@cp310-cp310": GB}
    pinned = {key: Pin(filename="f", size=size, sha256="0" * 64) for key, size in {**pins, **others}.items()}
    lock, store = Lock(pins={**locked(plan).pins, **pinned}), FakeStore(tmp_path)
    found = {
        need.step: need.size
        for need in disk_needs(asked, NOTHING_RENDERED, lock, store, cache=tmp_path, dist=tmp_path)
    }
    assert found["wheels"] == 2 * GB
    assert "wheels" not in steps(plan, tmp_path)


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
    ) as caught:
        require_disk_space("legacy does not fit", needed)
    assert "`./run clean --dry-run --cache --inputs`" in str(caught.value)
    assert caught.value.exit_code == 11


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the free space of every disk, in GB."""

    def free(size: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size * GB))

    return free


def variant(folder: Path, *own: tuple[str, int], inputs: int = 0) -> list[DiskNeed]:
    """Return a variant's needs in GB; ``inputs`` is the size of one wheel that all variants share."""
    shared = DiskNeed(step="inputs", size=inputs * GB, folder=folder, thing="wheel:cudnn")
    return [shared, *(DiskNeed(step=step, size=size * GB, folder=folder) for step, size in own)]


def test_variants_that_each_fit_are_refused_where_they_do_not_fit_together(
    tmp_path: Path, free: Callable[[int], None]
) -> None:
    needed = {
        name: variant(tmp_path, ("packages", 2), ("proof", 3), inputs=4)
        for name in ("legacy", "modern", "latest")
    }
    free(19)
    for name, needs_of_one in needed.items():
        require_disk_space(name, needs_of_one)
    require_disk_space("all do not fit", together(needed))  # the 4 GB of inputs are downloaded once
    free(18)
    with pytest.raises(DiskError) as caught:
        require_disk_space("all do not fit", together(needed))
    said = str(caught.value)
    assert "all do not fit: about 19.0 GB (legacy 9.0, modern 5.0" in said
    assert "latest 5.0) are needed in " in said
    assert "18.0 GB are free." in said
    assert caught.value.exit_code == 11


def test_what_variants_have_in_common_is_counted_by_step(tmp_path: Path, free: Callable[[int], None]) -> None:
    """A wheel takes space as a file, and again where it is unpacked."""
    wheel = [
        DiskNeed(step=step, size=2 * GB, folder=tmp_path, thing="wheel:cudnn")
        for step in ("inputs", "unpacked")
    ]
    free(4)
    require_disk_space("all do not fit", together({"legacy": wheel, "modern": wheel}))
    free(3)
    with pytest.raises(DiskError, match=r"4\.0 GB \(legacy 4\.0\) are needed"):
        require_disk_space("all do not fit", together({"legacy": wheel, "modern": wheel}))


def test_each_file_system_is_held_to_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is on one file system; dist and the engine's data are on another, mounted at two places."""
    file_systems = {"cache": 1, "dist": 2, "engine": 2}
    real = Path.stat

    def stat(path: Path) -> SimpleNamespace:
        found = real(path)
        return SimpleNamespace(st_mode=found.st_mode, st_dev=file_systems.get(path.name, found.st_dev))

    needed = {
        name: [
            DiskNeed(step="unpacked", size=4 * GB, folder=tmp_path / "cache"),
            DiskNeed(step="packages", size=size * GB, folder=tmp_path / "dist"),
            DiskNeed(step="compile", size=1 * GB, folder=tmp_path / "engine"),
        ]
        for name, size in (("legacy", 2), ("modern", 4))
    }
    for name in file_systems:
        (tmp_path / name).mkdir()
    free = {"cache": 8, "dist": 7}
    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path.name] * GB))
    with pytest.raises(DiskError, match=r"8\.0 GB \(legacy 3\.0, modern 5\.0\) are needed in \S+/dist, 7\.0"):
        require_disk_space("all do not fit", together(needed))
    free["dist"] = 8
    require_disk_space("all do not fit", together(needed))
    assert len([*disk_lines(together(needed))]) == 2


def test_inputs_of_two_plans_are_counted_once(tmp_path: Path, free: Callable[[int], None]) -> None:
    """Both plans need the same wheels of 2 GB, none of which is in the cache."""
    plan = packages.official()
    lock = locked(plan)

    class Empty(FakeStore):
        def absent(self, item: Input) -> tuple[int, int]:
            size = lock.pins[item.key].size
            return size, size

    found = [*disk_needs(plan, NOTHING_RENDERED, lock, Empty(tmp_path), cache=tmp_path, dist=tmp_path)]
    alone = sum(need.size for need in found)
    assert alone / GB == pytest.approx(2 + 3.1 + 2.2 + 3.1, abs=0.1)
    free(16)  # 2.0 + 3.1 once, 2.2 + 3.1 twice
    require_disk_space("all do not fit", together({"modern": found, "another": found}))
    free(15)
    with pytest.raises(DiskError, match=r"15\.\d GB \(modern 10\.\d, another 5\.\d\)"):
        require_disk_space("all do not fit", together({"modern": found, "another": found}))
