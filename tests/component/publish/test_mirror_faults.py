"""Tests of a mirror that is damaged, full or read-only: the fault is reported, and repaired on request."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.errors import DiskError, IntegrityError, ReleaseConflictError
from builder.files.digest import LocalFile, chunks_of
from builder.publish import mirror
from builder.publish.mirror import MirrorFolder, loads
from builder.publish.prepare import PublishOptions
from tests.support.factories.mirroring import Stand, fill, whole
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.fakes.ports import FakeReporter
from tests.support.faults.damage import flip
from tests.support.messages import Refused

REPLACE = PublishOptions(replace=True)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replace_by_a_link(path: Path) -> None:
    shutil.copy(path, path.parent.parent / "copy")
    path.unlink()
    path.symlink_to("../copy")


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xff")


def put_one_beside(path: Path) -> None:
    path.with_name("intruder").write_text("x")


DAMAGE: list[Callable[[Path], None]] = [
    *(flip, shorten, overwrite, Path.unlink, replace_by_a_link, replace_by_a_folder, put_one_beside)
]


@pytest.mark.parametrize("harm", DAMAGE)
@pytest.mark.parametrize(
    "name", ["ortpacks-legacy-1.23.2-cuda12.9-linux-x64.tar.zst", "index.json", "SHA256SUMS"]
)
def test_a_damaged_mirror_is_told_and_repaired_when_asked(
    stand: Stand, harm: Callable[[Path], None], name: str
) -> None:
    stand.mirror()
    files = bytes_in(stand.dist)
    harm(stand.release() / name)
    damaged = bytes_in(stand.release())
    with pytest.raises(ReleaseConflictError, match=r"published with other files.*--replace"):
        stand.mirror()
    assert bytes_in(stand.release()) == damaged
    stand.mirror(REPLACE)
    (stand.root / "copy").unlink(missing_ok=True)
    assert bytes_in(stand.root) == whole(stand, files)


def test_a_repair_copies_only_what_is_damaged(stand: Stand) -> None:
    stand.mirror()
    inodes = {path.name: path.stat().st_ino for path in stand.release().iterdir()}
    flip(stand.release() / "ortpacks.pyz")
    stand.mirror(REPLACE)
    changed = {path.name for path in stand.release().iterdir() if path.stat().st_ino != inodes[path.name]}
    assert changed == {"ortpacks.pyz"}


def test_a_release_with_a_damaged_index_keeps_its_place_in_the_list(stand: Stand) -> None:
    stand.mirror()
    (stand.release() / "index.json").write_bytes(b"{")
    stand.mirror(PublishOptions(tag="newer"))
    assert [release.tag for release in loads((stand.root / "releases.json").read_text(), "").releases] == [
        "newer",
        TAG,
    ]
    stand.mirror(REPLACE)
    assert (stand.root / "latest").readlink() == Path("newer")


def test_a_damaged_list_is_told_with_the_way_out(stand: Stand, refused: Refused) -> None:
    stand.mirror()
    (stand.root / "releases.json").write_bytes(b"{")
    with refused(ReleaseConflictError):
        stand.mirror()
    (stand.root / "releases.json").unlink()
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


def test_a_file_that_changed_since_it_was_hashed_is_not_taken(stand: Stand) -> None:
    host = MirrorFolder(stand.root, FakeReporter())
    (package, *_) = stand.dist.glob("*.tar.zst")
    with host.locked():
        draft = host.create_draft(TAG, "", "")
        with pytest.raises(IntegrityError, match=rf"wanted .* with sha256 {'0' * 64}, on the mirror came"):
            host.upload(draft, LocalFile(package, package.stat().st_size, "0" * 64))
    assert [path.name for path in (stand.root / ".drafts" / TAG).iterdir()] == []


def test_a_file_that_is_gone_since_it_was_hashed_is_told_and_the_mirror_is_not_blamed(stand: Stand) -> None:
    """As after another run of ``build`` or ``clean``."""
    (package, *_) = stand.dist.glob("*.tar.zst")
    gone = LocalFile.of(package)
    package.unlink()
    with pytest.raises(IntegrityError, match=rf"^{re.escape(str(package))} cannot be read: No such file"):
        stand.converge([gone])


def test_a_disk_that_fills_up_all_the_same_is_told_and_the_next_run_goes_on(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Path] = []

    def full(source: Path) -> Iterator[bytes]:
        copied.append(source)
        if len(copied) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return chunks_of(source)

    monkeypatch.setattr(mirror, "chunks_of", full)
    with pytest.raises(
        DiskError, match=r"does not fit: the disk or a quota was full.*Free space there and run"
    ):
        stand.mirror()
    assert not stand.release().exists()
    draft = {path.name: path.stat().st_ino for path in (stand.root / ".drafts" / TAG).iterdir()}
    assert len(draft) == 2
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))
    assert draft.items() <= {path.name: path.stat().st_ino for path in stand.release().iterdir()}.items()


def test_an_interrupted_replacement_goes_on_with_what_it_has_copied(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.mirror()
    fill(stand.dist, 90_000)
    copied: list[Path] = []

    def interrupted(source: Path) -> Iterator[bytes]:
        copied.append(source)
        if len(copied) == 2:
            raise KeyboardInterrupt
        return chunks_of(source)

    with monkeypatch.context() as patch:
        patch.setattr(mirror, "chunks_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stand.mirror(REPLACE)
    first = (stand.root / ".drafts" / TAG / copied[0].name).stat().st_ino
    stand.mirror(REPLACE)
    assert (stand.release() / copied[0].name).stat().st_ino == first
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 256 KiB and return its folder; skip the test where mounting is not permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here, which takes root: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_refused_with_both_numbers_and_keeps_what_is_there(
    stand: Stand, small_disk: Path
) -> None:
    stand.root = small_disk / "mirror"
    with pytest.raises(
        DiskError, match=r"does not fit: about 30\d,\d{3} bytes are needed, 2\d\d,\d{3} are free. Free"
    ):
        stand.mirror()
    assert list(small_disk.iterdir()) == []
    fill(stand.dist, padding=10_000)
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


def test_a_folder_that_may_not_be_written_is_named_before_anything_is_proved(
    stand: Stand, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    stand.root = small_disk
    with pytest.raises(
        DiskError, match=rf"{small_disk} cannot be written. Check its owner and mode, or pass another"
    ):
        stand.mirror()
    assert "preflight" not in stand.lines
