"""Tests of whether a package is up to date: its key covers all that makes it, and its bytes are the same."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.compile.artifact import built_key, package_sources, read_built, write_built
from builder.config.inputs import Lock, Pin
from builder.config.variants import Preset
from builder.formats.package_names import Host, Profile
from builder.io.archive.client_zipapp import imported_modules
from tests.support import ROOT
from tests.support.factories import packages
from tests.support.factories.project_copy import copied_to

LOCK = Lock(pins={"wheel:cmake==3.31.6": Pin(sha256="0" * 64), "image:ubuntu:22.04": Pin()})

KEY = "k" * 64

NAME = "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst"


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    files = [tmp_path / name for name in ("render.py", "variant.Dockerfile.j2")]
    for file in files:
        file.write_text(f"# {file.name}\nbody\n")
    return files


PLAN = packages.plan()


@pytest.mark.parametrize(
    "change",
    [
        {"variant": replace(PLAN.variant, sm=PLAN.variant.sm[:-1])},
        {"base": "nvidia"},
        {"profile": Profile.FULL},
        {"host": Host.SOURCE},
        {"ort_version": "1.23.2"},
        {"project": replace(PLAN.project, bundle=replace(PLAN.project.bundle, preset=Preset.SMALL))},
        {"project": replace(PLAN.project, models=())},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_key_knows_the_plan(sources: list[Path], change: dict[str, Any]) -> None:
    assert built_key(replace(PLAN, **change), LOCK, sources) != built_key(PLAN, LOCK, sources)


@pytest.mark.parametrize("pin", ["wheel:cmake==3.31.6", "image:ubuntu:22.04", "wheel:new==1"])
def test_the_key_knows_the_pins(sources: list[Path], pin: str) -> None:
    pins, plan = {**LOCK.pins, pin: Pin(sha256="1" * 64)}, packages.plan()
    fewer = {key: kept for key, kept in pins.items() if key != pin}
    keys = {built_key(plan, Lock(pins=some), sources) for some in (LOCK.pins, pins, fewer)}
    assert len(keys) == 3 - (pin not in LOCK.pins)


def test_the_key_sees_text_that_moves_to_the_next_file_and_a_new_name(sources: list[Path]) -> None:
    before = built_key(packages.plan(), LOCK, sources)
    first, second = sources
    fewer = built_key(packages.plan(), LOCK, sources[:1])
    first.write_text("# render.py\n")
    second.write_text("body\n# variant.Dockerfile.j2\nbody\n")
    moved = built_key(packages.plan(), LOCK, sources)
    renamed = built_key(packages.plan(), LOCK, [first.rename(first.with_name("plan.py")), second])
    assert len({before, fewer, moved, renamed}) == 4


def test_the_key_is_the_same_in_any_order_and_for_any_words_of_a_registry(sources: list[Path]) -> None:
    pins, later = Lock(pins=dict(sorted(LOCK.pins.items()))), packages.plan(base_reason="no such host")
    assert built_key(packages.plan(), LOCK, sources) == built_key(later, pins, sources[::-1])


CHANGED = (
    ("builder/publish/notes.py", "# changed", False),
    ("builder/package/bundle.py", "def later():\n    from builder.publish import notes", True),
    ("builder/publish/notes.py", "# changed again", True),
    ("templates/variant.Dockerfile.j2", "# changed", True),
)
"""Files that get another line, the line, and whether packages are made anew then."""


def test_the_files_that_make_or_prove_a_package_are_in_its_key_and_no_others() -> None:
    named = {file.relative_to(ROOT).as_posix() for file in package_sources(ROOT, PLAN.project)}
    assert {
        "builder/prove/virtualcard/runtime.c",
        "builder/farm/drive.py",
        "builder/io/docker/cuobjdump_container.sh",
        "templates/snapshot.sh.j2",
    } < named
    assert {"LICENSE", "requirements.lock"} < named
    assert named.isdisjoint({"builder/farm/costs.tsv", "templates/release-notes.md.j2"})


def test_a_package_is_made_anew_for_another_packer_and_not_for_other_release_notes(tmp_path: Path) -> None:
    """The modules are read from imports, so one that packing begins to import counts from then on."""
    copied_to(tmp_path)
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    before = built_key(PLAN, LOCK, package_sources(tmp_path, PLAN.project))
    for name, line, is_another in CHANGED:
        with (tmp_path / name).open("a") as file:
            file.write(f"\n{line}\n")
        imported_modules.cache_clear()  # another process
        after = built_key(PLAN, LOCK, package_sources(tmp_path, PLAN.project))
        assert (after != before) is is_another, name
        before = after


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Write a package into ``dist`` and its stamp into ``dist/legacy``; return the package's path."""
    (tmp_path / "dist" / "legacy").mkdir(parents=True)
    path = tmp_path / "dist" / NAME
    path.write_bytes(b"a package")
    write_built(tmp_path / "dist" / "legacy", KEY, [path])
    return path


def stamp_of(package: Path) -> Path:
    return package.parent / "legacy" / "built.json"


def read(package: Path, key: str = KEY) -> tuple[Path, ...]:
    return read_built(package.parent / "legacy", key, package.parent)


def test_a_stamped_package_is_found(package: Path) -> None:
    assert read(package) == (package,)
    assert json.loads(stamp_of(package).read_text()) == {
        "key": KEY,
        "packages": {NAME: "c0cd5ccfdb563a59366e33e73001b78fdb8cca5a6c48e2f90fffcde44b81f1f6"},
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda package: package.write_bytes(b"A package"),
        lambda package: package.unlink(),
        lambda package: stamp_of(package).unlink(),
        lambda package: stamp_of(package).write_text("{"),
        lambda package: stamp_of(package).write_text("[]"),
        lambda package: stamp_of(package).write_text('{"key": 1, "packages": 2}'),
        lambda package: stamp_of(package).write_bytes(b"\xff"),
        lambda package: stamp_of(package).write_text(json.dumps({"key": KEY, "packages": {"legacy": "0"}})),
        lambda package: stamp_of(package).write_text(json.dumps({"key": KEY, "packages": [NAME]})),
    ],
    ids=["bytes", "package", "stamp", "no JSON", "list", "types", "no UTF-8", "folder", "earlier form"],
)
def test_what_changed_is_not_up_to_date(package: Path, change: Callable[[Path], object]) -> None:
    assert read(package, "x" * 64) == ()
    change(package)
    assert read(package) == ()
