"""Tests of the choice between layouts and kinds of archive where a release has several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.client.install.unpack import open_tar
from builder.errors import IntegrityError, ToolMissingError
from builder.files import decompression
from builder.formats.package_names import Form
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, Server, libraries, name_of, serving, write_release
from tests.doubles.wheels import WHEELS, indexing, unpacked
from tests.support.forked import forked_pip

BOTH = ("full", "thin")

FORMS = (".tar.zst", ".tar.gz")

FULL, THIN = name_of("modern"), name_of("modern", layout="thin")


@pytest.fixture
def without_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ToolMissingError("Nothing here can unpack zstd.")

    monkeypatch.setattr(decompression, "require_zstd", missing)


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Return the index of a release with both layouts."""
    return write_release(tmp_path / "release", layouts=BOTH, wheels=WHEELS)


@pytest.fixture
def here(machine: Machine, tmp_path: Path) -> Path:
    """Return the environment of the machine's Python, which has NVIDIA's libraries."""
    machine.environments = (unpacked(tmp_path / "site-packages", *WHEELS),)
    return tmp_path / "site-packages"


def fetched(server: Server) -> list[str]:
    return [path.lstrip("/") for path, _ in server.requests if not path.endswith("index.json")]


def test_full_where_nothing_of_nvidias_is_here_and_thin_is_not_even_looked_at(
    machine: Machine, both: Path
) -> None:
    with serving(both.parent) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert fetched(server) == [f"{FULL}.tar.zst"]
    assert "Layout full: not all of NVIDIA's libraries are on this machine." in machine.out


@pytest.mark.usefixtures("here")
def test_thin_where_they_are_all_here_and_full_is_not_fetched(machine: Machine, both: Path) -> None:
    with serving(both.parent) as server:
        assert machine.run("install", "--index", f"{server.url}/", "--json") == 0, machine.err
        assert fetched(server) == [f"{THIN}.tar.zst"], "once: what was fetched to decide is what is installed"
    answer = json.loads(machine.out)
    assert (answer["package"]["name"], answer["package"]["layout"]) == (THIN, "thin")
    assert answer["installed"]["why"].startswith("Layout thin: NVIDIA's libraries are on this machine")
    assert {path.name for path in machine.lib.iterdir()} >= {"libcublas.so.12", "libcudnn.so.9"}


def test_full_where_one_byte_of_one_library_differs(machine: Machine, both: Path, here: Path) -> None:
    (library,) = here.rglob("libcudnn.so.9")
    library.write_bytes(b"!" + library.read_bytes()[1:])
    assert machine.run("install", "--index", str(both)) == 0, machine.err
    assert (machine.prefix / "current").resolve().name.startswith(FULL)
    assert (machine.lib / "libcudnn.so.9").read_bytes() == libraries(WHEELS)["lib/libcudnn.so.9"]
    assert machine.litter() == []


@pytest.mark.parametrize("layout", BOTH)
def test_what_was_asked_for_is_taken(machine: Machine, both: Path, layout: str) -> None:
    with indexing() as pypi:
        machine.pip, machine.work = {"PIP_INDEX_URL": pypi.url}, forked_pip
        assert machine.run("install", "--index", str(both), "--layout", layout) == 0, machine.err
    assert f"Layout {layout}: as asked with --layout." in machine.out
    assert machine.run("verify") == 0
    assert "7 files" in machine.out


def test_the_other_layout_of_the_same_package_is_linked_from_the_one_before(
    machine: Machine, both: Path
) -> None:
    assert machine.run("install", "--index", str(both), "--layout", "full") == 0
    assert machine.run("install", "--index", str(both), "--layout", "thin") == 0, machine.err
    assert (machine.lib / "libcudnn.so.9").stat().st_nlink == 2
    assert machine.run("install", "--index", str(both)) == 0
    assert "Already installed" in machine.out, "auto is content with either"
    assert (machine.prefix / "current").resolve().name.startswith(THIN)


def test_a_layout_that_is_not_released_is_said(machine: Machine, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    assert machine.run("install", "--index", str(release), "--layout", "full") == 9
    assert f"--layout full: {THIN} is released in layout thin only." in machine.err
    assert not machine.prefix.exists()


def test_thin_alone_needs_no_flag(machine: Machine, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    machine.environments = (unpacked(tmp_path / "site-packages", *WHEELS),)
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert "Layout thin: the release has no other." in machine.out


def test_select_shows_a_package_once(machine: Machine, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", layouts=BOTH, forms=FORMS, wheels=WHEELS)
    assert machine.run("select", "--index", str(release)) == 0
    assert machine.out.count(name_of("legacy")) == 1
    assert "it runs too" not in machine.out


def test_variant_takes_the_full_one_for_a_machine_without_gpu(machine: Machine, both: Path) -> None:
    machine.env = {}
    assert machine.run("install", "--index", str(both), "--variant", "legacy") == 0, machine.err
    assert (machine.prefix / "current").resolve().name.startswith(name_of("legacy"))


def test_zstd_is_taken_where_it_can_be_read(machine: Machine, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", forms=FORMS).parent
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert fetched(server) == [f"{FULL}.tar.zst"]


@pytest.mark.usefixtures("without_zstd")
def test_gzip_is_taken_where_it_cannot(machine: Machine, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", forms=FORMS).parent
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 0, machine.err
        assert fetched(server) == [f"{FULL}.tar.gz"]
    assert "As gzip: nothing here can unpack zstd." in machine.out
    assert (machine.lib / "libonnxruntime.so.1").read_bytes() == FILES["lib/libonnxruntime.so.1"]
    assert machine.run("verify") == 0


@pytest.mark.usefixtures("without_zstd")
def test_gzip_alone_needs_no_zstd_at_all(machine: Machine, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", forms=(".tar.gz",))
    assert machine.run("install", "--index", str(release)) == 0, machine.err


@pytest.mark.parametrize("spoil", [lambda data: data[:-30], lambda data: data[:500] + b"x" + data[501:]])
def test_a_damaged_gzip_is_no_full_disk(tmp_path: Path, spoil: object) -> None:
    release = write_release(tmp_path / "release", forms=(".tar.gz",)).parent
    path = tmp_path / "damaged.tar.gz"
    path.write_bytes(spoil((release / f"{FULL}.tar.gz").read_bytes()))  # type: ignore[operator]  # a lambda
    with pytest.raises(IntegrityError, match="is damaged"), open_tar(path, Form.GZ) as stream:
        stream.read()
