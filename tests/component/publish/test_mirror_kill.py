"""Tests of kill -9 during mirror: a public release is whole or absent, and the next run completes it."""

import shutil
from pathlib import Path

import pytest

from builder.errors import ReleaseConflictError
from builder.files.digest import LocalFile
from builder.publish.mirror import loads
from builder.publish.prepare import PublishOptions
from tests.support.factories.mirroring import Stand, fill, whole
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.faults import killed
from tests.support.faults.killed import dies_at

pytestmark = pytest.mark.thorough

STEPS = killed.STEPS | {"os.utime", "os.scandir"}


def require_whole(stand: Stand, *possible: dict[str, bytes]) -> None:
    """Check that a release, ``latest`` and the list are each whole or absent."""
    link, listed = stand.root / "latest", stand.root / "releases.json"
    assert not stand.release().exists() or bytes_in(stand.release()) in possible
    assert not listed.exists() or [one.tag for one in loads(listed.read_text(), "").releases] == [TAG]
    assert not link.is_symlink() or link.readlink() == Path(TAG)


def three_files(stand: Stand) -> list[LocalFile]:
    """Return three files of a release that was mirrored once: few files have few steps."""
    (package, *_) = sorted(stand.dist.glob("*.tar.zst"))
    return [LocalFile.of(stand.dist / name) for name in (package.name, "SHA256SUMS", "index.json")]


@pytest.mark.parametrize("replaces", [False, True])
def test_a_kill_leaves_a_whole_release_or_none(stand: Stand, tmp_path: Path, replaces: bool) -> None:
    """A second kill meets what the first one left."""
    stand.mirror(PublishOptions(dry_run=True))
    possible = []
    if replaces:
        stand.converge(three_files(stand))
        possible = [bytes_in(stand.release())]
        shutil.copytree(stand.root, tmp_path / "before", symlinks=True)
        fill(stand.dist, padding=90_000)
        stand.mirror(PublishOptions(dry_run=True, replace=True))
    files, options = three_files(stand), PublishOptions(replace=replaces)
    new = {file.name: file.path.read_bytes() for file in files}
    step = gone = 0
    while dies_at(step := step + 1, stand.root, lambda: stand.converge(files, options), STEPS):
        require_whole(stand, *possible, new)
        gone += not stand.release().exists()
        dies_at(step, stand.root, lambda: stand.converge(files, options), STEPS)
        require_whole(stand, *possible, new)
        stand.converge(files, options)
        assert bytes_in(stand.root) == whole(stand, new), step
        shutil.rmtree(stand.root)
        if replaces:
            shutil.copytree(tmp_path / "before", stand.root, symlinks=True)
    assert step > 25, "steps of three files, their folder, the link and the list"
    assert not replaces or gone == 1, "between the two renames"


def test_a_release_that_a_kill_caught_between_two_renames_comes_back(stand: Stand) -> None:
    stand.mirror()
    old = bytes_in(stand.dist)
    stand.release().rename(stand.root / ".drafts" / f"{TAG}~")
    fill(stand.dist, padding=90_000)
    with pytest.raises(ReleaseConflictError, match=r"--replace"):
        stand.mirror()
    assert bytes_in(stand.release()) == old
