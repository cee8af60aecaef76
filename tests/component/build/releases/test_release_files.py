"""Tests of the files that are made for a release besides its packages."""

from pathlib import Path
from zipfile import ZipFile

from builder.build.verbs.releases.releasing import add_inspector
from builder.contents.integrity import read_checksums
from builder.files.digest import file_digest
from builder.io.wiring import Wiring
from tests.support.factories import official_wheels as official
from tests.support.factories.project_copy import Place
from tests.support.fakes.ports import FakeReporter


def test_inspect_in_one_file_is_made_and_listed(tmp_path: Path, root: Path) -> None:
    """Publishing uploads the files that ``SHA256SUMS`` lists."""
    shop = Wiring(root, dist=tmp_path, reporter=FakeReporter())
    add_inspector(shop)
    (inspector,) = tmp_path.glob("*.pyz")
    assert read_checksums(tmp_path) == {"ortpacks-inspect.pyz": file_digest(inspector).sha256}
    assert "builder/inspect/__main__.py" in ZipFile(inspector).namelist()


def test_a_mirrors_client_gets_no_place_that_is_no_repository(place: Place, tmp_path: Path) -> None:
    """The client has the address of its release on GitHub inside, whatever mirror it lies on."""
    official.write_package(tmp_path / "dist")
    place.env["GITHUB_REPOSITORY"] = "https://github.com/ada/ortpacks"
    told = place.fails(2, "mirror", "--to=mirror", f"--dist={tmp_path / 'dist'}")
    assert "GITHUB_REPOSITORY" in told
    assert "'https://github.com/ada/ortpacks', not owner/name" in told
    assert not (tmp_path / "dist/ortpacks.pyz").exists()
