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
from tests.support import ROOT
from tests.support.factories.documents import changed, manifest, members, name, wheels, without
from tests.support.factories.packages import lock, official, plan
from tests.support.messages import Told

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


def test_what_is_compiled_into_onnx_runtime_is_listed_with_its_versions(project: Project, told: Told) -> None:
    rendered = render_bom(described(on_base(project, "assembled")))
    assert not bom_problems(rendered)
    (ort,) = (one for one in json.loads(rendered)["components"] if one["name"] == "onnxruntime")
    linked = [one for one in ort["components"] if one["type"] == "library"]
    told("\n".join(sorted(f"{one['name']} {one['version']}" for one in linked)))
    whole = manifest(layout=Layout.FULL)
    assert not [one for one in findings(whole, json.loads(rendered)) if one.startswith("B014")]


DEPS = (ROOT / "tests/data/formats/deps-1.21.0.txt").read_text()
"""Lines of cmake/deps.txt in Debian's 1.21.0, without those that nothing here needs but googletest."""


def test_of_a_git_tag_the_pinned_archives_of_its_own_list_are_compiled_in(
    project: Project, told: Told
) -> None:
    source = project.bases["nvidia"].source
    assert isinstance(source, GitSource)
    urls = tuple(line.split(";")[1] for line in DEPS.splitlines()[1:] if not line.startswith("googletest"))
    pins = Lock({source.git.key: Pin(revision="1" * 40, files=urls)})
    bom = described(on_base(project, "nvidia"), pins=pins)
    assert not bom_problems(render_bom(bom))
    (ort,) = (one for one in bom.components if one.name == "onnxruntime")
    told("\n".join(sorted(f"{one.name} {one.version} {one.supplier} {one.purl}" for one in ort.linked)))
    eigen = PackageURL.from_string(next(one.purl for one in ort.linked if one.name == "eigen"))
    assert (eigen.type, eigen.namespace, eigen.name) == ("generic", "libeigen", "eigen")
    assert str(eigen.qualifiers["download_url"]) in DEPS


@pytest.mark.parametrize("layout", list(Layout))
def test_an_sbom_of_the_manifests_files_is_fine(layout: Layout) -> None:
    assert findings(manifest(layout=layout), document(layout)) == []


def test_one_that_is_not_valid_is_told_line_by_line_and_read_no_further() -> None:
    found = list(check_sbom(manifest(), b"{", ["$.a: is wrong", "$.b: too"]))
    assert {one.code for one in found} == {Code.B014}
    assert [one.message for one in found] == ["$.a: is wrong", "$.b: too"]


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "0" * 64},
        {"source": "wheel:nvidia-cudnn-cu12==9.11.0.98"},
        {"packed": False},
        {"modified": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_the_manifest_tells_otherwise_is_named(change: dict[str, object], told: Told) -> None:
    (finding,) = check_sbom(changed(manifest(), CUDNN, **change), json.dumps(document()).encode(), ())
    assert (finding.code, finding.path) == (Code.B015, CUDNN)
    told(finding)


def items(parent: Json) -> list[Json]:
    found = parent.get("components", [])
    assert isinstance(found, list)
    return found


def named(parent: Json, name: str) -> Json:
    return next(one for one in items(parent) if one["name"] == name)


def without_it(wheel: Json, _told: Json) -> None:
    items(wheel).remove(named(wheel, CUDNN))


def listed_twice(wheel: Json, told: Json) -> None:
    items(told).append(copy.deepcopy(named(wheel, CUDNN)))


def without_hash(wheel: Json, _told: Json) -> None:
    named(wheel, CUDNN).pop("hashes")


def elsewhere(wheel: Json, told: Json) -> None:
    """Move a file of cuDNN's wheel to the package's own files."""
    items(told).append(named(wheel, CUDNN))
    without_it(wheel, told)


@pytest.mark.parametrize("change", [without_it, listed_twice, without_hash, elsewhere])
def test_what_an_sbom_can_get_wrong_is_found(change: Callable[[Json, Json], None]) -> None:
    told = document()
    change(named(told, "nvidia-cudnn-cu12"), told)
    assert findings(manifest(), told) == [f"B015 {CUDNN}"]


def test_a_file_that_the_manifest_does_not_have_is_named() -> None:
    assert findings(without(manifest(), CUDNN), document()) == [f"B015 {CUDNN}"]


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
        (
            archive_purl("https://host/whatever-1.2.tgz"),
            "pkg:generic/whatever-1.2.tgz?download_url=https://host/whatever-1.2.tgz",
        ),
    ],
)
def test_a_purl_is_spelled_as_specified_and_reads_back(made: str, wanted: str) -> None:
    assert made == wanted
    assert "download_url" in made or PackageURL.from_string(made).to_string() == wanted


def test_the_forms_of_debians_names_are_read() -> None:
    """The names are from inputs.lock, with the packages that the files belong to."""
    names = {
        "pool/main/b/boost1.83/libboost1.83-dev_1.83.0-4.2_amd64.deb": "libboost1.83-dev",
        "pool/main/h/howardhinnant-date/howardhinnant-date_3.0.3+ds.orig.tar.xz": "howardhinnant-date",
        "pool/main/s/safeint/libsafeint-dev_3.0.28a+dfsg-4_all.deb": "libsafeint-dev",
    }
    assert {path: PackageURL.from_string(debian_purl(path)).name for path in names} == names
