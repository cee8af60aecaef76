"""Tests of mirror into a folder, through the real publish stage."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.build.verbs.verb_answers import dumps, status_answer
from builder.errors import ConfigError, DiskError, TransferError
from builder.publish.mirror import MirrorFolder
from builder.publish.prepare import PublishOptions, ReleaseState
from tests.support.factories.mirroring import Stand, fill, open_stand, stamps, whole
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.fakes.ports import FakeReporter
from tests.support.schemas import schema

NEWER = "gpu-libs-v1.23.2-2"


def listing(stand: Stand, root: Path) -> list[dict[str, str]]:
    value = json.loads((stand.root / "releases.json").read_text())
    schema("mirror").validate(value)
    releases: list[dict[str, str]] = value["releases"]
    return releases


def test_all_of_dist_lies_under_its_tag_and_nothing_else_is_there(stand: Stand, root: Path) -> None:
    stand.mirror()
    files = bytes_in(stand.dist)
    assert {"index.json", "SHA256SUMS", "ortpacks.pyz"} <= set(files)
    assert bytes_in(stand.root) == whole(stand, files)
    assert f"{TAG}: published at {stand.root / TAG}" in stand.output
    (release,) = listing(stand, root)
    assert (release["tag"], release["index"]) == (TAG, f"{TAG}/index.json")
    assert release["sha256"] == hashlib.sha256(files["index.json"]).hexdigest()


def test_a_dry_run_elsewhere_makes_every_file_of_a_release_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/provenance.md compares a release's other files so: from rebuilt packages, in another folder."""
    folders = [tmp_path / name for name in ("one", "another one")]
    for folder in folders:
        folder.mkdir()
    one, other = (open_stand(folder, monkeypatch) for folder in folders)
    one.mirror()
    before = os.umask(0o077)
    try:
        other.mirror(PublishOptions(dry_run=True))
    finally:
        os.umask(before)
    assert bytes_in(other.dist) == bytes_in(one.release())
    assert not other.root.exists()


def test_the_last_mirrored_release_is_latest_and_older_ones_stay(stand: Stand, root: Path) -> None:
    stand.mirror()
    older = bytes_in(stand.release())
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(tag=NEWER))
    assert [release["tag"] for release in listing(stand, root)] == [NEWER, TAG]
    assert (stand.root / "latest").readlink() == Path(NEWER)
    assert bytes_in(stand.release()) == older
    assert bytes_in(stand.release(NEWER)) == bytes_in(stand.dist)


def test_again_writes_nothing_and_says_so(stand: Stand) -> None:
    stand.mirror()
    before = stamps(stand.root)
    stand.mirror()
    assert stamps(stand.root) == before
    assert "already published, nothing to do" in stand.output


def test_a_dry_run_makes_not_even_the_folder(stand: Stand) -> None:
    document = json.loads(dumps(status_answer(stand.mirror(PublishOptions(dry_run=True)))))
    schema("release-status").validate(document)
    assert (document["tag"], document["state"]) == (TAG, "dry-run")
    assert {"name": "index.json", "status": "missing"} in document["files"]
    assert not stand.root.exists()
    assert "↑ index.json" in stand.output


def test_a_draft_is_out_of_sight_until_the_next_run_publishes_it(stand: Stand) -> None:
    stand.mirror(PublishOptions(draft=True))
    assert [path.name for path in stand.root.iterdir()] == [".drafts"]
    assert stat.S_IMODE((stand.root / ".drafts").stat().st_mode) == 0o700
    inodes = {path.stat().st_ino for path in (stand.root / ".drafts" / TAG).iterdir()}
    stand.mirror()
    assert {path.stat().st_ino for path in stand.release().iterdir()} == inodes
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


@pytest.mark.parametrize("replaces", [False, True])
def test_what_a_draft_holds_too_much_or_wrong_is_put_right(
    stand: Stand, tmp_path: Path, replaces: bool
) -> None:
    stand.mirror(PublishOptions(draft=not replaces))
    draft = stand.root / ".drafts" / TAG
    (draft / "folder").mkdir(parents=True)
    (draft / "index.json").write_bytes(b"old")
    (draft / "other.tar.zst").write_bytes(b"not ours")
    (tmp_path / "elsewhere").write_bytes(b"keep")
    (draft / "link").symlink_to(tmp_path / "elsewhere")
    if replaces:
        fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(replace=replaces))
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))
    assert (tmp_path / "elsewhere").read_bytes() == b"keep"


