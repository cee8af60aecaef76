"""Tests of wheels among a release's files, and of a mirror's pages that list them."""

import json
import shutil
from pathlib import Path
from urllib.parse import urldefrag, urljoin
from zipfile import ZipFile

import pytest

from builder.build.verbs.releases import releasing
from builder.errors import IntegrityError, ReleaseConflictError
from builder.publish.wheels.index import add_wheels
from tests.doubles.github import GitHubDouble
from tests.support.factories import official_wheels as official
from tests.support.factories.mirroring import stamps
from tests.support.factories.official_wheels import PLATFORM, PYTHONS
from tests.support.factories.publishing import TAG
from tests.support.factories.signing import signing
from tests.support.factories.wheel_release import WheelShop, open_wheel_shop
from tests.support.fakes.ports import FakeReporter
from tests.support.html_page import Page
from tests.support.real_packages import sha256

STEM = "ortpacks_onnxruntime_gpu-1.23.2"

WHEELS = {f"{STEM}-{python}-{PLATFORM}{end}.whl" for python in PYTHONS for end in ("", "-modern")}

FILES = {*WHEELS, *(f"{wheel}.metadata" for wheel in WHEELS), f"{STEM}-variants.json"}

PAGE = "simple/ortpacks-onnxruntime-gpu/index.html"

NEWER = f"{TAG}-2"


