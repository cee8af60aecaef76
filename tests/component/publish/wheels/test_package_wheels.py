"""Tests of wheel: official wheels with a package's provider, read back with pip, zipfile and packaging."""

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.metadata import parse_email

from builder.errors import CheckFailedError, IntegrityError, NothingToDoError, ValidationError
from builder.formats.manifest import PluginEntry
from builder.io.cyclonedx import bom_problems
from builder.io.wiring import Wiring
from builder.publish.wheels.index import write_index
from builder.publish.wheels.package_wheels import make_missing_wheels, make_wheels, wheeled_packages
from tests.support import ROOT
from tests.support.factories import official_wheels as official
from tests.support.factories.official_wheels import CAPI, PLATFORM, PROVIDER, PYTHONS, write_package
from tests.support.factories.wheel_release import members
from tests.support.messages import Told

INFO = "ortpacks_onnxruntime_gpu-1.23.2.dist-info"


@pytest.fixture
def shop(root: Path, tmp_path: Path) -> Wiring:
    return official.workshop(root, tmp_path)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return the wheels of a package, which lie in ``wheels/modern`` below it and which tests only read."""
    shop = official.workshop(ROOT, tmp_path_factory.mktemp("made"))
    return make_wheels(shop, write_package(shop.dist))


def test_there_is_one_for_each_python_of_the_official_wheel(wheels: tuple[Path, ...]) -> None:
    """``integration/test_wheel_installers`` has pip and uv install them."""
    assert [one.relative_to(one.parents[2]).as_posix() for one in wheels] == [
        f"wheels/modern/ortpacks_onnxruntime_gpu-1.23.2-{python}-{PLATFORM}.whl" for python in PYTHONS
    ]
    with ZipFile(wheels[1]) as archive:
        assert archive.getinfo(f"{CAPI}{PROVIDER}").external_attr >> 16 & 0o111


def test_only_the_provider_is_another_than_the_official_wheels(wheels: tuple[Path, ...]) -> None:
    made = members(wheels[0])
    theirs = members(next((wheels[0].parents[3] / "shelf").glob("onnxruntime_gpu-*cp312*")))
    same = {path for path, data in theirs.items() if made.get(path) == data}
    assert {path for path in theirs if "dist-info" not in path} - same == {f"{CAPI}{PROVIDER}"}
    provider = made[f"{CAPI}{PROVIDER}"]
    runpath = "$ORIGIN:$ORIGIN/../../nvidia/cublas/lib:$ORIGIN/../../nvidia/cuda_nvrtc/lib"
    assert provider.endswith(f"\0{runpath}\0libnvrtc.so.12".encode())


def test_its_metadata_and_tags(shop: Wiring, wheels: tuple[Path, ...], told: Told) -> None:
    """A provider that needs GLIBC 2.34 is for manylinux_2_34 (PEP 600, auditwheel's policies).

    The wheel for the CPU is the official one under our name.
    """
    newer = make_wheels(shop, write_package(shop.dist, glibc="2.34"))
    cpu = make_wheels(shop, official.write_cpu_package(shop.dist))
    for wheel in (wheels[1], newer[0], cpu[0]):
        made = members(wheel)
        assert parse_email(made[f"{INFO}/METADATA"])[1] == {}, "unknown fields"
        told("\n".join([wheel.name, made[f"{INFO}/METADATA"].decode(), made[f"{INFO}/WHEEL"].decode()]))
    theirs = members(next((shop.dist.parent / "shelf").glob("onnxruntime-*cp312*")))
    ours = members(cpu[0])
    assert {path for path, data in theirs.items() if ours.get(path) != data} <= {
        path for path in theirs if "dist-info" in path
    }


def test_its_sbom_is_valid_and_names_each_file_once(wheels: tuple[Path, ...], told: Told) -> None:
    made = members(wheels[0])
    text = made.pop(f"{INFO}/sboms/ortpacks.cdx.json")
    del made[f"{INFO}/RECORD"]
    assert bom_problems(text) == ()
    files = []
    for component in json.loads(text)["components"]:
        of_it = [one for one in component.get("components", [component]) if one["type"] == "file"]
        files += [(one["name"], one["hashes"][0]["content"]) for one in of_it]
        told("\n".join([component.get("purl", ""), *(one["name"] for one in of_it)]))
    assert sorted(files) == sorted((path, hashlib.sha256(data).hexdigest()) for path, data in made.items())


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({}, NothingToDoError, r"ONNX Runtime 1\.23\.2, and inputs\.lock has no wheels of"),
        ({"platform": "win-x64"}, NothingToDoError, "for cuda on win-x64: wheels are made for"),
        ({"claimed": ("90",)}, CheckFailedError, "B007"),
        ({"swapped": True}, IntegrityError, f"lib/{PROVIDER} is not the file that its manifest names"),
    ],
    ids=["unpinned", "Windows", "other code", "other bytes"],
)
def test_no_wheel_can_be_made(
    shop: Wiring, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    package = write_package(shop.dist, **changes)
    if not changes:
        shop.lock.pins.clear()  # type: ignore[attr-defined]
    with pytest.raises(error, match=words):
        make_wheels(shop, package)
    assert list((shop.dist / "wheels").glob("*")) == []


def test_wheels_are_the_same_bytes_again_and_a_damaged_official_wheel_leaves_them(shop: Wiring) -> None:
    package = write_package(shop.dist)
    before = {one.name: one.read_bytes() for one in make_wheels(shop, package)}
    assert {one.name: one.read_bytes() for one in make_wheels(shop, package)} == before
    last = next((shop.dist.parent / "shelf").glob("onnxruntime_gpu-*cp313t*"))
    data = bytearray(last.read_bytes())
    data[data.index(b"PK\3\4", 400) + 60] ^= 0xFF
    last.write_bytes(data)
    with pytest.raises(IntegrityError):
        make_wheels(shop, package)
    kept = {one.name: one.read_bytes() for one in (shop.dist / "wheels/modern").iterdir()}
    assert kept == before
    assert [one.name for one in (shop.dist / "wheels").iterdir()] == ["modern"]


def test_a_variants_package_is_found_in_dist(shop: Wiring) -> None:
    package = write_package(shop.dist)
    official.write_cpu_package(shop.dist)
    assert wheeled_packages(shop, ["modern"], []) == (package,)
    for variants, paths, error, words in (
        (["legacy"], [], NothingToDoError, "no package of it for legacy"),
        ([], ["gone.tar.zst"], ValidationError, "there is no such package"),
        ([], [], NothingToDoError, r"No package is named\. Name one, or a variant's: --variant \("),
    ):
        with pytest.raises(error, match=words):
            wheeled_packages(shop, variants, paths)


def test_build_makes_the_wheels_of_each_variants_first_package_once(shop: Wiring) -> None:
    package = write_package(shop.dist)
    thin = write_package(shop.dist, name="ortpacks-modern-1.23.2-cuda12.9-thin-linux-x64")
    other = write_package(
        shop.dist, name="ortpacks-directml-1.23.2-win-x64", platform="win-x64", variant="directml"
    )
    make_missing_wheels(shop, [package, thin, other])
    made = {one: one.stat().st_mtime_ns for one in (shop.dist / "wheels").rglob("*.whl")}
    assert {one.parent.name for one in made} == {"modern"}
    told = json.loads(members(next(iter(made)))[f"{INFO}/ortpacks.json"])
    assert told["package"]["name"] == "ortpacks-modern-1.23.2-cuda12.9-linux-x64"
    make_missing_wheels(shop, [package])
    assert {one: one.stat().st_mtime_ns for one in made} == made
    make_missing_wheels(shop, [thin])
    assert {one: one.stat().st_mtime_ns for one in made} != made
    next(iter(made)).unlink()
    make_missing_wheels(shop, [thin])
    assert all(one.is_file() for one in made), "as after lock has pinned the wheel of one more Python"


@pytest.mark.parametrize("text", [None, "[]", "{", '{"package": {}}'])
def test_build_replaces_a_wheel_that_names_no_package(shop: Wiring, text: str | None) -> None:
    package = write_package(shop.dist)
    wheel = make_wheels(shop, package)[0]
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{INFO}/{'other' if text is None else 'ortpacks.json'}", text or "")
    make_missing_wheels(shop, [package])
    assert json.loads(members(wheel)[f"{INFO}/ortpacks.json"])["package"]["variant"] == "modern"


def test_a_plugin_gets_one_wheel_for_every_python(shop: Wiring, tmp_path: Path) -> None:
    """Names of functions are those of ONNX Runtime's own plug-ins; no host is inside or required."""
    entry = PluginEntry(f"lib/{PROVIDER}", ("CUDAExecutionProvider",), "1.24.4", 30, None)
    name = "ortpacks-modern-1.23.2-cuda12.9-plugin-linux-x64"
    (made,) = make_wheels(shop, write_package(shop.dist, name=name, plugin=entry))
    stem = "onnxruntime_ep_cuda12_ortpacks-1.23.2"
    assert made.relative_to(shop.dist).as_posix() == (
        f"wheels/modern-plugin/{stem}-py3-none-manylinux_2_27_x86_64.whl"
    )
    with ZipFile(made) as archive:
        archive.extractall(tmp_path / "site")
    module = tmp_path / "site/onnxruntime_ep_cuda_ortpacks"
    library = module / PROVIDER
    assert b"$ORIGIN:$ORIGIN/../nvidia/cublas/lib" in library.read_bytes()
    spec = importlib.util.spec_from_file_location(module.name, module / "__init__.py")
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert (loaded.get_library_path(), loaded.get_ep_name()) == (str(library), "CUDAExecutionProvider")
    assert loaded.get_ep_names() == ["CUDAExecutionProvider"]
    files = members(made)
    metadata, _ = parse_email(files[f"{stem}.dist-info/METADATA"])
    assert metadata["requires_dist"] == [*("nvidia-cublas-cu12==12.9.1.4", "nvidia-cuda-nvrtc-cu12==12.9.86")]
    bom = files[f"{stem}.dist-info/sboms/ortpacks.cdx.json"]
    assert [*bom_problems(bom)] == []
    assert make_missing_wheels(shop, [*shop.dist.glob("*.tar.zst")]) == ("modern-plugin",)
    folder = write_index(shop, tmp_path / "simple")
    (listed,) = folder.glob("*/*-modern.whl")
    assert listed.parent.name == "onnxruntime-ep-cuda12-ortpacks"
    assert f'href="{listed.parent.name}/"' in (folder / "index.html").read_text()
