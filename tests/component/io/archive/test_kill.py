"""Tests of kill -9 at random moments: a file with its final name is whole, and the next run cleans up."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.config.variants import Preset
from builder.files.digest import Digest
from builder.formats.package_names import Form
from builder.io.archive.split import split_archive, whole_digest
from tests.support.factories.archiving import NAME, accept, archive, content
from tests.support.faults.killed import killed_after

KILLS = 20

FILES = {"lib/x": hashlib.shake_256(b"noise").digest(4_000_000)}

ARCHIVE = archive(workers=2)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("form", list(Form))
def test_a_kill_while_writing_leaves_the_old_package_or_the_new_one(tmp_path: Path, form: Form) -> None:
    dest = tmp_path / "dist" / f"{NAME}{form.value}"
    made = content(tmp_path, FILES)

    def write() -> None:
        ARCHIVE.write(dest, made, Preset.FAST, accept)

    whole = min(seconds(write), seconds(write))
    expected = dest.read_bytes()
    moments = random.Random(form.value)  # noqa: S311 - moments, not keys
    at_it = 0
    for _ in range(KILLS):
        dest.write_bytes(b"old")
        at_it += killed_after(moments.uniform(0, whole), write)
        assert dest.read_bytes() in {b"old", expected}
    write()
    assert names(dest.parent) == [dest.name]
    assert dest.read_bytes() == expected
    assert at_it > KILLS // 4


def test_a_kill_while_splitting_leaves_the_archive_or_all_of_its_parts(tmp_path: Path) -> None:
    """Two archives take turns under one name, so that parts of one never pass for parts of the other."""
    dest = tmp_path / "dist" / f"{NAME}.tar.zst"
    joins = dest.with_name(f"{dest.name}.parts.json")
    ARCHIVE.write(dest, content(tmp_path, FILES), Preset.FAST, accept)
    one = dest.read_bytes()
    two = one[::-1]
    digests = [Digest(len(data), hashlib.sha256(data).hexdigest()) for data in (one, two)]

    def split() -> None:
        split_archive(dest, 500_000)

    whole = seconds(split)
    expected = names(dest.parent)
    moments = random.Random("split")  # noqa: S311
    at_it = 0
    for number in range(KILLS):
        archive = (two, one)[number % 2]
        dest.write_bytes(archive)  # what the last run left is still there
        at_it += killed_after(moments.uniform(0, whole), split)
        assert not joins.exists() or whole_digest(joins) in digests
        if dest.exists():
            assert dest.read_bytes() == archive
        else:
            assert whole_digest(joins) == digests[archive is two]
    dest.write_bytes(one)
    split()
    assert names(dest.parent) == expected
    assert whole_digest(joins) == digests[0]
    assert at_it > KILLS // 4
