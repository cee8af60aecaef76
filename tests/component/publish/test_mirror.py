"""Tests of mirror into a folder, through the real publish stage; foreign files in it stay."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from builder.build.verbs.verb_answers import dumps, status_answer
from builder.errors import DiskError, ReleaseConflictError, TransferError
from builder.publish.mirror import MirrorFolder
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions, ReleaseState
from tests.doubles.loopback import static_server
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, write_release
from tests.support.factories.mirroring import Stand, fill, stamps, whole
from tests.support.factories.publishing import TAG, bytes_in
from tests.support.factories.releases import TEXTS, append_sum
from tests.support.fakes.ports import FakeReporter
from tests.support.schemas import schema
from tests.support.tables import table

NEWER = "gpu-libs-v1.23.2-2"


def listing(stand: Stand) -> list[dict[str, str]]:
    value = json.loads((stand.root / "releases.json").read_text())
    schema("mirror").validate(value)
    releases: list[dict[str, str]] = value["releases"]
    return releases


def test_all_of_dist_lies_under_its_tag_and_nothing_else_is_there(stand: Stand) -> None:
    stand.mirror()
    files = bytes_in(stand.dist)
    assert {"index.json", "SHA256SUMS", "ortpacks.pyz"} <= set(files)
    assert bytes_in(stand.root) == whole(stand, files)
    assert f"{TAG}: published at {stand.root / TAG}" in stand.output
    (release,) = listing(stand)
    assert (release["tag"], release["index"]) == (TAG, f"{TAG}/index.json")
    assert release["sha256"] == hashlib.sha256(files["index.json"]).hexdigest()
    before = stamps(stand.root)
    stand.mirror()
    assert stamps(stand.root) == before, "again it writes nothing"
    assert "already published, nothing to do" in stand.output


def test_the_last_mirrored_release_is_latest_and_older_ones_stay(stand: Stand) -> None:
    stand.mirror()
    older = bytes_in(stand.release())
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(tag=NEWER))
    assert [release["tag"] for release in listing(stand)] == [NEWER, TAG]
    assert (stand.root / "latest").readlink() == Path(NEWER)
    assert bytes_in(stand.release()) == older
    assert bytes_in(stand.release(NEWER)) == bytes_in(stand.dist)
    shutil.rmtree(stand.release(NEWER))
    shutil.rmtree(stand.release())
    stand.mirror()
    assert [release["tag"] for release in listing(stand)] == [TAG], "what was removed by hand is not listed"
    assert (stand.root / "latest").readlink() == Path(TAG)


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


def test_what_a_draft_holds_too_much_or_wrong_is_put_right(stand: Stand, tmp_path: Path) -> None:
    stand.mirror()
    draft = stand.root / ".drafts" / TAG
    (draft / "folder").mkdir(parents=True)
    (draft / "index.json").write_bytes(b"old")
    (draft / "other.tar.zst").write_bytes(b"not ours")
    (tmp_path / "elsewhere").write_bytes(b"keep")
    (draft / "link").symlink_to(tmp_path / "elsewhere")
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(replace=True))
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))
    assert (tmp_path / "elsewhere").read_bytes() == b"keep"


def test_a_replacement_copies_what_cannot_be_linked(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT, SMB and some FUSE file systems have no hard links."""
    stand.mirror()
    fill(stand.dist, padding=90_000)
    monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    stand.mirror(PublishOptions(replace=True))
    assert bytes_in(stand.release()) == bytes_in(stand.dist)


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_public_stays_until_it_is_replaced(stand: Stand, tmp_path: Path, wanted: bool) -> None:
    stand.mirror()
    before = bytes_in(stand.release())
    shutil.copytree(stand.dist, tmp_path / "first")
    fill(stand.dist, padding=90_000)
    stand.mirror(PublishOptions(replace=True, draft=True))
    assert bytes_in(stand.release()) == before
    if not wanted:
        stand.shop.dist = tmp_path / "first"
    stand.mirror(PublishOptions(replace=wanted))
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


def test_a_lost_list_is_written_anew_in_the_order_of_publication(stand: Stand) -> None:
    """What counts is when a release became public, not when it was copied. An index may be of any format."""
    stand.mirror(PublishOptions(tag="z", draft=True))
    for tag in ("a", "z", "m"):
        stand.mirror(PublishOptions(tag=tag))
    (stand.root / "newer").mkdir()
    index = stand.root / "newer/index.json"
    index.write_text('{"format": 99, "tag": "newer", "packages": {}}')
    os.utime(index, (2**32, 2**32))
    (stand.root / "releases.json").unlink()
    (stand.root / "latest").unlink()
    stand.mirror(PublishOptions(tag="a"))
    assert [release["tag"] for release in listing(stand)] == ["newer", "m", "z", "a"]
    assert (stand.root / "latest").readlink() == Path("newer")


def test_the_newest_release_and_its_small_files_can_be_read(stand: Stand) -> None:
    host = MirrorFolder(stand.root, FakeReporter())
    assert host.latest() is None
    stand.mirror()
    release = host.latest()
    assert release is not None
    assert (release.tag, release.draft) == (TAG, False)
    (client,) = [asset for asset in host.assets(release) if asset.name == "ortpacks.pyz"]
    assert host.download(client, 13) == b"PK the client"
    with pytest.raises(TransferError, match=r"more than 12 bytes"):
        host.download(client, 12)