@pytest.mark.parametrize("tag", ["a/b", "latest", "releases.json"])
def test_a_tag_that_no_folder_can_have_is_refused_first(stand: Stand, tag: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be mirrored: .*Pass a"):
        stand.mirror(PublishOptions(tag=tag))
    assert not stand.root.exists()


def test_a_replacement_copies_what_cannot_be_linked(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT, SMB and some FUSE file systems have no hard links."""
    stand.mirror()
    fill(stand.dist, padding=90_000)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    stand.mirror(PublishOptions(replace=True))
    assert bytes_in(stand.release()) == bytes_in(stand.dist)


def test_people_keep_what_is_public_until_it_is_replaced(stand: Stand) -> None:
    stand.mirror()
    before = bytes_in(stand.release())
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(replace=True, draft=True))
    assert bytes_in(stand.release()) == before
    stand.mirror(PublishOptions(replace=True))
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


def test_a_replacement_that_is_no_longer_wanted_leaves_no_draft(stand: Stand, tmp_path: Path) -> None:
    stand.mirror()
    shutil.copytree(stand.dist, tmp_path / "first")
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(replace=True, draft=True))
    stand.shop.dist = tmp_path / "first"
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


def test_what_counts_is_when_a_release_became_public_not_when_it_was_copied(stand: Stand) -> None:
    stand.mirror(PublishOptions(tag="early", draft=True))
    stand.mirror(PublishOptions(tag="between"))
    stand.mirror(PublishOptions(tag="early"))
    (stand.root / "releases.json").unlink()
    stand.mirror(PublishOptions(tag="early"))
    assert (stand.root / "latest").readlink() == Path("early")


def test_a_lost_list_is_written_anew_in_the_order_of_publication(stand: Stand, root: Path) -> None:
    tags = ["z", "a", "m"]
    for tag in tags:
        stand.mirror(PublishOptions(tag=tag))
    (stand.root / "releases.json").unlink()
    (stand.root / "latest").unlink()
    stand.mirror(PublishOptions(tag="a"))
    assert [release["tag"] for release in listing(stand, root)] == ["m", "a", "z"]
    assert (stand.root / "latest").readlink() == Path("m")


def test_a_release_that_was_removed_by_hand_is_no_longer_listed(stand: Stand, root: Path) -> None:
    stand.mirror()
    stand.mirror(PublishOptions(tag=NEWER))
    shutil.rmtree(stand.release(NEWER))
    stand.mirror()
    assert [release["tag"] for release in listing(stand, root)] == [TAG]
    assert (stand.root / "latest").readlink() == Path(TAG)


def test_the_newest_release_and_its_small_files_can_be_read(stand: Stand) -> None:
    host = MirrorFolder(stand.root, FakeReporter())
    assert host.latest() is None
    stand.mirror()
    release = host.latest()
    assert release is not None
    assert (release.tag, release.draft) == (TAG, False)
    (asset,) = [asset for asset in host.assets(release) if asset.name == "ortpacks.pyz"]
    assert asset.digest == f"sha256:{hashlib.sha256(b'PK the client').hexdigest()}"
    assert host.download(asset, 13) == b"PK the client"
    with pytest.raises(TransferError, match=r"more than 12 bytes"):
        host.download(asset, 12)


def test_two_runs_take_turns(stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second").mkdir()
    other = open_stand(tmp_path / "second", monkeypatch)
    other.root = stand.root
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(stand.mirror), pool.submit(other.mirror, PublishOptions(tag=NEWER))]
    assert [run.result().state for run in runs] == [ReleaseState.PUBLISHED] * 2
    assert bytes_in(stand.release()) == bytes_in(stand.dist)
    assert bytes_in(stand.release(NEWER)) == bytes_in(other.dist)


def test_a_run_that_waits_says_so(stand: Stand) -> None:
    mirror = MirrorFolder(stand.root, FakeReporter())
    with ThreadPoolExecutor(1) as pool:
        with mirror.locked():
            run = pool.submit(stand.mirror)
            while f"waiting: another run writes to {stand.root}" not in stand.lines:
                assert not run.done()
            assert not stand.release().exists()
        assert run.result(timeout=30).state is ReleaseState.PUBLISHED
    assert bytes_in(stand.release()) == bytes_in(stand.dist)


@pytest.mark.parametrize("options", [PublishOptions(), PublishOptions(dry_run=True)])
def test_a_mirror_that_would_not_fit_is_refused_before_anything_is_copied(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, options: PublishOptions
) -> None:
    needed = sum(path.stat().st_size for path in stand.dist.glob("ortpacks-*"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed - 1))
    with pytest.raises(DiskError, match=rf"about {needed:,} bytes are needed, {needed - 1:,} are free. Free"):
        stand.mirror(options)
    assert not stand.root.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10 * needed))
    stand.mirror(options)


def test_what_is_there_already_needs_no_room(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.mirror(PublishOptions(draft=True))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))
