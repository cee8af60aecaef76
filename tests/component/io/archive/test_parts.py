"""Tests of archives in parts: `cat` and all readers join them, and a bad part is named."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.config.variants import Preset
from builder.errors import BuilderError, DiskError, IntegrityError, ValidationError
from builder.files.digest import file_digest
from builder.formats.package_names import Form
from builder.io.archive.split import split_archive, whole_digest
from builder.io.archive.unpacking import extract, manifest_bytes
from tests.support.factories.archiving import MANIFEST, NAME, accept, archive, content, files_of_at_most
from tests.support.faults.damage import flip

NOISE = hashlib.shake_256(b"noise").digest(3_000_000)

ARCHIVE = archive()


def packed(folder: Path, form: Form = Form.ZST) -> Path:
    dest = folder / f"{NAME}{form.value}"
    ARCHIVE.write(dest, content(folder.parent, {"lib/x": NOISE}), Preset.FAST, accept)
    return dest


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    return tmp_path / "dist"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("most", "count"), [(2_000_000, 2), (1_000_000, 4), (250_000, 13)])
def test_cat_of_the_parts_is_the_archive_and_sha256sum_agrees(dist: Path, most: int, count: int) -> None:
    package = packed(dist)
    whole = package.read_bytes()
    *parts, joins = split_archive(package, most)
    assert len(parts) == count
    assert max(part.stat().st_size for part in parts) == most
    assert names(dist) == sorted([*(part.name for part in parts), f"{package.name}.parts.json"])
    subprocess.run(["sh", "-c", f"cat {package.name}.part[0-9]* > joined"], cwd=dist, check=True)
    assert (dist / "joined").read_bytes() == whole
    told = json.loads(joins.read_text())
    sums = "".join(f"{entry['sha256']}  {entry['file']}\n" for entry in [*told["parts"]])
    subprocess.run(["sha256sum", "--check", "--strict"], input=sums.encode(), cwd=dist, check=True)
    assert told["sha256"] == hashlib.sha256(whole).hexdigest()
    assert told["size"] == len(whole)


@pytest.mark.parametrize("form", list(Form))
def test_every_reader_takes_the_file_that_joins_them(dist: Path, tmp_path: Path, form: Form) -> None:
    package = packed(dist, form)
    whole = file_digest(package)
    joins = split_archive(package, 1_000_000)[-1]
    assert manifest_bytes(joins) == MANIFEST
    assert list(extract(joins, tmp_path / "out")) == ["manifest.json", "lib/x"]
    assert (tmp_path / "out/lib/x").read_bytes() == NOISE
    assert whole_digest(joins) == whole


def test_the_manifest_needs_the_first_part_only(dist: Path) -> None:
    first, second, joins = split_archive(packed(dist), 2_000_000)
    second.unlink()
    assert manifest_bytes(joins) == MANIFEST
    assert first.stat().st_size == 2_000_000


def gone(part: Path) -> None:
    part.unlink()


def cut(part: Path) -> None:
    os.truncate(part, part.stat().st_size - 1)


def longer(part: Path) -> None:
    part.write_bytes(part.read_bytes() + b"x")


def empty(part: Path) -> None:
    part.write_bytes(b"")


def exchanged(part: Path) -> None:
    shutil.copy(part.with_name(f"{part.name[:-1]}2"), part)


def a_folder(part: Path) -> None:
    part.unlink()
    part.mkdir()


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("plant", [gone, flip, cut, longer, empty, exchanged, a_folder])
def test_the_part_that_is_missing_or_damaged_is_named(
    dist: Path, tmp_path: Path, form: Form, number: int, plant: Callable[[Path], None]
) -> None:
    *parts, joins = split_archive(packed(dist, form), 1_000_000)
    bad = parts[number - 1]
    plant(bad)
    readers: tuple[Callable[[], object], ...] = (
        lambda: extract(joins, tmp_path / "out"),
        lambda: whole_digest(joins),
    )
    for read in readers:
        with pytest.raises(
            IntegrityError, match=rf"{bad.name} (is damaged|cannot be read).*ownload it again"
        ):
            read()


def test_parts_of_another_archive_are_told_although_each_is_whole(dist: Path, tmp_path: Path) -> None:
    *_, joins = split_archive(packed(dist), 1_000_000)
    told = json.loads(joins.read_text())
    joins.write_text(json.dumps({**told, "sha256": "0" * 64}))
    with pytest.raises(IntegrityError, match="its parts are undamaged, but joined they are another file"):
        extract(joins, tmp_path / "out")


def test_a_file_that_joins_has_its_archive_s_name(dist: Path) -> None:
    *_, joins = split_archive(packed(dist), 1_000_000)
    renamed = joins.rename(joins.with_name(f"{NAME}-thin.tar.zst.parts.json"))
    with pytest.raises(ValidationError, match=f"joins the parts of {NAME}.tar.zst. Rename it to"):
        manifest_bytes(renamed)


@pytest.mark.parametrize("text", ["", "{}", " " * ((1 << 20) + 1)])
def test_a_file_that_joins_nothing_is_refused(tmp_path: Path, text: str) -> None:
    joins = tmp_path / f"{NAME}.tar.zst.parts.json"
    joins.write_text(text)
    with pytest.raises(BuilderError, match=joins.name):
        manifest_bytes(joins)


def test_an_archive_that_fits_stays_one(dist: Path) -> None:
    package = packed(dist)
    assert split_archive(package, package.stat().st_size) == (package,)
    assert names(dist) == [package.name]


def test_what_an_earlier_split_left_is_replaced_and_what_is_another_s_stays(dist: Path) -> None:
    split_archive(packed(dist), 250_000)
    package = packed(dist)
    others = [f"{NAME}-thin.tar.zst.part1", f"{package.name}.provenance.json", f"{package.name}.part1.txt"]
    for name in (*others, f"{package.name}.part07.part-12-0a"):
        (dist / name).write_bytes(b"x")
    split = split_archive(package, 1_000_000)
    assert names(dist) == sorted([*others, *(path.name for path in split)])


def test_a_full_disk_leaves_the_archive_and_no_part_that_is_half(
    dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = packed(dist)
    whole = package.read_bytes()
    with monkeypatch.context() as patched:
        usage = shutil.disk_usage(dist)._replace(free=1000)
        patched.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(DiskError, match=r"3,\d+,\d+ bytes are needed, 1,000 are free"):
            split_archive(package, 1_000_000)
    assert names(dist) == [package.name]
    assert package.read_bytes() == whole


def test_a_disk_that_fills_up_while_splitting_leaves_the_archive(dist: Path) -> None:
    package = packed(dist)
    whole = package.read_bytes()
    with files_of_at_most(600_000), pytest.raises(DiskError, match=r"part1 does not fit: .*full while"):
        split_archive(package, 1_000_000)
    assert names(dist) == [package.name]
    assert package.read_bytes() == whole
    assert len(split_archive(package, 1_000_000)) == 5
