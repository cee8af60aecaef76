"""Tests of archives: they give back their files, and the same files give the same bytes on any machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from builder.config.variants import Preset
from builder.errors import IntegrityError
from builder.files.digest import Digest, file_digest
from builder.formats.package_names import Form
from builder.io.archive.package_writer import EARLIEST_MTIME
from builder.io.archive.unpacking import extract, manifest_bytes
from tests.support.factories.archiving import (
    FILES,
    MANIFEST,
    NAME,
    accept,
    archive,
    content,
    pack,
    unpacked_by_gzip_or_zstd,
)

GZIP_SHA256 = "969eb22240caac5e2278d6f4aadbb730c28504f202d7831f4bc10950d955ee8d"


@pytest.mark.parametrize("form", list(Form))
def test_gnu_tar_lists_the_manifest_first_then_sorted_names_without_owner_or_time(
    tmp_path: Path, form: Form
) -> None:
    tar = unpacked_by_gzip_or_zstd(pack(tmp_path, FILES, form=form))
    listed = subprocess.run(
        ["tar", "--full-time", "--utc", "--numeric-owner", "-tvf", "-"],
        input=tar,
        capture_output=True,
        check=True,
    )
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    assert [row[-1].removeprefix(f"{NAME}/") for row in rows] == [
        "manifest.json",
        "LICENSE",
        "lib/libb.so",
        "lib/libcudnn.so.9",
    ]
    assert {tuple(row[1:2] + row[3:5]) for row in rows} == {("0/0", "1980-01-01", "00:00:00")}
    assert [row[0] for row in rows] == ["-rw-r--r--", "-rw-r--r--", "-rwxr-xr-x", "-rwxr-xr-x"]
    assert EARLIEST_MTIME == 315532800


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("preset", list(Preset))
def test_the_bytes_depend_neither_on_the_thread_count_nor_on_the_folder_nor_on_the_order(
    tmp_path: Path, preset: Preset, form: Form
) -> None:
    noise = b"".join(hashlib.sha256(str(number).encode()).digest() * 3 for number in range(120_000))
    files = {"lib/b": noise, "lib/a": noise[:7_000_001], "NOTICE": b"x"}
    one = pack(tmp_path / "one", files, workers=1, preset=preset, form=form)
    other = pack(tmp_path / "5", dict(reversed(files.items())), workers=5, preset=preset, form=form)
    assert file_digest(other) == file_digest(one)
    assert one.stat().st_size < 12_000_000


def test_gzip_s_bytes_are_these_on_any_machine(tmp_path: Path) -> None:
    """The same bytes were read under qemu-user as qemu64, core2duo, Nehalem and Haswell: zlib-ng
    selects code by CPU."""
    text = b"".join(b"%d %x\n" % (number, number * number * 40503 % 65521) for number in range(200_000))
    package = pack(tmp_path, {"lib/text": text}, workers=2, form=Form.GZ)
    assert hashlib.sha256(package.read_bytes()).hexdigest() == GZIP_SHA256


def test_size_and_hash_told_are_those_of_the_file_written(tmp_path: Path) -> None:
    dest = tmp_path / f"{NAME}.tar.zst"
    told = archive().write(dest, content(tmp_path / "in", FILES), Preset.FAST, accept)
    assert (told.sha256, told.size) == (hashlib.sha256(dest.read_bytes()).hexdigest(), dest.stat().st_size)


def test_what_stays_in_its_wheel_is_not_packed_and_not_even_read(tmp_path: Path) -> None:
    made = content(tmp_path / "in", FILES)
    thin = replace(
        made, members=tuple(replace(one, packed=one.path != "lib/libcudnn.so.9") for one in made.members)
    )
    (tmp_path / "in/input0").unlink()
    dest = tmp_path / f"{NAME}.tar.zst"
    archive().write(dest, thin, Preset.FAST, accept)
    assert list(extract(dest, tmp_path / "out")) == ["manifest.json", "LICENSE", "lib/libb.so"]


@pytest.mark.parametrize("form", list(Form))
def test_what_went_in_comes_out_of_the_extraction_of_the_head_and_of_tar(tmp_path: Path, form: Form) -> None:
    package = pack(tmp_path, FILES, form=form)
    out = extract(package, tmp_path / "out")
    assert {path: (tmp_path / "out" / path).read_bytes() for path in FILES} == FILES
    assert out["lib/libb.so"] == Digest(4, hashlib.sha256(b"\x7fELF").hexdigest())
    assert next(iter(out)) == "manifest.json"
    assert manifest_bytes(package) == MANIFEST
    listed = subprocess.run(["tar", "-tf", package], capture_output=True, check=True, text=True)
    assert len(listed.stdout.splitlines()) == 4


def test_modes_are_the_archive_s_whatever_the_umask(tmp_path: Path) -> None:
    """With the umask's modes, the user of a runtime image could not read what root unpacked."""
    package = pack(tmp_path, {**FILES, "licenses/x.txt": b"text"})
    before = os.umask(0o077)
    try:
        extract(package, tmp_path / "out")
    finally:
        os.umask(before)
    listed = subprocess.run(
        ["find", "out", "-printf", "%m %P\n"], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    assert sorted(listed.stdout.splitlines()) == [
        "644 LICENSE",
        "644 licenses/x.txt",
        "644 manifest.json",
        "755 ",
        "755 lib",
        "755 lib/libb.so",
        "755 lib/libcudnn.so.9",
        "755 licenses",
    ]


@pytest.mark.parametrize("form", list(Form))
def test_the_manifest_is_read_from_the_head_of_a_package_cut_in_half(tmp_path: Path, form: Form) -> None:
    package = pack(tmp_path, {"lib/big": os.urandom(3_000_000)}, form=form)
    os.truncate(package, package.stat().st_size // 2)
    assert manifest_bytes(package) == MANIFEST
    with pytest.raises(IntegrityError, match="is damaged"):
        extract(package, tmp_path / "out")


def test_a_package_under_another_name_is_told_to_take_its_own_again(tmp_path: Path) -> None:
    package = pack(tmp_path, FILES)
    renamed = package.rename(package.with_name("mine.tar.zst"))
    with pytest.raises(
        IntegrityError, match=f"^mine: .*{NAME}/.*If the file was renamed, give it its old name;"
    ):
        extract(renamed, tmp_path / "out")
