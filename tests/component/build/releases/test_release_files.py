"""Tests of the files that are made for a release besides its packages."""

from pathlib import Path
from zipfile import ZipFile

from builder.contents.integrity import read_checksums
from builder.files.digest import file_digest
from tests.support.factories import official_wheels as official
from tests.support.factories.project_copy import Place


def test_the_programs_are_made_and_listed_and_those_of_other_versions_go(programs: Path) -> None:
    """Publishing uploads the client, and the files that ``SHA256SUMS`` lists."""
    files = {path.name: file_digest(path).sha256 for path in programs.iterdir()}
    client = files.pop("ortpacks.pyz")
    del files["SHA256SUMS"]
    assert set(files) == {
        *("install.sh", "ortpacks-inspect.pyz", "ortpacks-1.0.0.tgz"),
        *("ortpacks-1.0.0-py3-none-any.whl", "ortpacks_runtime-1.0.0-py3-none-any.whl"),
    }
    assert read_checksums(programs) == files
    assert "builder/inspect/__main__.py" in ZipFile(programs / "ortpacks-inspect.pyz").namelist()
    assert client in (programs / "install.sh").read_text()
    gzip_without_time = b"\x1f\x8b\x08\x00" + bytes(4)
    assert (programs / "ortpacks-1.0.0.tgz").read_bytes().startswith(gzip_without_time)


def test_a_mirrors_client_gets_no_place_that_is_no_repository(place: Place, tmp_path: Path) -> None:
    """The client has the address of its release on GitHub inside, whatever mirror it lies on."""
    official.write_package(tmp_path / "dist")
    place.env["GITHUB_REPOSITORY"] = "https://github.com/ada/ortpacks"
    told = place.fails(2, "mirror", "--to=mirror", f"--dist={tmp_path / 'dist'}")
    assert "GITHUB_REPOSITORY" in told
    assert "'https://github.com/ada/ortpacks', not owner/name" in told
    assert not (tmp_path / "dist/ortpacks.pyz").exists()
