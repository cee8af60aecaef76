"""Tests of wheel --index: its listing, and the properties by which an installer chooses a wheel.

``integration/test_wheel_installers`` shows that uv takes by them what the client would select on every GPU.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import ValidationError
from builder.formats.index import Index, IndexPackage, entry_of
from builder.formats.stored_file import StoredFile
from builder.io.wiring import Wiring
from builder.publish.wheels.index import labels, write_index
from builder.publish.wheels.package_wheels import make_wheels
from tests.support import ROOT
from tests.support.factories import official_wheels as official
from tests.support.factories import releases, wheel_variants
from tests.support.factories.official_wheels import PLATFORM, PYTHONS, write_package
from tests.support.factories.project_copy import Place
from tests.support.factories.wheel_release import members
from tests.support.fakes.ports import FakeReporter
from tests.support.html_page import Page
from tests.support.messages import Told
from tests.support.real_packages import sha256

PROJECT = "ortpacks-onnxruntime-gpu"


SIZES = {"legacy": 1_393, "modern": 1_407, "latest": 1_440, "official": 1_643, "exact": 1_400}


def entry(name: str) -> IndexPackage:
    """Return the index's entry of a variant."""
    support, driver = wheel_variants.told(name)
    manifest = replace(
        releases.manifest("modern"),
        name=f"ortpacks-{name}-1.23.2-cuda12.9-linux-x64",
        variant=name,
        capabilities=support,
        driver=driver,
    )
    return entry_of(manifest, StoredFile(f"{manifest.name}.tar.zst", SIZES[name], "0" * 64))


@pytest.mark.parametrize(
    "names", ["legacy modern latest", "legacy official latest", "official", "latest", "exact"]
)
def test_each_variant_has_the_values_of_the_gpus_for_which_select_takes_it(told: Told, names: str) -> None:
    """8.9 runs on modern and latest, and select takes the smaller archive.

    Code for 120a alone is not called 120_real: the provider gives that to 12.1 too.
    """
    given = labels(Index(4, "t", tuple(map(entry, names.split())), ()))
    rows = {
        name: [f"{feature} {' '.join(values)}" for feature, values in one.items()]
        for name, one in given.properties.items()
    }
    told("\n".join([*(f"{name}: {', '.join(row)}" for name, row in rows.items()), *given.lost]))


@pytest.fixture
def shop(root: Path, tmp_path: Path) -> Wiring:
    return official.workshop(root, tmp_path)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Wiring:
    """Return a shop with wheels of a variant and for the CPU, which tests only read."""
    made = official.workshop(ROOT, tmp_path_factory.mktemp("filled"))
    make_wheels(made, write_package(made.dist))
    make_wheels(made, official.write_cpu_package(made.dist))
    return made


def test_the_page_lists_every_wheel_with_its_sha256_and_metadata(filled: Wiring, tmp_path: Path) -> None:
    """Attributes are from PEPs 503 and 714."""
    folder = write_index(filled, tmp_path / "simple") / PROJECT
    stems = [f"ortpacks_onnxruntime_gpu-1.23.2-{python}-{PLATFORM}" for python in PYTHONS]
    wheels = {f"{stem}{end}" for stem in stems for end in (".whl", "-modern.whl")}
    links = {str(link["href"]): link for link in Page((folder / "index.html").read_text()).links()}
    names = {*wheels, "ortpacks_onnxruntime_gpu-1.23.2-variants.json"}
    assert set(links) == {f"{name}#sha256={sha256(folder / name)}" for name in names}
    for name in wheels:
        link = links[f"{name}#sha256={sha256(folder / name)}"]
        assert link["data-core-metadata"] == f"sha256={sha256(folder / f'{name}.metadata')}"
        assert link["data-requires-python"] == ">=3.10"
    assert [one["href"] for one in Page((tmp_path / "simple/index.html").read_text()).links()] == [
        f"{PROJECT}/"
    ]


def test_a_variants_wheel_is_the_one_in_dist_with_its_properties(filled: Wiring, tmp_path: Path) -> None:
    folder = write_index(filled, tmp_path / "simple") / PROJECT
    whole = json.loads((folder / "ortpacks_onnxruntime_gpu-1.23.2-variants.json").read_text())
    info = "ortpacks_onnxruntime_gpu-1.23.2.dist-info"
    for wheel in folder.glob("*-modern.whl"):
        made = members(wheel)
        plain = members(filled.dist / "wheels/modern" / wheel.name.replace("-modern", ""))
        assert json.loads(made.pop(f"{info}/variant.json")) == whole
        del made[f"{info}/RECORD"], plain[f"{info}/RECORD"]
        assert made == plain
    assert list(whole["variants"]) == ["modern"]


def test_an_index_replaces_the_last_one_by_the_same_bytes(filled: Wiring, tmp_path: Path) -> None:
    folder = write_index(filled, tmp_path / "simple")
    before = {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    (folder / PROJECT / "old.whl").write_bytes(b"")
    write_index(filled, folder)
    assert {one.name: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == before


def test_without_a_wheel_for_the_cpu_there_is_no_index(shop: Wiring, tmp_path: Path) -> None:
    make_wheels(shop, write_package(shop.dist))
    with pytest.raises(ValidationError, match=r"no wheels of 1\.23\.2 for the CPU, which pip takes"):
        write_index(shop, tmp_path / "simple")
    assert not (tmp_path / "simple").exists()


def test_a_variant_that_no_gpu_would_take_is_left_out_and_told(shop: Wiring, tmp_path: Path) -> None:
    none = {"5.0": "none", "12.0": "partial"}
    make_wheels(shop, write_package(shop.dist, capabilities=none))
    make_wheels(shop, official.write_cpu_package(shop.dist))
    folder = write_index(shop, tmp_path / "simple") / PROJECT
    assert list(folder.glob("*-modern.whl")) == []
    assert isinstance(shop.reporter, FakeReporter)
    assert any("of modern is left out: no GPU would take it" in line for line in shop.reporter.lines)


def test_a_folder_of_something_else_is_left_alone(filled: Wiring, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine")
    with pytest.raises(ValidationError, match="holds something else than an index of wheels"):
        write_index(filled, tmp_path / "mine")
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["file"]


def test_a_file_that_is_no_package_is_told(copied: Place) -> None:
    name = "ortpacks-modern-1.23.2-cuda12.9-linux-x64.tar.gz"
    (copied.folder / name).write_text("garbage")
    assert copied.fails(7, "wheel", name).startswith(f"error: {name} is damaged")
    (copied.folder / "thesis.pdf").write_text("garbage")
    assert copied.fails(2, "wheel", "thesis.pdf").startswith("error: 'thesis.pdf' is not a package")
    assert not (copied.folder / "dist/wheels").exists()


def test_an_index_of_no_wheels_is_nothing_to_do(copied: Place) -> None:
    said = copied.fails(3, "wheel", "--index", "simple")
    assert said.endswith("has no wheels. ./run wheel --variant NAME makes those of a package.\n")
    assert not (copied.folder / "simple").exists()
