"""Tests of a mirror that is damaged, full or read-only: the fault is reported, and repaired on request."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.errors import DiskError, IntegrityError, ReleaseConflictError
from builder.files.digest import LocalFile, chunks_of
from builder.publish import mirror
from builder.publish.mirror import MirrorFolder
from builder.publish.prepare import PublishOptions
from tests.support.factories.mirroring import Stand, fill, whole
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.fakes.ports import FakeReporter
from tests.support.faults.damage import flip

REPLACE = PublishOptions(replace=True)


def replace_by_a_link(path: Path) -> None:
    path.rename(path.parent.parent / "copy")
    path.symlink_to("../copy")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flip": flip,
    "shorten": lambda path: os.truncate(path, path.stat().st_size - 1),
    "overwrite": lambda path: path.write_bytes(b"\xff"),
    "remove": Path.unlink,
    "link": replace_by_a_link,
    "folder": lambda path: path.rename(path.with_name("away")).with_name(path.name).mkdir(),
    "intruder": lambda path: path.with_name("intruder").write_text("x"),
}


def inodes_of(stand: Stand) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in stand.release().iterdir()}


@pytest.mark.parametrize("harm", DAMAGE)
@pytest.mark.parametrize(
    "name", ["ortpacks-legacy-1.23.2-cuda12.9-linux-x64.tar.zst", "index.json", "SHA256SUMS"]
)
def test_a_damaged_mirror_is_told_and_repaired_when_asked(stand: Stand, harm: str, name: str) -> None:
    stand.mirror()
    files, inodes = bytes_in(stand.dist), inodes_of(stand)
    DAMAGE[harm](stand.release() / name)
    damaged = bytes_in(stand.release())
    with pytest.raises(ReleaseConflictError, match=r"published with other files.*--replace"):
        stand.mirror()
    assert bytes_in(stand.release()) == damaged
    stand.mirror(REPLACE)
    (stand.root / "copy").unlink(missing_ok=True)
    assert bytes_in(stand.root) == whole(stand, files)
    assert dict(set(inodes_of(stand).items()) - set(inodes.items())).keys() <= {name}, "no other is copied"


def test_a_file_that_changed_since_it_was_hashed_is_not_taken(stand: Stand) -> None:
    host = MirrorFolder(stand.root, FakeReporter())
    (package, *_) = stand.dist.glob("*.tar.zst")
    with host.locked():
        draft = host.create_draft(TAG, "", "")
        with pytest.raises(IntegrityError, match=rf"wanted .* with sha256 {'0' * 64}, on the mirror came"):
            host.upload(draft, LocalFile(package, package.stat().st_size, "0" * 64))
    assert [path.name for path in (stand.root / ".drafts" / TAG).iterdir()] == []


@pytest.mark.parametrize("replaces", [False, True], ids=["the disk fills up", "interrupted replacement"])
def test_a_fault_while_files_are_copied_leaves_what_is_public_and_the_next_run_goes_on(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    if replaces:
        stand.mirror()
        fill(stand.dist, 90_000)
    public, copied = stand.release().exists() and bytes_in(stand.release()), list[Path]()

    def chunks(source: Path) -> Iterator[bytes]:
        copied.append(source)
        if len(copied) == 3:
            raise KeyboardInterrupt if replaces else full
        return chunks_of(source)

    monkeypatch.setattr(mirror, "chunks_of", chunks)
    raised = KeyboardInterrupt if replaces else DiskError
    with pytest.raises(raised, match=r"^$|does not fit: the disk or a quota was full.*Free space there and"):
        stand.mirror(PublishOptions(replace=replaces))
    assert (stand.release().exists() and bytes_in(stand.release())) == public
    kept = {path.name: (stand.root / ".drafts" / TAG / path.name).stat().st_ino for path in copied[:2]}
    stand.mirror(PublishOptions(replace=replaces))
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))
    assert kept.items() <= inodes_of(stand).items()


def test_a_folder_that_may_not_be_written_is_named(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != stand.root.parent or mode != os.W_OK | os.X_OK
    )
    with pytest.raises(DiskError, match=rf"{stand.root.parent} cannot be written. Check its owner and mode"):
        stand.mirror()
    assert "preflight" not in stand.reporter.lines