@pytest.fixture
def stall(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelShop:
    return open_wheel_shop(root, tmp_path, monkeypatch)


def wheel_files(folder: Path) -> dict[str, str]:
    return {one.name: sha256(one) for one in folder.glob("ortpacks_onnxruntime_gpu*")}


def test_publish_signs_the_wheels(stall: WheelShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "signing_of", lambda *_: signing())
    with GitHubDouble(tmp_path / "github").running() as github:
        stall.publish(github)
        release = github.published(TAG)
        assert release is not None
        assets = {one.name: str(one.digest) for one in release.assets.values()}
    found = wheel_files(stall.dist)
    assert set(found) == FILES
    listed = dict(line.split("  ")[::-1] for line in (stall.dist / "SHA256SUMS").read_text().splitlines())
    signed = json.loads((stall.dist / "targets.json").read_text())["signed"]["targets"]
    for name, digest in found.items():
        assert assets[name] == f"sha256:{digest}"
        assert listed[name] == signed[name]["hashes"]["sha256"] == digest


def test_wheels_of_a_package_that_was_built_again_are_made_again(stall: WheelShop) -> None:
    add_wheels(stall.shop)
    before = wheel_files(stall.dist)
    official.write_package(stall.dist, capabilities={"8.6": "native"})
    other = stall.dist / f"wheels/latest/{STEM}-cp39-cp39-{PLATFORM}.whl"
    other.parent.mkdir()
    shutil.copyfile(next((stall.dist / "wheels/modern").iterdir()), other)
    add_wheels(stall.shop)
    after = wheel_files(stall.dist)
    assert set(after) == FILES, "a variant in no package is left out"
    assert {name for name in FILES if before[name] != after[name]} == {
        name for name in FILES if "-modern" in name or "variants" in name
    }
    document = json.loads((stall.dist / f"{STEM}-variants.json").read_text())
    assert document["variants"]["modern"]["nvidia"]["sm_arch"] == ["86_real", "89_real"]


def test_without_bundle_wheels_the_release_has_none_and_earlier_ones_go(stall: WheelShop) -> None:
    add_wheels(stall.shop)
    (stall.dist / f"{STEM}-cp39-cp39-{PLATFORM}.whl").write_bytes(b"not in SHA256SUMS, so not the release's")
    stall.set_wheels(False)
    add_wheels(stall.shop)
    assert list(wheel_files(stall.dist)) == [f"{STEM}-cp39-cp39-{PLATFORM}.whl"]
    assert "onnxruntime_gpu" not in (stall.dist / "SHA256SUMS").read_text()


def test_a_version_whose_official_wheels_are_not_pinned_is_told_and_left_out(stall: WheelShop) -> None:
    for key in [key for key in stall.shop.lock.pins if "onnxruntime-gpu" in key]:
        del stall.shop.lock.pins[key]  # type: ignore[attr-defined]
    add_wheels(stall.shop)
    assert {name for name in wheel_files(stall.dist) if name.endswith(".whl")} == {
        name for name in WHEELS if "-modern" not in name
    }
    assert isinstance(stall.shop.reporter, FakeReporter)
    said = "modern gets no wheels: inputs.lock has none of onnxruntime-gpu==1.23.2"
    assert any(said in line for line in stall.shop.reporter.lines)


def links(stall: WheelShop) -> dict[str, tuple[Path, str]]:
    """Return, by name, the file that each link of the mirror's page leads to and the sha256 in the link."""
    found = {}
    for link in Page((stall.root / PAGE).read_text()).links():
        where, digest = urldefrag(urljoin(f"http://mirror/{PAGE}", str(link["href"])))
        file = stall.root / where.removeprefix("http://mirror/")
        found[file.name] = (file, digest.removeprefix("sha256="))
    return found


def test_a_mirrors_pages_lead_to_the_files_of_the_newest_release_of_a_version(stall: WheelShop) -> None:
    stall.mirror()
    found = links(stall)
    assert set(found) == {name for name in FILES if not name.endswith(".metadata")}
    assert {file.parent for file, _ in found.values()} == {stall.root / TAG}
    assert [name for name, (file, digest) in found.items() if sha256(file) != digest] == []
    assert (stall.root / "simple/index.html").is_file()
    stall.mirror(NEWER)
    assert {file.parent.name for file, _ in links(stall).values()} == {NEWER}
    shutil.rmtree(stall.root / NEWER)
    stall.mirror()
    assert links(stall) == found


def test_a_mirror_without_wheels_has_no_pages(stall: WheelShop) -> None:
    stall.mirror()
    stall.set_wheels(False)
    stall.mirror(replaces=True)
    assert not (stall.root / "simple").exists()
    assert list(wheel_files(stall.root / TAG)) == []


def test_pages_are_written_once_and_those_that_a_kill_left_out_by_the_next_run(stall: WheelShop) -> None:
    stall.mirror()
    before, content = stamps(stall.root), (stall.root / PAGE).read_bytes()
    stall.mirror()
    assert stamps(stall.root) == before
    (stall.root / PAGE).unlink()
    stall.mirror()
    assert (stall.root / PAGE).read_bytes() == content


@pytest.mark.parametrize("wheels", [True, False])
def test_somebody_elses_pages_are_left_alone_before_a_write(stall: WheelShop, wheels: bool) -> None:
    """Without wheels too, where an older release has some."""
    stall.mirror()
    shutil.rmtree(stall.root / "simple")
    (stall.root / "simple/torch").mkdir(parents=True)
    stall.set_wheels(wheels)
    with pytest.raises(ReleaseConflictError, match="is not the index of wheels that a mirror has there"):
        stall.mirror(NEWER)
    assert not (stall.root / NEWER).exists()


def test_a_wheel_that_is_gone_from_a_release_is_on_no_page(stall: WheelShop) -> None:
    stall.mirror()
    gone = next((stall.root / TAG).glob("*.whl"))
    gone.unlink()
    stall.set_wheels(False)
    stall.mirror(NEWER)
    assert set(links(stall)) == {name for name in FILES if not name.endswith(".metadata")} - {gone.name}


def test_an_older_release_with_a_flipped_bit_stops_no_newer_one(stall: WheelShop) -> None:
    stall.mirror()
    for name in (next((stall.root / TAG).glob("*.metadata")).name, "SHA256SUMS"):
        file = stall.root / TAG / name
        file.write_bytes(b"\xff" + file.read_bytes()[1:])
        stall.mirror(NEWER)
        assert {place.parent.name for place, _ in links(stall).values()} == {NEWER}


def test_a_damaged_wheel_is_not_released(stall: WheelShop) -> None:
    """The wheel for the CPU is checked too, although it is released unchanged."""
    add_wheels(stall.shop)
    wheel = next((stall.dist / "wheels/cpu").glob("*.whl"))
    with ZipFile(wheel, "a") as archive:
        archive.writestr("onnxruntime/added.py", b"")
    with pytest.raises(IntegrityError, match=r"added\.py"):
        add_wheels(stall.shop)
