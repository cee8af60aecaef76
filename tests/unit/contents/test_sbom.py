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

from builder.config.build_plan import BuildPlan
from builder.config.inputs import Lock, Pin
from builder.config.variants import GitSource, Project
from builder.contents.sbom import (
    Bom,
    archive_purl,
    check_sbom,
    deb_purl,
    debian_purl,
    describe_bom,
    github_purl,
    image_purl,
    origin_of,
    pypi_purl,
)
from builder.finding import Code
from builder.formats.manifest import Manifest
from builder.formats.package_names import Layout
from builder.io.cyclonedx import bom_problems, render_bom
from tests.support.factories.documents import changed, manifest, members, name, wheels, without
from tests.support.factories.packages import lock, official, plan

CUDNN = "lib/libcudnn.so.9"

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

Json = dict[str, object]


def described(made: BuildPlan, layout: Layout = Layout.FULL, pins: Lock | None = None) -> Bom:
    files = [member for member in members(made, layout) if member.path != "sbom.cdx.json"]
    return describe_bom(made, name(made, layout), files, wheels(files), pins or lock())


def document(layout: Layout = Layout.FULL) -> Json:
    told = json.loads(render_bom(described(plan(), layout)))
    assert isinstance(told, dict)
    return told


def on_base(project: Project, base: str) -> BuildPlan:
    """Return a plan with a base of the project, whose versions are those of variants.yaml."""
    made = plan()
    return replace(made, base=base, project=replace(made.project, bases=project.bases))


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
    rendered = render_bom(described(on_base(project, "assembled")))
    assert not bom_problems(rendered)
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


DEPS = """\
#Sorted by name, with the SHA-1 of each archive
abseil_cpp;https://github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.zip;36ee53eb1466fb6e593fc5c286680de31f8a494a
cudnn_frontend;https://github.com/NVIDIA/cudnn-frontend/archive/refs/tags/v1.7.0.zip;d0753d8d5b39947ca0729d7773cb84653a129eb1
cutlass;https://github.com/NVIDIA/cutlass/archive/refs/tags/v3.5.1.zip;e49b2b964163d27765a5002d210a2f3c73771835
date;https://github.com/HowardHinnant/date/archive/refs/tags/v3.0.1.zip;2dac0c81dc54ebdd8f8d073a75c053b04b56e159
eigen;https://gitlab.com/libeigen/eigen/-/archive/1d8b82b0740839c0de7f1242a3585e3390ff5f33/eigen-1d8b82b0740839c0de7f1242a3585e3390ff5f33.zip;5ea4d05e62d7f954a46b3213f9b2535bdd866803
flatbuffers;https://github.com/google/flatbuffers/archive/refs/tags/v23.5.26.zip;59422c3b5e573dd192fead2834d25951f1c1670c
googletest;https://github.com/google/googletest/archive/refs/tags/v1.15.0.zip;9d2d0af8d77ac726ea55d44a8fa727ec98311349
json;https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.zip;5e88795165cc8590138d1f47ce94ee567b85b4d6
microsoft_gsl;https://github.com/microsoft/GSL/archive/refs/tags/v4.0.0.zip;cf368104cd22a87b4dd0c80228919bb2df3e2a14
mp11;https://github.com/boostorg/mp11/archive/refs/tags/boost-1.82.0.zip;9bc9e01dffb64d9e0773b2e44d2f22c51aace063
onnx;https://github.com/onnx/onnx/archive/refs/tags/v1.17.0.zip;13a60ac5217c104139ce0fd024f48628e7bcf5bc
protobuf;https://github.com/protocolbuffers/protobuf/archive/refs/tags/v21.12.zip;7cf2733949036c7d52fda017badcab093fe73bfa
pytorch_cpuinfo;https://github.com/pytorch/cpuinfo/archive/8a1772a0c5c447df2d18edf33ec4603a8c9c04a6.zip;85bf8a60dae026b99b6ccd78606c85ed83bfb2cd
re2;https://github.com/google/re2/archive/refs/tags/2024-07-02.zip;646e1728269cde7fcef990bf4a8e87b047882e88
safeint;https://github.com/dcleblanc/SafeInt/archive/refs/tags/3.0.28.zip;23f252040ff6cb9f1fd18575b32fa8fb5928daac
utf8_range;https://github.com/protocolbuffers/utf8_range/archive/72c943dea2b9240cd09efde15191e144bc7c7d38.zip;9925739c9debc0efa2adcb194d371a35b6a03156
"""
"""Lines of cmake/deps.txt in Debian's 1.21.0, without those that nothing here needs but googletest."""


def test_of_a_git_tag_the_pinned_archives_of_its_own_list_are_compiled_in(project: Project) -> None:
    source = project.bases["nvidia"].source
    assert isinstance(source, GitSource)
    urls = tuple(line.split(";")[1] for line in DEPS.splitlines()[1:] if not line.startswith("googletest"))
    pins = Lock({source.git.key: Pin(revision="1" * 40, files=urls)})
    bom = described(on_base(project, "nvidia"), pins=pins)
    assert not bom_problems(render_bom(bom))
    (ort,) = (one for one in bom.components if one.name == "onnxruntime")
    assert {one.name: one.version for one in ort.linked} == {
        "abseil-cpp": "20240722.0",
        "cpuinfo": "8a1772a0c5c447df2d18edf33ec4603a8c9c04a6",
        "cudnn-frontend": "v1.7.0",
        "cutlass": "v3.5.1",
        "date": "v3.0.1",
        "eigen": "1d8b82b0740839c0de7f1242a3585e3390ff5f33",
        "flatbuffers": "v23.5.26",
        "gsl": "v4.0.0",
        "json": "v3.11.3",
        "mp11": "boost-1.82.0",
        "onnx": "v1.17.0",
        "protobuf": "v21.12",
        "re2": "2024-07-02",
        "safeint": "3.0.28",
        "utf8_range": "72c943dea2b9240cd09efde15191e144bc7c7d38",
    }
    purls = {one.name: (one.purl, one.supplier) for one in ort.linked}
    assert purls["abseil-cpp"] == ("pkg:github/abseil/abseil-cpp@20240722.0", "abseil")
    eigen = PackageURL.from_string(purls["eigen"][0])
    assert (eigen.type, eigen.namespace, eigen.name) == ("generic", "libeigen", "eigen")
    assert str(eigen.qualifiers["download_url"]) in DEPS
    other = "https://host/whatever-1.2.tgz"
    assert archive_purl(other) == "pkg:generic/whatever-1.2.tgz?download_url=https://host/whatever-1.2.tgz"


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
        (image_purl("nvidia/cuda@sha256:244fd47e07d1"), "pkg:docker/nvidia/cuda@sha256:244fd47e07d1"),
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
