"""Tests of wheel: official wheels with a package's provider, read back with pip, zipfile and packaging."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import parse_email
from packaging.requirements import Requirement

from builder.errors import CheckFailedError, IntegrityError, NothingToDoError, ValidationError
from builder.io.cyclonedx import bom_problems
from builder.io.wiring import Wiring
from builder.publish.wheels.package_wheels import make_missing_wheels, make_wheels, wheeled_packages
from tests.doubles.wheels import record_row
from tests.support import ROOT
from tests.support.factories import official_wheels as official
from tests.support.factories.official_wheels import CAPI, PLATFORM, PROVIDER, PYTHONS, write_package
from tests.support.schemas import schema

INFO = "ortpacks_onnxruntime_gpu-1.23.2.dist-info"


@pytest.fixture
def shop(root: Path, tmp_path: Path) -> Wiring:
    return official.workshop(root, tmp_path)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return the wheels of a package, which lie in ``wheels/modern`` below it and which tests only read."""
    shop = official.workshop(ROOT, tmp_path_factory.mktemp("made"))
    return make_wheels(shop, write_package(shop.dist))


def members(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def installed(wheel: Path, folder: Path) -> None:
    """Install the wheel with pip into ``folder``, for the wheel's own Python."""
    interpreter, abi = wheel.name.split("-")[2:4]
    target = ["--target", str(folder), "--no-deps", "--only-binary=:all:", "--no-index", "--no-compile"]
    version = f"--python-version={interpreter[2]}.{interpreter[3:]}"
    tags = [version, f"--abi={abi}", "--implementation=cp", "--platform=manylinux_2_28_x86_64"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *tags, *target, wheel], check=True)


def test_there_is_one_for_each_python_of_the_official_wheel_and_pip_takes_it(
    wheels: tuple[Path, ...], tmp_path: Path
) -> None:
    assert [one.relative_to(one.parents[2]).as_posix() for one in wheels] == [
        f"wheels/modern/ortpacks_onnxruntime_gpu-1.23.2-{python}-{PLATFORM}.whl" for python in PYTHONS
    ]
    installed(wheels[1], tmp_path / "site")
    assert (tmp_path / "site/onnxruntime/__init__.py").is_file()
    assert (tmp_path / f"site/{CAPI}{PROVIDER}").stat().st_mode & 0o111


def test_only_the_provider_is_another_than_the_official_wheels(wheels: tuple[Path, ...]) -> None:
    made = members(wheels[0])
    theirs = members(next((wheels[0].parents[3] / "shelf").glob("onnxruntime_gpu-*cp312*")))
    same = {path for path, data in theirs.items() if made.get(path) == data}
    assert {path for path in theirs if "dist-info" not in path} - same == {f"{CAPI}{PROVIDER}"}
    provider = made[f"{CAPI}{PROVIDER}"]
    runpath = "$ORIGIN:$ORIGIN/../../nvidia/cublas/lib:$ORIGIN/../../nvidia/cuda_nvrtc/lib"
    assert provider.endswith(f"\0{runpath}\0libnvrtc.so.12".encode())


def test_record_names_every_file_with_its_sha256_and_size(wheels: tuple[Path, ...]) -> None:
    for wheel in wheels:
        made = members(wheel)
        rows = {row[0]: row[1:] for row in csv.reader(made[f"{INFO}/RECORD"].decode().splitlines())}
        assert rows.pop(f"{INFO}/RECORD") == ["", ""]
        assert list(made)[-1] == f"{INFO}/RECORD"
        assert set(rows) == set(made) - {f"{INFO}/RECORD"}
        for path, row in rows.items():
            assert ",".join([path, *row]) == record_row(path, made[path])


def test_its_metadata_requires_nvidias_wheels_at_the_pinned_versions_and_nothing_optional(
    wheels: tuple[Path, ...],
) -> None:
    text = members(wheels[0])[f"{INFO}/METADATA"]
    metadata, unknown = parse_email(text)
    assert unknown == {}
    assert (metadata["name"], metadata["version"]) == ("ortpacks-onnxruntime-gpu", "1.23.2")
    pinned = [wheel for wheel, _ in official.NVIDIA]
    assert metadata["requires_dist"] == ["numpy>=1.21.6", *pinned]
    assert all(Requirement(one).marker is None for one in metadata["requires_dist"])
    assert metadata["classifiers"] == ["Operating System :: POSIX :: Linux"]
    assert "7.5, 8.0, 8.6" in metadata["summary"]


def test_the_tags_in_wheel_are_those_of_its_name(wheels: tuple[Path, ...]) -> None:
    text = members(wheels[1])[f"{INFO}/WHEEL"].decode()
    found = HeaderParser().parsestr(text)
    assert found.get_all("Tag") == [f"cp313-cp313t-{one}" for one in PLATFORM.split(".")]
    assert found["Root-Is-Purelib"] == "false"


def test_a_provider_that_needs_a_newer_glibc_is_for_that_manylinux(shop: Wiring) -> None:
    """PEP 600's manylinux_2_34 has GLIBC 2.34 and GLIBCXX 3.4.29 (auditwheel's policies)."""
    made = make_wheels(shop, write_package(shop.dist, glibc="2.34"))
    assert [one.name.rpartition("-")[2] for one in made] == ["manylinux_2_34_x86_64.whl"] * 2
    found = HeaderParser().parsestr(members(made[0])[f"{INFO}/WHEEL"].decode())
    assert found.get_all("Tag") == ["cp312-cp312-manylinux_2_34_x86_64"]


