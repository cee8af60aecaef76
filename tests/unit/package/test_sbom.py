"""Tests of an SBOM against its package's manifest: every planted difference is found, and no other.

Package URLs are spelled as in the purl specification's examples and type definitions.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from packageurl import PackageURL

from builder.adapters.cyclonedx import CycloneDx
from builder.findings.finding import Code
from builder.formats.manifest import Manifest
from builder.formats.package_names import Layout
from builder.package.sbom import (
    check_sbom,
    deb_purl,
    debian_purl,
    describe_bom,
    github_purl,
    image_purl,
    origin_of,
    pypi_purl,
)
from builder.project.variants import Project
from tests.support.factories.documents import changed, digests, manifest, members, name, wheels, without
from tests.support.factories.packages import official, plan

CUDNN = "lib/libcudnn.so.9"

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

Json = dict[str, object]


def document(layout: Layout = Layout.FULL) -> Json:
    made = plan()
    files = [member for member in members(made, layout) if member.path != "sbom.cdx.json"]
    bom = describe_bom(made, name(made, layout), files, digests(files), wheels(files))
    told = json.loads(CycloneDx().render(bom))
    assert isinstance(told, dict)
    return told


def findings(whole: Manifest, told: Json) -> list[str]:
    return [f"{one.code.name} {one.path}" for one in check_sbom(whole, json.dumps(told).encode(), ())]


@pytest.mark.parametrize(
    ("source", "vendor", "purl"),
    [
        ("wheel:nvidia-cudnn-cu12==9.10.2.21", "nvidia", "pkg:pypi/nvidia-cudnn-cu12@9.10.2.21"),
        ("wheel:onnxruntime-gpu==1.21.0", "onnxruntime", "pkg:pypi/onnxruntime-gpu@1.21.0"),
        ("built", "onnxruntime", "pkg:github/microsoft/onnxruntime@v1.21.0"),
        ("built", "ortpacks", ""),
        ("nonsense", "nvidia", ""),
    ],
)
def test_where_a_file_comes_from_as_a_purl(source: str, vendor: str, purl: str) -> None:
    assert origin_of(source, vendor, "1.21.0") == purl


def test_what_is_compiled_into_onnx_runtime_is_listed_with_its_versions(project: Project) -> None:
    """The versions are those of the assembled base in variants.yaml."""
    made = plan()
    made = replace(made, base="assembled", project=replace(made.project, bases=project.bases))
    files = [member for member in members(made, Layout.FULL) if member.path != "sbom.cdx.json"]
    bom = describe_bom(made, name(made, Layout.FULL), files, digests(files), wheels(files))
    rendered = CycloneDx().render(bom)
    assert not CycloneDx().problems(rendered)
    (ort,) = (one for one in json.loads(rendered)["components"] if one["name"] == "onnxruntime")
    found = {one["name"]: one["version"] for one in ort["components"] if one["type"] == "library"}
    assert found == {
        "abseil": "20240722.0",
        "eigen3": "3.4.0",
        "flatbuffers": "23.5.26+dfsg",
        "howardhinnant-date": "3.0.3+ds",
        "libboost1.83-dev": "1.83.0-4.2",
        "libmsgsl-dev": "4.0.0-3.1",
        "libsafeint-dev": "3.0.28a+dfsg-4",
        "nlohmann-json3": "3.11.3",
        "nvidia-cuda-cccl-cu12": "12.4.127.post1",
        "nvidia-cudnn-frontend": "1.10.0",
        "nvidia-cutlass": "3.5.1.0",
        "onnx": "1.17.0",
        "protobuf": "3.21.12",
        "re2": "20240702",
    }
    whole = manifest(layout=Layout.FULL)
    assert not [one for one in findings(whole, json.loads(rendered)) if one.startswith("B014")]
    on_nvidia = replace(made, base="nvidia")
    assert all(
        not one.linked
        for one in describe_bom(on_nvidia, "n", files, digests(files), wheels(files)).components
    )


@pytest.mark.parametrize("layout", list(Layout))
def test_an_sbom_of_the_manifests_files_is_fine(layout: Layout) -> None:
    assert findings(manifest(layout=layout), document(layout)) == []


def test_one_that_is_not_valid_is_told_line_by_line_and_read_no_further() -> None:
    found = list(check_sbom(manifest(), b"{", ["$.a: is wrong", "$.b: too"]))
    assert [(one.code, one.message) for one in found] == [
        (Code.B014, "$.a: is wrong"),
        (Code.B014, "$.b: too"),
    ]


@pytest.mark.parametrize(
    ("change", "wanted", "got"),
    [
        ({"sha256": "0" * 64}, "sha256 0000", "sha256 "),
        ({"source": "wheel:nvidia-cudnn-cu12==9.11.0.98"}, "@9.11.0.98", "@9.10.2.21"),
        ({"packed": False}, "not packed", "9.10.2.21"),
        ({"modified": True}, "modified", "9.10.2.21"),
    ],
)
def test_a_file_that_the_manifest_tells_otherwise_is_named(
    change: dict[str, object], wanted: str, got: str
) -> None:
    whole = changed(manifest(), CUDNN, **change)
    (finding,) = check_sbom(whole, json.dumps(document()).encode(), ())
    assert (finding.code, finding.path) == (Code.B015, CUDNN)
    assert wanted in finding.wanted
    assert got in finding.got


def test_a_file_that_only_one_of_them_has_is_named() -> None:
    assert findings(without(manifest(), CUDNN), document()) == [f"B015 {CUDNN}"]
    lacking = document()
    for component in items(lacking):
        component["components"] = [one for one in items(component) if one["name"] != CUDNN]
    assert findings(manifest(), lacking) == [f"B015 {CUDNN}"]


def items(parent: Json) -> list[Json]:
    found = parent.get("components", [])
    assert isinstance(found, list)
    return found


def listed_twice(told: Json) -> None:
    cudnn = next(one for one in items(told) if one["name"] == "nvidia-cudnn-cu12")
    first = copy.deepcopy(items(cudnn)[0])
    items(told).append(first)


def without_hash(told: Json) -> None:
    cudnn = next(one for one in items(told) if one["name"] == "nvidia-cudnn-cu12")
    next(one for one in items(cudnn) if one["name"] == CUDNN).pop("hashes")


def elsewhere(told: Json) -> None:
    """Move a file of cuDNN's wheel to the package's own files."""
    cudnn = next(one for one in items(told) if one["name"] == "nvidia-cudnn-cu12")
    moved = next(one for one in items(cudnn) if one["name"] == CUDNN)
    items(cudnn).remove(moved)
    items(told).append(moved)


@pytest.mark.parametrize("change", [listed_twice, without_hash, elsewhere])
def test_what_an_sbom_can_get_wrong_is_found(change: Callable[[Json], None]) -> None:
    told = document()
    change(told)
    assert findings(manifest(), told) == [f"B015 {CUDNN}"]


def test_the_sbom_of_another_package_is_found() -> None:
    told = document(Layout.THIN)
    found = findings(manifest(), told)
    assert found[0] == "B015 sbom.cdx.json"
    assert len(found) == 1 + 15  # and NVIDIA's 15 libraries, which thin omits


def test_the_sbom_of_a_compiled_package_is_not_that_of_a_repacked_one() -> None:
    """The official provider and bridge are from the wheel; the provider is also modified."""
    repacked = manifest(official())
    assert {finding.split()[1] for finding in findings(repacked, document())} == {
        "sbom.cdx.json",
        PROVIDER,
        "lib/libonnxruntime_providers_shared.so",
    }


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (pypi_purl("nvidia-cublas-cu12==12.9.1.4"), "pkg:pypi/nvidia-cublas-cu12@12.9.1.4"),
        (pypi_purl("onnxruntime==1.23.2@macos-arm64"), "pkg:pypi/onnxruntime@1.23.2"),
        (pypi_purl("Torch_Fork==2.1+cu12.post1"), "pkg:pypi/torch-fork@2.1%2Bcu12.post1"),
        (github_purl("Microsoft/onnxruntime", "v1.21.0"), "pkg:github/microsoft/onnxruntime@v1.21.0"),
        (
            image_purl("nvidia/cuda:12.9.1-devel-ubuntu22.04"),
            "pkg:docker/nvidia/cuda@12.9.1-devel-ubuntu22.04",
        ),
        (image_purl("ubuntu:22.04"), "pkg:docker/ubuntu@22.04"),
        (
            debian_purl("pool/non-free/n/x/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb"),
            "pkg:deb/debian/nvidia-cuda-toolkit@12.4.131~12.4.1-2?arch=amd64",
        ),
        (deb_purl("g++", "4:12.2.0-3", "amd64"), "pkg:deb/debian/g%2B%2B@4:12.2.0-3?arch=amd64"),
        (
            debian_purl("pool/main/o/onnxruntime/onnxruntime_1.21.0+dfsg.orig.tar.xz"),
            "pkg:deb/debian/onnxruntime@1.21.0%2Bdfsg?arch=source",
        ),
        (debian_purl("pool/main/x/odd name.zip"), "pkg:generic/odd%20name.zip"),
    ],
)
def test_a_purl_is_spelled_as_specified_and_reads_back(made: str, wanted: str) -> None:
    assert made == wanted
    assert PackageURL.from_string(made).to_string() == wanted


def test_the_forms_of_debians_names_are_read() -> None:
    """The names are from inputs.lock, with the packages that the files belong to."""
    names = {
        "pool/main/b/boost1.83/libboost1.83-dev_1.83.0-4.2_amd64.deb": "libboost1.83-dev",
        "pool/main/h/howardhinnant-date/howardhinnant-date_3.0.3+ds.orig.tar.xz": "howardhinnant-date",
        "pool/main/s/safeint/libsafeint-dev_3.0.28a+dfsg-4_all.deb": "libsafeint-dev",
    }
    assert {path: PackageURL.from_string(debian_purl(path)).name for path in names} == names