def test_a_run_that_waits_says_so(stand: Stand) -> None:
    mirror = MirrorFolder(stand.root, FakeReporter())
    with ThreadPoolExecutor(1) as pool:
        with mirror.locked():
            run = pool.submit(stand.mirror)
            while f"waiting: another run writes to {stand.root}" not in stand.reporter.lines:
                assert not run.done()
            assert not stand.release().exists()
        assert run.result(timeout=30).state is ReleaseState.PUBLISHED
    assert bytes_in(stand.release()) == bytes_in(stand.dist)


def test_a_mirror_that_would_not_fit_is_refused_first(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(path.stat().st_size for path in stand.dist.glob("ortpacks-*"))
    disk = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    for dry_run in (False, True):
        with pytest.raises(DiskError, match=rf"about {needed:,} bytes are needed, {needed - 1:,} are free"):
            stand.mirror(PublishOptions(dry_run=dry_run))
    assert not stand.root.exists()
    disk.free = 10 * needed
    stand.mirror(PublishOptions(draft=True))
    disk.free = 0
    stand.mirror()
    assert bytes_in(stand.root) == whole(stand, bytes_in(stand.dist))


def test_foreign_files_stay_as_they_are_and_are_no_releases(stand: Stand) -> None:
    for name, text in table("publish/litter.txt"):
        (stand.root / name).parent.mkdir(parents=True, exist_ok=True)
        (stand.root / name).write_text(text)
    for name, data in (("deep", b"[" * 100_000), ("bytes", b"\xff\xfe")):
        (stand.root / name).mkdir()
        (stand.root / name / "index.json").write_bytes(data)
    (stand.root / "linked").symlink_to("v1")
    foreign, before = bytes_in(stand.root), stamps(stand.root)
    stand.mirror()
    assert bytes_in(stand.root) == {**foreign, **whole(stand, bytes_in(stand.dist))}
    after = stamps(stand.root)
    assert {path for path in before if before[path] != after[path]} == {str(stand.root)}
    assert [release["tag"] for release in listing(stand)] == [TAG]


def test_a_file_where_the_mirror_should_be_is_said_plainly(stand: Stand) -> None:
    stand.root.write_text("somebody's")
    with pytest.raises(DiskError, match=r"is no folder, so there can be no mirror. Pass another --to"):
        stand.mirror()


def test_a_folder_that_never_was_a_release_is_not_replaced(stand: Stand) -> None:
    stand.release().mkdir(parents=True)
    (stand.release() / "thesis.tex").write_text("somebody's")
    for options in (PublishOptions(), PublishOptions(replace=True)):
        with pytest.raises(ReleaseConflictError):
            stand.mirror(options)
    assert bytes_in(stand.release()) == {"thesis.tex": b"somebody's"}


TAKEN: dict[str, Callable[[Path, Path], object]] = {
    "folder called latest": lambda root, other: (root / "latest").mkdir(),
    "latest that leads out": lambda root, other: (root / "latest").symlink_to(other),
    "list of something else": lambda root, other: (root / "releases.json").write_text('["1.0"]'),
    "list that is a link": lambda root, other: (root / "releases.json").symlink_to(other / "list"),
    "drafts elsewhere": lambda root, other: (root / ".drafts").symlink_to(other),
    "release elsewhere": lambda root, other: (root / TAG).symlink_to(other),
    "release that is a file": lambda root, other: (root / TAG).write_text("somebody's"),
}
"""How somebody else takes one of the names in a mirror's folder; a link leads to another folder."""


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_name_of_somebody_else_is_refused(stand: Stand, tmp_path: Path, name: str, dry_run: bool) -> None:
    other = tmp_path / "other"
    for folder in (other, stand.root):
        folder.mkdir()
    (other / "list").write_text('{"format": 1, "releases": []}')
    TAKEN[name](stand.root, other)
    before = bytes_in(tmp_path)
    with pytest.raises(ReleaseConflictError, match=r"Move it away"):
        stand.mirror(PublishOptions(dry_run=dry_run))
    assert bytes_in(tmp_path) == before


def test_a_mirror_is_installed_from_a_server_and_from_the_folder(stand: Stand, tmp_path: Path) -> None:
    files = {**FILES, **TEXTS}
    shutil.rmtree(stand.dist)
    write_release(stand.dist, files=files)
    for package in sorted(stand.dist.glob("*.tar.zst")):
        append_sum(stand.dist, package)
    stand.mirror(PublishOptions(allow=Leniency(unresolved=True)))
    machines = [Machine(tmp_path / "online"), Machine(tmp_path / "offline")]
    with static_server(stand.root) as url:
        assert machines[0].run("install", "--mirror", url) == 0, machines[0].err
    assert machines[1].run("install", "--offline", str(stand.root / "latest")) == 0, machines[1].err
    for machine in machines:
        for name, data in files.items():
            assert (machine.prefix / "current" / name).read_bytes() == data
