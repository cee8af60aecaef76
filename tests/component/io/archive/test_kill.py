"""Tests of kill -9 at random moments: a file with its final name is whole, and the next run cleans up."""

import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.config.variants import Preset
from builder.formats.package_names import Form
from tests.support.factories.archiving import NAME, accept, archive, content
from tests.support.faults.killed import killed_after

KILLS = 20

ARCHIVE = archive(workers=2)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@pytest.mark.parametrize("form", list(Form))
def test_a_kill_while_writing_leaves_the_old_package_or_the_new_one(tmp_path: Path, form: Form) -> None:
    dest = tmp_path / "dist" / f"{NAME}{form.value}"
    made = content(tmp_path, {"lib/x": hashlib.shake_256(b"noise").digest(4_000_000)})

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
    assert list(dest.parent.iterdir()) == [dest]
    assert dest.read_bytes() == expected
    assert at_it > KILLS // 4
