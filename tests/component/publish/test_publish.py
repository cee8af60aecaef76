"""Tests of publish with the real GitHub client and the double."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests

from builder.config.variants import Project
from builder.contents.card_grid import CardRow, Grid, grid_name, table
from builder.errors import (
    CheckFailedError,
    ConfigError,
    IntegrityError,
    NothingToDoError,
)
from builder.formats.json_values import json_text
from builder.publish.locations import index_url, release_tag
from builder.publish.prepare import PublishOptions
from tests.doubles.github import HEAD, REPOSITORY
from tests.support.factories.publishing import TAG, Desk, bytes_in
from tests.support.factories.releases import append_sum, manifest, write_package
from tests.support.messages import Told


def test_all_of_dist_comes_back_byte_for_byte_without_a_token(desk: Desk) -> None:
    result = desk.publish()
    assert (result.tag, result.state) == (TAG, "published")
    assert set(bytes_in(desk.dist)) == {
        "ortpacks-legacy-1.23.2-cuda12.9-linux-x64.tar.zst",
        "ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.zst",
        "ortpacks-legacy-1.23.2-cuda12.9-linux-x64.cdx.json",
        "ortpacks-modern-1.23.2-cuda12.9-linux-x64.cdx.json",
        "licences.html",
        "ortpacks.pyz",
        "SHA256SUMS",
        "1.root.json",
        "targets.json",
        "index.json",
    }
    for name, data in bytes_in(desk.dist).items():
        url = f"{desk.github.url}/{REPOSITORY}/releases/download/{TAG}/{name}"
        assert requests.get(url, timeout=5).content == data, name


def test_the_index_goes_up_last_and_is_right_and_the_release_is_public_only_after_it(desk: Desk) -> None:
    desk.publish()
    writes = [seen.path.partition("?name=")[2] or seen.method for seen in desk.github.writes()]
    assert writes[0] == "POST"
    assert writes[-4:] == ["SHA256SUMS", "targets.json", "index.json", "PATCH"]
    lines = [line.split("  ") for line in (desk.dist / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert set(sums) == set(bytes_in(desk.dist)) - {"SHA256SUMS", "targets.json", "1.root.json"}
    packages = index_of(desk)["packages"]
    assert [package["variant"] for package in packages] == ["legacy", "modern"]
    for package in packages:
        assert (desk.dist / package["file"]).stat().st_size == package["size"]
        assert sums[package["file"]] == package["sha256"]


def index_of(desk: Desk) -> dict[str, list[dict[str, Any]]]:
    index: dict[str, list[dict[str, Any]]] = json.loads((desk.dist / "index.json").read_text())
    return index


def test_both_layouts_and_kinds_of_archive_go_up_and_into_the_index(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy"), padding=5000, suffix=".tar.gz")
    write_package(desk.dist, manifest("legacy", layout="thin"), padding=5000)
    write_package(desk.dist, manifest("legacy", layout="thin"), padding=5000, suffix=".tar.gz")
    assert desk.publish().state == "published"
    packages = index_of(desk)["packages"]
    found = [(item["file"].partition("linux-x64")[2], item["layout"]) for item in packages]
    kinds = [(suffix, layout) for suffix in (".tar.gz", ".tar.zst") for layout in ("full", "thin")]
    assert (sorted(found[:4]), found[4:]) == (kinds, [(".tar.zst", "full")])
    assert {item["installed_size"] for item in packages} == {6234}
    assert len(desk.verified) == 5
    (release,) = desk.github.releases.values()
    assert release.body.count("| legacy | **Maxwell**") == 1
    assert release.body.count("-thin-linux-x64.tar.gz](") == 1


def test_the_provenance_beside_a_package_goes_up_with_it(desk: Desk) -> None:
    (package,) = desk.dist.glob("ortpacks-legacy*")
    provenance = package.with_name(f"{package.name}.provenance.json")
    provenance.write_text('{"_type": "https://in-toto.io/Statement/v1"}')
    append_sum(desk.dist, provenance)
    desk.publish()
    assert desk.github.contents(TAG)[provenance.name] == provenance.read_bytes()
    assert len(index_of(desk)["packages"]) == 2, "it is no package"


def test_the_notes_say_which_package_is_for_which_card_and_how_to_install(desk: Desk, told: Told) -> None:
    desk.publish()
    (release,) = desk.github.releases.values()
    told(re.sub("`[0-9a-f]{64}`", "`<sha256>`", release.body))


GRID = Grid(
    format=1,
    package="ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.zst",
    sha256="0" * 64,
    variant="modern",
    onnxruntime="1.23.2",
    profile=None,
    driver="580.65.06",
    cards=(CardRow("8.6", "native", "native", (), ()),),
)


@pytest.mark.parametrize(
    ("other", "said"),
    [(json_text(GRID), "is of other bytes"), ("{", "is not JSON")],
    ids=["foreign", "damaged"],
)
def test_the_notes_have_the_cards_of_these_very_bytes(desk: Desk, other: str, said: str) -> None:
    """A grid of other bytes, and one that cannot be read, are reported and left out."""
    legacy, modern = sorted(desk.dist.glob("*.tar.zst"))
    sha256 = hashlib.sha256(modern.read_bytes()).hexdigest()
    grid = dataclasses.replace(GRID, package=modern.name, sha256=sha256)
    (desk.dist / grid_name(modern.name)).write_text(json_text(grid))
    (desk.dist / grid_name(legacy.name)).write_text(other)
    assert desk.publish().state == "published"
    (release,) = desk.github.releases.values()
    assert table(grid) in release.body
    assert release.body.count("<details>") == 1
    assert f"{grid_name(legacy.name)} {said}" in desk.output
    assert [asset for asset in release.assets.values() if "cards" in asset.name] == []


def test_again_does_nothing_and_says_so(desk: Desk) -> None:
    desk.publish()
    before = len(desk.github.writes())
    assert desk.publish().state == "unchanged"
    assert len(desk.github.writes()) == before
    assert "already published, nothing to do" in desk.output


def test_a_client_made_anew_is_no_finding(desk: Desk) -> None:
    desk.publish(PublishOptions(dry_run=True))
    (desk.dist / "ortpacks.pyz").write_bytes(b"PK the next client")
    desk.publish()
    assert desk.github.contents(TAG) == bytes_in(desk.dist)


def test_a_dry_run_shows_the_table_and_writes_nothing(desk: Desk) -> None:
    result = desk.publish(PublishOptions(dry_run=True))
    assert result.state == "dry-run"
    assert desk.github.writes() == []
    assert "↑ index.json" in desk.output
    assert "dry run: 10 steps to take" in desk.output


def test_a_draft_stays_one_when_asked_and_the_next_run_publishes_it(desk: Desk) -> None:
    assert desk.publish(PublishOptions(draft=True)).state == "draft"
    (release,) = desk.github.releases.values()
    assert release.draft
    assert "\ncomplete draft, not public: http" in desk.output
    before = len(desk.github.writes())
    assert desk.publish().state == "published"
    assert [seen.method for seen in desk.github.writes()[before:]] == ["PATCH"]


@pytest.mark.parametrize(("commit", "tagged"), [("c" * 40, "c" * 40), (None, HEAD)], ids=["built", "any"])
def test_a_new_tag_is_made_on_the_commit_that_was_built(desk: Desk, commit: str | None, tagged: str) -> None:
    desk.publish(PublishOptions(commit=commit))
    assert desk.github.tags == {TAG: tagged}


def test_a_draft_of_an_older_commit_is_published_on_the_one_that_was_built(desk: Desk) -> None:
    desk.publish(PublishOptions(commit="a" * 40, draft=True))
    desk.publish(PublishOptions(commit="b" * 40))
    assert desk.github.tags == {TAG: "b" * 40}


def test_several_drafts_the_oldest_is_completed_the_others_are_named(desk: Desk) -> None:
    first = desk.github.create(TAG, "", "", draft=True)
    second = desk.github.create(TAG, "", "", draft=True)
    desk.publish()
    assert (first.draft, second.draft) == (False, True)
    assert "another draft of" in desk.output


def test_it_stays_a_draft_when_the_release_is_not_what_was_uploaded(desk: Desk) -> None:
    original = desk.github.store

    def meddle(*args: object, **kwargs: object) -> object:
        asset = original(*args, **kwargs)  # type: ignore[arg-type]
        if asset.name == "index.json":
            desk.github.store = original  # type: ignore[method-assign]
            original(next(iter(desk.github.releases.values())), "intruder", b"x")
        return asset

    desk.github.store = meddle  # type: ignore[method-assign, assignment]
    with pytest.raises(IntegrityError, match=r"stays a draft[\s\S]*\+ intruder"):
        desk.publish()
    assert desk.publish().state == "published"


def test_every_package_is_verified_and_a_bad_one_stops_all(desk: Desk) -> None:
    def reject(path: Path) -> None:
        if "legacy" in path.name:
            raise IntegrityError("lib/x.so is damaged")

    desk.verify = reject
    with pytest.raises(CheckFailedError, match=r"R012 ortpacks-legacy.*lib/x\.so is damaged") as caught:
        desk.publish()
    assert caught.value.exit_code == 6
    assert len(desk.verified) == 2
    assert desk.github.requests == []


def test_an_empty_dist_is_said_plainly(desk: Desk, tmp_path: Path) -> None:
    desk.dist = tmp_path / "empty"
    desk.dist.mkdir()
    with pytest.raises(NothingToDoError, match="holds no package"):
        desk.publish()


@pytest.mark.parametrize("tag", [None, "gpu-libs-v1.23.2-2"])
def test_the_index_is_where_it_was_said_to_be_before(desk: Desk, tag: str | None) -> None:
    named = release_tag(desk.dist, desk.project, tag)
    assert named == (tag or TAG)
    desk.publish(PublishOptions(tag=tag))
    url = index_url(desk.project.publish, named)
    assert requests.get(url, timeout=5).content == (desk.dist / "index.json").read_bytes()


def test_a_tag_that_is_given_opens_no_package(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(package: Path) -> bytes:
        raise AssertionError(package)

    monkeypatch.setattr("builder.io.archive.unpacking.manifest_bytes", unread)
    assert release_tag(desk.dist, desk.project, "v1") == "v1"


@pytest.mark.parametrize(
    ("api", "site"),
    [
        ("https://api.github.com", "https://github.com"),
        ("https://git.example:8443/api/v3", "https://git.example:8443"),
    ],
)
def test_people_download_from_another_host_than_the_api(project: Project, api: str, site: str) -> None:
    publishing = dataclasses.replace(project.publish, api=api, repository="owner/name")
    assert index_url(publishing, "v1") == f"{site}/owner/name/releases/download/v1/index.json"


def test_a_package_that_cannot_be_read_does_not_hide_the_tag(desk: Desk) -> None:
    (desk.dist / "ortpacks-latest-1.23.2-cuda12.9-linux-x64.tar.zst").write_bytes(b"<html>404</html>")
    assert release_tag(desk.dist, desk.project) == TAG


@pytest.mark.parametrize("tag", ["v 1", "-v1", "v1..2", "v1.lock", "v1.lock/a", "v1/", "a~b"])
def test_a_tag_that_git_refuses_is_refused_first(desk: Desk, tag: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a tag"):
        desk.publish(PublishOptions(tag=tag))
    assert desk.github.requests == []
