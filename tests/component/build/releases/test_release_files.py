"""Tests of the files that are made for a release besides its packages."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from backports import zstd

from builder.build.verbs.releases.releasing import add_inspector, add_zips
from builder.contents.integrity import read_checksums
from builder.errors import IntegrityError
from builder.files.digest import file_digest
from builder.io.wiring import Wiring
from tests.support.factories import official_wheels as official
from tests.support.factories.project_copy import Place
from tests.support.fakes.ports import FakeReporter, reported


def test_inspect_in_one_file_is_made_and_listed(tmp_path: Path, root: Path) -> None:
    """Publishing uploads the files that ``SHA256SUMS`` lists."""
    shop = Wiring(root, dist=tmp_path, reporter=FakeReporter())
    add_inspector(shop)
    (inspector,) = tmp_path.glob("*.pyz")
    assert read_checksums(tmp_path) == {"ortpacks-inspect.pyz": file_digest(inspector).sha256}
    assert "builder/inspect/__main__.py" in ZipFile(inspector).namelist()


NAME = "ortpacks-windows-1.23.2-cuda12.9-win-x64"


@pytest.fixture
def shop(root: Path, tmp_path: Path) -> Wiring:
    made = Wiring(root, dist=tmp_path / "dist", reporter=FakeReporter())
    made.dist.mkdir()
    official.write_package(made.dist)
    return made


def write_windows(
    shop: Wiring, *, swapped: bool = False, glibc: str = "2.27", form: str = ".tar.zst"
) -> Path:
    return official.write_package(
        shop.dist, name=NAME, variant="windows", platform="win-x64", swapped=swapped, glibc=glibc, form=form
    )


def test_each_package_for_windows_is_in_the_release_as_a_zip_too(shop: Wiring) -> None:
    package = write_windows(shop)
    add_zips(shop)
    (zipped,) = shop.dist.glob("*.zip")
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress(package.read_bytes()))) as tar:
        members = {one.name: tar.extractfile(one) for one in tar if one.isfile()}
        wanted = {name: stream.read() for name, stream in members.items() if stream}
    with ZipFile(zipped) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == wanted
    assert f"{NAME}/manifest.json" in wanted
    assert read_checksums(shop.dist)[zipped.name] == file_digest(zipped).sha256


def test_a_zip_is_made_once_and_again_of_a_new_package_or_when_it_is_damaged(shop: Wiring) -> None:
    write_windows(shop)
    add_zips(shop)
    zipped = shop.dist / f"{NAME}.zip"
    first, made = zipped.read_bytes(), zipped.stat().st_ino
    add_zips(shop)
    assert zipped.stat().st_ino == made
    with ZipFile(zipped) as archive:
        last = archive.infolist()[-1]
        manifest = archive.getinfo(f"{NAME}/manifest.json")
    for one in (last, manifest):
        content = one.header_offset + 30 + len(one.filename)
        zipped.write_bytes(first[:content] + b"\xff" + first[content + 1 :])
        add_zips(shop)
        assert zipped.read_bytes() == first
    write_windows(shop, glibc="2.34")
    add_zips(shop)
    assert zipped.read_bytes() != first


def test_a_package_that_is_not_what_its_manifest_says_gets_no_zip(shop: Wiring) -> None:
    write_windows(shop, swapped=True)
    with pytest.raises(IntegrityError, match=r"providers_cuda\.so: not what the manifest names"):
        add_zips(shop)
    assert list(shop.dist.glob("*.zip*")) == []


def test_the_zip_of_a_package_that_is_gone_goes_too(shop: Wiring) -> None:
    package = write_windows(shop)
    add_zips(shop)
    package.unlink()
    add_zips(shop)
    assert list(shop.dist.glob("*.zip")) == []
    assert ".zip" not in (shop.dist / "SHA256SUMS").read_text()


def test_a_zip_larger_than_the_budget_is_told_and_left_out(shop: Wiring) -> None:
    """The message appears once for both archives of a package."""
    write_windows(shop)
    write_windows(shop, form=".tar.gz")
    bundle = replace(shop.project.bundle, budget=100)
    shop.__dict__["project"] = replace(shop.project, bundle=bundle)
    add_zips(shop)
    assert list(shop.dist.glob("*.zip")) == []
    told = [line for line in reported(shop) if "is left out: it is larger than bundle.budget" in line]
    assert len(told) == 1


def test_a_mirrors_client_gets_no_place_that_is_no_repository(place: Place, tmp_path: Path) -> None:
    """The client has the address of its release on GitHub inside, whatever mirror it lies on."""
    official.write_package(tmp_path / "dist")
    place.env["GITHUB_REPOSITORY"] = "https://github.com/ada/ortpacks"
    told = place.fails(2, "mirror", "--to=mirror", f"--dist={tmp_path / 'dist'}")
    assert "GITHUB_REPOSITORY" in told
    assert "'https://github.com/ada/ortpacks', not owner/name" in told
    assert not (tmp_path / "dist/ortpacks.pyz").exists()
