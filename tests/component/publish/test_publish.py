"""Tests of publish with the real GitHub client and the double: packages, pages for people, news."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests

from builder.contents.card_grid import CardRow, Grid, grid_name, table
from builder.errors import CheckFailedError, IntegrityError, NothingToDoError
from builder.formats.json_values import json_text
from builder.publish.locations import index_url, release_tag
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions
from tests.doubles.github import HEAD
from tests.support.factories.public_view import seen
from tests.support.factories.publishing import TAG, Desk, bytes_in
from tests.support.factories.releases import TEXTS, append_sum, manifest, write_package
from tests.support.html_page import Page
from tests.support.messages import Told


def packages_in(desk: Desk) -> list[dict[str, Any]]:
    packages: list[dict[str, Any]] = json.loads((desk.dist / "index.json").read_text())["packages"]
    return packages


def test_all_of_dist_is_public_byte_for_byte_and_the_index_went_up_last(desk: Desk) -> None:
    result = desk.publish()
    assert (result.tag, result.state, desk.github.tags) == (TAG, "published", {TAG: HEAD})
    assert set(bytes_in(desk.dist)) == {
        *(f"{name}{end}" for name in (LEGACY, MODERN) for end in (".tar.zst", ".cdx.json")),
        *("licences.html", "ortpacks.pyz", "SHA256SUMS", "1.root.json", "targets.json", "index.json"),
    }
    assert seen(desk.github, TAG) == bytes_in(desk.dist)
    writes = [seen.path.partition("?name=")[2] or seen.method for seen in desk.github.writes()]
    assert writes[0] == "POST"
    assert writes[-4:] == ["SHA256SUMS", "targets.json", "index.json", "PATCH"]
    sums = dict(line.split("  ")[::-1] for line in (desk.dist / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == set(bytes_in(desk.dist)) - {"SHA256SUMS", "targets.json", "1.root.json"}
    assert [package["variant"] for package in packages_in(desk)] == ["legacy", "modern"]
    for package in packages_in(desk):
        assert (desk.dist / package["file"]).stat().st_size == package["size"]
        assert sums[package["file"]] == package["sha256"]


def test_both_layouts_and_kinds_of_archive_go_up_and_into_the_index(desk: Desk) -> None:
    write_package(desk.dist, manifest("legacy"), padding=5000, suffix=".tar.gz")
    write_package(desk.dist, manifest("legacy", layout="thin"), padding=5000)
    write_package(desk.dist, manifest("legacy", layout="thin"), padding=5000, suffix=".tar.gz")
    assert desk.publish().state == "published"
    found = [(item["file"].partition("linux-x64")[2], item["layout"]) for item in packages_in(desk)]
    kinds = [(suffix, layout) for suffix in (".tar.gz", ".tar.zst") for layout in ("full", "thin")]
    assert (sorted(found[:4]), found[4:]) == (kinds, [(".tar.zst", "full")])
    assert {item["installed_size"] for item in packages_in(desk)} == {6234}
    assert len(desk.verified) == 5
    (release,) = desk.github.releases.values()
    assert release.body.count("| legacy | **Maxwell**") == 1
    assert release.body.count("-thin-linux-x64.tar.gz](") == 1
    assert "{{" not in release.body


def test_the_notes_say_which_package_is_for_which_card_and_how_to_install(desk: Desk, told: Told) -> None:
    desk.publish()
    (release,) = desk.github.releases.values()
    told(re.sub("`[0-9a-f]{64}`", "`<sha256>`", release.body))


def test_the_notes_say_what_a_newer_onnxruntime_brings_to_a_card_and_that_it_sends_usage_data(
    desk: Desk,
) -> None:
    desk.rebuild(manifest("legacy", version="1.30.0"))
    desk.publish(PublishOptions(allow=Leniency(mixed=True), tag=TAG))
    (release,) = desk.github.releases.values()
    of_legacy, of_modern = release.body.partition("\n- **legacy**")[2].split("\n- **modern**")
    for told in ("TensorScatter", "PagedAttention", "ORT_DISABLE_TELEMETRY"):
        assert (told in of_legacy, told in of_modern) == (True, False)


@pytest.mark.parametrize(("damaged", "said"), [(False, "is of other bytes"), (True, "is not JSON")])
def test_the_notes_have_the_cards_of_these_very_bytes(desk: Desk, damaged: bool, said: str) -> None:
    """A grid of other bytes, and one that cannot be read, are reported and left out."""
    legacy, modern = sorted(desk.dist.glob("*.tar.zst"))
    cards = (CardRow("8.6", "native", "native", (), ()),)
    sha256 = hashlib.sha256(modern.read_bytes()).hexdigest()
    grid = Grid(1, modern.name, sha256, "modern", "1.23.2", None, "580.65.06", cards)
    (desk.dist / grid_name(modern.name)).write_text(json_text(grid))
    (desk.dist / grid_name(legacy.name)).write_text("{" if damaged else json_text(grid))
    assert desk.publish().state == "published"
    (release,) = desk.github.releases.values()
    assert table(grid) in release.body
    assert release.body.count("<details>") == 1
    assert f"{grid_name(legacy.name)} {said}" in desk.output
    assert [asset for asset in release.assets.values() if "cards" in asset.name] == []


def test_a_dry_run_writes_only_what_is_signed_and_a_run_again_does_nothing(desk: Desk) -> None:
    """Between them the release workflow adds its attestation; a client that was made anew is no finding."""
    assert desk.publish(PublishOptions(dry_run=True)).state == "dry-run"
    assert desk.github.writes() == []
    assert "↑ index.json" in desk.output
    assert "dry run: 10 steps to take" in desk.output
    signed = (desk.dist / "SHA256SUMS").read_text().splitlines()
    attestation = desk.dist / "attestation.sigstore.json"
    attestation.write_text("signed")
    append_sum(desk.dist, attestation)
    desk.publish(PublishOptions(draft=True))
    (more,) = set((desk.dist / "SHA256SUMS").read_text().splitlines()) - set(signed)
    assert more.endswith(f"  {attestation.name}")
    (desk.dist / "ortpacks.pyz").write_bytes(b"PK the next client")
    desk.publish()
    assert desk.github.contents(TAG) == bytes_in(desk.dist)
    before = len(desk.github.writes())
    assert desk.publish().state == "unchanged"
    assert len(desk.github.writes()) == before
    assert "already published, nothing to do" in desk.output


def test_a_draft_stays_one_and_the_next_run_publishes_it_on_its_commit(desk: Desk) -> None:
    assert desk.publish(PublishOptions(draft=True, commit="a" * 40)).state == "draft"
    (release,) = desk.github.releases.values()
    assert release.draft
    assert "\ncomplete draft, not public: http" in desk.output
    before = len(desk.github.writes())
    assert desk.publish(PublishOptions(commit="b" * 40)).state == "published"
    assert [seen.method for seen in desk.github.writes()[before:]] == ["PATCH"]
    assert desk.github.tags == {TAG: "b" * 40}


def test_several_drafts_the_oldest_is_completed_the_others_are_named(desk: Desk) -> None:
    first = desk.github.create(TAG, "", "", draft=True)
    second = desk.github.create(TAG, "", "", draft=True)
    desk.publish()
    assert (first.draft, second.draft) == (False, True)
    assert "another draft of" in desk.output


def test_every_package_is_verified_and_a_bad_one_stops_all(desk: Desk) -> None:
    def reject(path: Path) -> None:
        if "legacy" in path.name:
            raise IntegrityError("lib/x.so is damaged")

    desk.verify = reject
    with pytest.raises(CheckFailedError, match=r"R012 ortpacks-legacy.*lib/x\.so is damaged"):
        desk.publish()
    assert len(desk.verified) == 2
    assert desk.github.requests == []


def test_an_empty_dist_is_said_plainly(desk: Desk, tmp_path: Path) -> None:
    desk.dist = tmp_path / "empty"
    desk.dist.mkdir()
    with pytest.raises(NothingToDoError, match="holds no package"):
        desk.publish()


def test_the_index_is_where_it_was_said_to_be_before(desk: Desk) -> None:
    assert release_tag(desk.dist, desk.project, NEXT) == NEXT
    desk.publish()
    url = index_url(desk.project.publish, TAG)
    assert requests.get(url, timeout=5).content == (desk.dist / "index.json").read_bytes()
    (desk.dist / "ortpacks-latest-1.23.2-cuda12.9-linux-x64.tar.zst").write_bytes(b"<html>404</html>")
    assert release_tag(desk.dist, desk.project, None) == TAG, "what cannot be read does not hide the tag"


def test_the_tag_follows_the_packages_not_the_configuration(desk: Desk) -> None:
    desk.rebuild(*(manifest(variant, version="1.21.0") for variant in ("legacy", "modern")))
    assert desk.publish(PublishOptions(dry_run=True)).tag == "gpu-libs-v1.21.0"


LEGACY = "ortpacks-legacy-1.23.2-cuda12.9-linux-x64"

MODERN = "ortpacks-modern-1.23.2-cuda12.9-linux-x64"

NEXT = "gpu-libs-v1.23.2-2"


def body_of(desk: Desk, tag: str) -> str:
    return next(release.body for release in desk.github.releases.values() if release.tag == tag)


def test_each_package_has_its_sbom_and_the_licences_page_has_every_file(desk: Desk, told: Told) -> None:
    desk.publish()
    there = desk.github.contents(TAG)
    assert [there[f"{name}.cdx.json"] for name in (LEGACY, MODERN)] == [TEXTS["sbom.cdx.json"]] * 2
    page = Page(there["licences.html"].decode())
    told("\n".join(f"{kind}: {text}" for kind in ("h2", "td", "pre") for text in page.texts(kind)))


def test_a_package_without_its_licence_is_not_released(desk: Desk) -> None:
    entry = manifest("legacy")
    strange = dataclasses.replace(entry.files[0], licence="licenses/gone.txt")
    desk.rebuild(dataclasses.replace(entry, files=(strange, *entry.files[1:])))
    with pytest.raises(IntegrityError, match=rf"{LEGACY}.tar.zst lacks licenses/gone.txt"):
        desk.publish()
    assert desk.github.requests == []


def test_a_release_without_a_package_needs_a_flag_and_that_ones_sbom_goes_too(desk: Desk) -> None:
    """variants.yaml, not ``dist``, decides which packages a release needs."""
    desk.publish(PublishOptions(dry_run=True))
    (desk.dist / f"{LEGACY}.tar.zst").unlink()
    sums = desk.dist / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(line for line in lines if f"{LEGACY}.tar.zst" not in line))
    with pytest.raises(CheckFailedError, match="R015 legacy"):
        desk.publish()
    assert desk.publish(PublishOptions(allow=Leniency(partial=True))).state == "published"
    assert not (desk.dist / f"{LEGACY}.cdx.json").exists()
    assert LEGACY not in sums.read_text()
    assert f"{LEGACY}.cdx.json" not in desk.github.contents(TAG)


@pytest.mark.parametrize("changes", [True, False])
def test_the_next_release_says_what_is_new(desk: Desk, told: Told, changes: bool) -> None:
    desk.publish()
    if changes:
        capabilities = {**manifest("legacy").capabilities, "7.5": "jit"}
        layouts = (manifest("legacy", layout=layout) for layout in ("thin", "full"))
        desk.rebuild(*(dataclasses.replace(one, capabilities=capabilities) for one in layouts))
    desk.publish(PublishOptions(tag=NEXT))
    told(body_of(desk, NEXT).partition(f"## Since {TAG}\n")[2].partition("\n## ")[0].strip())


@pytest.mark.parametrize(
    "content", [b"\xff<html>", b'{"format": 1}', bytes(17 << 20), b""], ids=["HTML", "old", "huge", "half"]
)
def test_an_earlier_index_that_is_not_read_leaves_no_news(desk: Desk, told: Told, content: bytes) -> None:
    release = desk.github.create("old", "", "", draft=False)
    desk.github.create("without an index", "", "", draft=False)
    desk.github.publish(release)
    desk.github.store(release, "index.json", content, state="uploaded" if content else "starter")
    assert desk.publish().state == "published"
    assert "## Since" not in body_of(desk, TAG)
    told(next(line for line in desk.reporter.lines if "index.json of old" in line))


def test_a_package_that_cannot_run_every_model_is_marked(desk: Desk) -> None:
    """The factory's lean packages lack com.microsoft; the others lack nothing."""
    lean = manifest("legacy", profile="lean")
    desk.rebuild(lean)
    desk.publish(PublishOptions(allow=Leniency(lean=True)))
    (marked,) = [line for line in body_of(desk, TAG).splitlines() if "It does not run every model" in line]
    assert f"{lean.name}: Transformer models fail" in marked


def test_it_stays_a_draft_when_the_release_is_not_what_was_uploaded(desk: Desk) -> None:
    desk.github.fail("assets", "meddle-more")
    with pytest.raises(IntegrityError, match=r"stays a draft[\s\S]*\+ somebody-elses"):
        desk.publish()
    assert desk.publish().state == "published"
