"""Tests of kill -9 during mirror: a public release is whole or absent, and the next run completes it."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.errors import ReleaseConflictError
from builder.files.digest import LocalFile
from builder.publish.mirror import loads
from builder.publish.prepare import PublishOptions
from tests.support.factories.mirroring import Stand, fill, local_files, whole
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.faults import killed
from tests.support.faults.killed import dies_at, killed_after

KILLS = 20

REPLACE = PublishOptions(replace=True)

STEPS = killed.STEPS | {"os.utime", "os.scandir"}


def require_whole(stand: Stand, *possible: dict[str, bytes]) -> None:
    """Check that a release, ``latest`` and the list are each whole or absent."""
    release = stand.release()
    assert not release.exists() or bytes_in(release) in possible
    link, list_ = stand.root / "latest", stand.root / "releases.json"
    if list_.exists():
        assert [item.tag for item in loads(list_.read_text(), "").releases] == [TAG]
    if link.is_symlink():
        assert link.readlink() == Path(TAG)


def steps(stand: Stand, work: Callable[[], object]) -> Iterator[int]:
    """Kill ``work`` at one step after another until it completes."""
    step = 0
    while dies_at(step := step + 1, stand.root, work, STEPS):
        yield step
    assert step > 1


def three_files(stand: Stand) -> list[LocalFile]:
    """Return three files of a release that was mirrored once: few files have few steps."""
    (package, *_) = sorted(stand.dist.glob("*.tar.zst"))
    return local_files(stand.dist, package.name, "SHA256SUMS", "index.json")


def test_a_kill_at_any_step_leaves_a_whole_release_or_none_and_the_next_run_completes_it(
    stand: Stand,
) -> None:
    stand.mirror()
    files = three_files(stand)
    expected = {file.name: file.path.read_bytes() for file in files}
    shutil.rmtree(stand.root)
    done = 0
    for step in steps(stand, lambda: stand.converge(files)):
        require_whole(stand, expected)
        stand.converge(files)
        assert bytes_in(stand.root) == whole(stand, expected), step
        shutil.rmtree(stand.root)
        done = step
    assert done > 25, "steps of three files, their folder, the link and the list"


def test_a_kill_at_any_step_of_a_replacement_leaves_the_old_release_or_the_new_one(
    stand: Stand, tmp_path: Path
) -> None:
    stand.mirror(PublishOptions(dry_run=True))
    stand.converge(three_files(stand))
    old = bytes_in(stand.release())
    shutil.copytree(stand.root, tmp_path / "before", symlinks=True)
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(dry_run=True, replace=True))
    files = three_files(stand)
    new = {file.name: file.path.read_bytes() for file in files}
    gone = 0
    for step in steps(stand, lambda: stand.converge(files, REPLACE)):
        require_whole(stand, old, new)
        gone += not stand.release().exists()
        stand.converge(files, REPLACE)
        assert bytes_in(stand.root) == whole(stand, new), step
        shutil.rmtree(stand.root)
        shutil.copytree(tmp_path / "before", stand.root, symlinks=True)
    assert gone == 1, "between the two renames"


def test_a_release_that_a_kill_caught_between_two_renames_comes_back(stand: Stand) -> None:
    stand.mirror()
    old = bytes_in(stand.dist)
    stand.release().rename(stand.root / ".drafts" / f"{TAG}~")
    fill(stand.dist, padding=90_000)
    with pytest.raises(ReleaseConflictError, match=r"--replace"):
        stand.mirror()
    assert bytes_in(stand.release()) == old


def test_kill_9_at_random_moments_of_one_mirror_after_another(stand: Stand) -> None:
    """Files that earlier mirrors left are still there when the next one is killed."""
    fill(stand.dist, padding=4_000_000)
    begin = time.perf_counter()
    stand.mirror()
    lasts = time.perf_counter() - begin
    files = bytes_in(stand.dist)
    shutil.rmtree(stand.root)
    moments = random.Random("mirror")  # noqa: S311 - moments, not keys
    at_it = 0
    for _ in range(KILLS):
        at_it += killed_after(moments.uniform(0, min(lasts, 0.2)), stand.mirror)
        require_whole(stand, files)
        if stand.release().exists() and at_it % 2:
            shutil.rmtree(stand.release())
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, files)
    assert at_it > KILLS // 4
