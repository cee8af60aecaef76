"""Tests of a release's files for people and scanners: SBOMs, the licences page, news."""

from __future__ import annotations

import dataclasses
import json

import pytest

from builder.errors import IntegrityError
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions
from tests.support.factories.publishing import TAG, Desk
from tests.support.factories.releases import TEXTS, append_sum, manifest, write_package
from tests.support.html_page import Page
from tests.support.messages import Told

LEGACY = "ortpacks-legacy-1.23.2-cuda12.9-linux-x64"

MODERN = "ortpacks-modern-1.23.2-cuda12.9-linux-x64"

NEXT = "gpu-libs-v1.23.2-2"


def body_of(desk: Desk, tag: str) -> str:
    return next(release.body for release in desk.github.releases.values() if release.tag == tag)


def test_each_package_has_its_sbom_beside_it_as_it_is_inside(desk: Desk) -> None:
    desk.publish()
    for name in (LEGACY, MODERN):
        assert desk.github.contents(TAG)[f"{name}.cdx.json"] == TEXTS["sbom.cdx.json"]


def test_the_licences_page_shows_every_file_and_each_text_once_unharmed(desk: Desk) -> None:
    desk.publish()
    page = Page(desk.github.contents(TAG)["licences.html"].decode())
    assert page.texts("h2") == [LEGACY, MODERN, "LICENSE"]
    cells = page.texts("td")
    rows = [cells[start : start + 4] for start in range(0, len(cells), 4)]
    once = [
        ["compiled", "ortpacks", "LICENSE", "lib/x.so"],
        ["nvidia-y-cu12==1.2", "ortpacks", "LICENSE", "lib/liby.so.12"],
    ]
    assert rows == once * 2
    assert page.texts("pre") == [TEXTS["LICENSE"].decode()]


def test_a_package_without_its_licence_is_not_released(desk: Desk) -> None:
    entry = manifest("legacy")
    strange = dataclasses.replace(entry.files[0], licence="licenses/gone.txt")
    write_package(desk.dist, dataclasses.replace(entry, files=(strange, *entry.files[1:])))
    (desk.dist / "SHA256SUMS").unlink()
    for path in sorted(desk.dist.glob("ortpacks-*")):
        append_sum(desk.dist, path)
    with pytest.raises(IntegrityError, match=rf"{LEGACY}.tar.zst lacks licenses/gone.txt"):
        desk.publish()
    assert desk.github.requests == []


def test_the_sbom_of_a_package_that_is_gone_goes_too(desk: Desk) -> None:
    desk.publish(PublishOptions(dry_run=True))
    (desk.dist / f"{LEGACY}.tar.zst").unlink()
    sums = desk.dist / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    sums.write_text("".join(line for line in lines if f"{LEGACY}.tar.zst" not in line))
    desk.publish(PublishOptions(allow=Leniency(partial=True)))
    assert not (desk.dist / f"{LEGACY}.cdx.json").exists()
    assert LEGACY not in sums.read_text()
    assert f"{LEGACY}.cdx.json" not in desk.github.contents(TAG)


def test_a_first_release_says_nothing_of_news(desk: Desk) -> None:
    desk.publish()
    assert "## Since" not in body_of(desk, TAG)


@pytest.mark.parametrize("changes", [True, False])
def test_the_next_release_says_what_is_new(desk: Desk, told: Told, changes: bool) -> None:
    desk.publish()
    if changes:
        (desk.dist / "SHA256SUMS").unlink()
        capabilities = {**manifest("legacy").capabilities, "7.5": "jit"}
        for layout, padding in (("thin", 10), ("full", 300_000)):
            newer = dataclasses.replace(manifest("legacy", layout=layout), capabilities=capabilities)
            write_package(desk.dist, newer, padding=padding)
        append_sum(desk.dist, desk.dist / f"{MODERN}.tar.zst")
    desk.publish(PublishOptions(tag=NEXT))
    told(body_of(desk, NEXT).partition(f"## Since {TAG}\n")[2].partition("\n## ")[0].strip())


@pytest.mark.parametrize(
    ("content", "state"),
    [
        *((content, "uploaded") for content in (b"<html>", b'{"format": 1}', b"\xff\xfe", bytes(17 << 20))),
        (b"{}", "starter"),
    ],
    ids=["HTML", "old", "binary", "huge", "half"],
)
def test_an_index_of_before_that_is_not_read_leaves_the_news_out(
    desk: Desk, told: Told, content: bytes, state: str
) -> None:
    release = desk.github.create("old", "", "", draft=False)
    desk.github.store(release, "index.json", content, state=state)
    assert desk.publish().state == "published"
    assert "## Since" not in body_of(desk, TAG)
    told(next(line for line in desk.reporter.lines if "index.json of old" in line))


def test_a_release_of_before_without_an_index_is_no_obstacle(desk: Desk) -> None:
    desk.github.create("old", "", "", draft=False)
    assert desk.publish().state == "published"
    index = json.loads(desk.github.contents(TAG)["index.json"])
    assert len(index["packages"]) == 2


def test_a_package_that_cannot_run_every_model_is_marked(desk: Desk) -> None:
    """The factory's lean packages lack com.microsoft; the others lack nothing."""
    lean = manifest("legacy", profile="lean")
    desk.rebuild(lean)
    desk.publish(PublishOptions(allow=Leniency(lean=True)))
    marked = [line for line in body_of(desk, TAG).splitlines() if "It does not run every model" in line]
    assert len(marked) == 1
    assert f"{lean.name}: Transformer models fail" in marked[0]
