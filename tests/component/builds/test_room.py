"""The room that a build takes: sums by hand, and a refusal before anything is fetched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.builds.room import Room, engine_rooms, require_room, room_lines, rooms
from builder.errors import DiskError
from builder.formats.package_names import Profile
from builder.package.contents import wanted
from builder.ports import Held
from builder.project.build_plan import NOTHING_RENDERED, BuildPlan
from builder.project.inputs import Input, Lock, Pin
from tests.support.factories import packages
from tests.support.fakes.ports import FakeStore

GB = 1_000_000_000

TOOLS = Held("image", "ortpacks/cuobjdump:assembled-0123456789ab", "x")


def locked(plan: BuildPlan) -> Lock:
    """Wheels that have 2 GB together."""
    files = {file.source for file in wanted(plan) if file.source}
    return Lock(
        pins={file.key: Pin(filename="f", size=2 * GB // len(files), sha256="0" * 64) for file in files}
    )


def steps(plan: BuildPlan, folder: Path) -> dict[str, float]:
    store = FakeStore(folder)
    found = rooms(plan, NOTHING_RENDERED, locked(plan), store, cache=folder, dist=folder / "dist")
    return {room.step: round(room.size / GB, 1) for room in found}


def test_packages_and_their_proof_follow_from_the_wheels_they_are_made_of(tmp_path: Path) -> None:
    """Measured with ``modern --mixed``: 2.18 GB of packages, 2.94 GB beside them, of wheels of 1.95 GB."""
    assert steps(packages.official(), tmp_path) == {"inputs": 0, "unpacked": 0, "packages": 2.2, "proof": 3.1}
    compiled = {"inputs": 0, "unpacked": 0, "compiled": 0.3, "packages": 1.5, "proof": 3.1}
    assert steps(packages.plan(), tmp_path) == compiled


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((), {"check tools": 1.5, "compile": 3.6}),
        ((TOOLS,), {"compile": 3.6}),
        ((TOOLS, Held("cache", "ortpacks-legacy-lean-wheel-e09f9280", "x")), {}),
        ((TOOLS, Held("cache", "ortpacks-modern-lean-wheel-e09f9280", "x")), {"compile": 3.6}),
    ],
    ids=["nothing", "tools", "all", "another-variant"],
)
def test_what_the_engine_has_is_not_asked_for_again(
    tmp_path: Path, held: tuple[Held, ...], expected: dict[str, float]
) -> None:
    plan = packages.plan(profile=Profile.LEAN)
    wheel = Input.wheel("nvidia-cudnn-cu12==9.10.2.21")
    rendered = replace(NOTHING_RENDERED, contexts={"cudnn-lib": wheel})
    lock = Lock(pins={wheel.key: Pin(filename="f", size=GB, sha256="0" * 64)})
    found = engine_rooms(plan, rendered, lock, held, tmp_path, compiles=True)
    assert {room.step: round(room.size / GB, 2) for room in found} == pytest.approx(expected, abs=0.06)


def test_what_others_compile_takes_no_room_here(tmp_path: Path) -> None:
    plan = packages.plan(profile=Profile.LEAN)
    found = engine_rooms(plan, NOTHING_RENDERED, Lock(pins={}), (), tmp_path, compiles=False)
    assert [room.step for room in found] == ["check tools"]


def test_a_disk_that_is_too_small_is_refused_with_what_to_free(tmp_path: Path) -> None:
    needed = [
        Room(step="inputs", size=2 * GB, folder=tmp_path / "not yet"),
        Room(step="proof", size=10**18, folder=tmp_path),
    ]
    (line,) = room_lines(needed)
    assert line.startswith("room     1,000,000,002.0 GB (inputs 2.0, proof 1,000,000,000.0) of ")
    with pytest.raises(
        DiskError, match=r"legacy does not fit: about 1,000,000,002\.0 GB are needed"
    ) as caught:
        require_room("legacy", needed)
    assert "`./run clean --dry-run --cache --inputs`" in str(caught.value)
    assert caught.value.exit_code == 11


def test_a_disk_with_room_is_taken(tmp_path: Path) -> None:
    require_room("cpu", [Room(step="inputs", size=1, folder=tmp_path)])