def test_its_sbom_is_valid_and_names_each_file_once(shop: Wiring, wheels: tuple[Path, ...]) -> None:
    made = members(wheels[0])
    text = made[f"{INFO}/sboms/ortpacks.cdx.json"]
    assert bom_problems(text) == ()
    bom = json.loads(text)
    found = {one["purl"]: one for one in bom["components"] if "purl" in one}
    listed = [file for one in bom["components"] for file in one.get("components", [one])]
    files = {one["name"]: one["hashes"][0]["content"] for one in listed if one["type"] == "file"}
    told = {path for path in made if not path.endswith(("RECORD", "ortpacks.cdx.json"))}
    assert set(files) == told
    assert len([one for one in listed if one["type"] == "file"]) == len(told)
    assert files[f"{CAPI}{PROVIDER}"] == hashlib.sha256(made[f"{CAPI}{PROVIDER}"]).hexdigest()
    assert set(found) == {
        "pkg:pypi/onnxruntime-gpu@1.23.2",
        "pkg:github/microsoft/onnxruntime@v1.23.2",
        "pkg:pypi/nvidia-cublas-cu12@12.9.1.4",
        "pkg:pypi/nvidia-cuda-nvrtc-cu12@12.9.86",
    }
    (built,) = found["pkg:github/microsoft/onnxruntime@v1.23.2"]["components"]
    assert built["name"] == f"{CAPI}{PROVIDER}"


def test_the_same_package_gives_the_same_bytes(shop: Wiring) -> None:
    package = write_package(shop.dist)
    first = [one.read_bytes() for one in make_wheels(shop, package)]
    assert [one.read_bytes() for one in make_wheels(shop, package)] == first


def test_it_says_which_package_it_was_made_of(wheels: tuple[Path, ...]) -> None:
    (package,) = wheels[0].parents[2].glob("*.tar.zst")
    told = json.loads(members(wheels[0])[f"{INFO}/ortpacks.json"])
    index = {"format": 4, "tag": "x", "packages": [told["package"]], "models": []}
    schema("index").validate(index)
    assert told["package"]["sha256"] == hashlib.sha256(package.read_bytes()).hexdigest()


def test_the_wheel_for_the_cpu_is_the_official_one_under_our_name(shop: Wiring) -> None:
    made = members(make_wheels(shop, official.write_cpu_package(shop.dist))[0])
    theirs = members(next((shop.dist.parent / "shelf").glob("onnxruntime-*cp312*")))
    assert {path for path in theirs if "dist-info" not in path} <= {
        path for path, data in made.items() if theirs.get(path) == data
    }
    metadata, _ = parse_email(made[f"{INFO}/METADATA"])
    assert metadata["requires_dist"] == ["numpy>=1.21.6"]
    assert "Its sessions run on the CPU" in metadata["description"]


def refused(shop: Wiring, package: Path, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make_wheels(shop, package)
    assert list((shop.dist / "wheels").glob("*")) == []


def test_a_package_of_another_version_is_told_and_leaves_nothing(shop: Wiring) -> None:
    package = write_package(shop.dist)
    shop.lock.pins.clear()  # type: ignore[attr-defined]
    refused(shop, package, NothingToDoError, r"ONNX Runtime 1\.23\.2, and inputs\.lock has no wheels of")


def test_a_package_of_another_platform_is_told(shop: Wiring) -> None:
    package = write_package(shop.dist, platform="win-x64")
    refused(shop, package, NothingToDoError, "for cuda on win-x64: wheels are made for")


def test_a_provider_with_other_code_than_the_manifest_says_is_refused(shop: Wiring) -> None:
    refused(shop, write_package(shop.dist, claimed=("90",)), CheckFailedError, "B007")


def test_a_provider_of_other_bytes_than_the_manifests_is_refused(shop: Wiring) -> None:
    package = write_package(shop.dist, swapped=True)
    refused(shop, package, IntegrityError, f"lib/{PROVIDER} is not the file that its manifest names")


def test_an_official_wheel_that_is_damaged_leaves_the_wheels_that_were_there(shop: Wiring) -> None:
    package = write_package(shop.dist)
    before = {one.name: one.read_bytes() for one in make_wheels(shop, package)}
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
    with pytest.raises(NothingToDoError, match="no package of it for legacy"):
        wheeled_packages(shop, ["legacy"], [])
    with pytest.raises(ValidationError, match="there is no such package"):
        wheeled_packages(shop, [], ["gone.tar.zst"])
    with pytest.raises(
        NothingToDoError, match=r"No package is named\. Name one, or a variant's: --variant \("
    ):
        wheeled_packages(shop, [], [])


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


@pytest.mark.parametrize("text", [None, "[]", "{}", "{", '{"package": {}}'])
def test_build_replaces_a_wheel_that_names_no_package(shop: Wiring, text: str | None) -> None:
    package = write_package(shop.dist)
    wheel = make_wheels(shop, package)[0]
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{INFO}/{'other' if text is None else 'ortpacks.json'}", text or "")
    make_missing_wheels(shop, [package])
    assert json.loads(members(wheel)[f"{INFO}/ortpacks.json"])["package"]["variant"] == "modern"
