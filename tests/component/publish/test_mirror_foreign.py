"""Tests of a mirror in a folder with foreign files: they stay, and a name that is taken is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.errors import DiskError, ReleaseConflictError
from builder.publish.prepare import PublishOptions
from tests.support.factories.mirroring import Stand, stamps, whole
from tests.support.factories.publishing import TAG, bytes_in


def litter(folder: Path) -> None:
    (folder / "docs").mkdir(parents=True)
    (folder / "docs/index.json").write_text('{"tag": "docs", "pages": []}')
    (folder / "copy").mkdir()
    (folder / "copy/index.json").write_text('{"tag": "gpu-libs-v1", "packages": []}')
    (folder / "README").write_text("somebody's")
    (folder / "v1").mkdir()
    (folder / "v1/index.json").write_text('{"tag": "linked", "packages": []}')
    (folder / "linked").symlink_to("v1")
    (folder / "README.part-1-00").write_text("somebody's")


def test_foreign_files_stay_as_they_are_and_are_no_releases(stand: Stand) -> None:
    litter(stand.root)
    foreign, before = bytes_in(stand.root), stamps(stand.root)
    stand.mirror()
    assert bytes_in(stand.root) == {**foreign, **whole(stand, bytes_in(stand.dist))}
    assert {path: stamp for path, stamp in stamps(stand.root).items() if path in before} == {
        **before,
        str(stand.root): stamps(stand.root)[str(stand.root)],
    }
    listed = json.loads((stand.root / "releases.json").read_text())["releases"]
    assert [release["tag"] for release in listed] == [TAG]


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


def folder_called_latest(stand: Stand, other: Path) -> None:
    (stand.root / "latest").mkdir()


def latest_that_leads_out(stand: Stand, other: Path) -> None:
    (stand.root / "latest").symlink_to(other)


def list_of_something_else(stand: Stand, other: Path) -> None:
    (stand.root / "releases.json").write_text('["1.0"]')


def list_that_is_a_link(stand: Stand, other: Path) -> None:
    (other / "list").write_text('{"format": 1, "releases": []}')
    (stand.root / "releases.json").symlink_to(other / "list")


def drafts_that_are_elsewhere(stand: Stand, other: Path) -> None:
    (stand.root / ".drafts").symlink_to(other)


def release_that_is_elsewhere(stand: Stand, other: Path) -> None:
    stand.release().symlink_to(other)


def release_that_is_a_file(stand: Stand, other: Path) -> None:
    stand.release().write_text("somebody's")


@pytest.mark.parametrize(
    "put",
    [
        folder_called_latest,
        latest_that_leads_out,
        list_of_something_else,
        list_that_is_a_link,
        drafts_that_are_elsewhere,
        release_that_is_elsewhere,
        release_that_is_a_file,
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_name_that_is_somebody_elses_is_refused_and_nothing_is_written(
    stand: Stand, tmp_path: Path, put: Callable[[Stand, Path], None], dry_run: bool
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "keep").write_text("keep")
    stand.root.mkdir()
    put(stand, other)
    before = bytes_in(tmp_path)
    with pytest.raises(ReleaseConflictError, match=r"Move it away"):
        stand.mirror(PublishOptions(dry_run=dry_run))
    assert bytes_in(tmp_path) == before
