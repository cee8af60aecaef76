"""Tests of SBOMs in CycloneDX: valid, complete, and the same bytes for the same package."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from packageurl import PackageURL

from builder.config.build_plan import BuildPlan
from builder.contents.sbom import Bom, check_sbom, describe_bom
from builder.formats.package_names import Layout
from builder.io.cyclonedx import bom_problems, render_bom
from tests.support.factories.documents import manifest, members, name, wheels
from tests.support.factories.packages import lock, official, plan
from tests.support.messages import Told

SBOM = "sbom.cdx.json"

CUBLAS = "pkg:pypi/nvidia-cublas-cu12@12.9.1.4"

Json = dict[str, object]

NO_ADDRESS = {"type": "website", "url": "http://no address"}


def bom(layout: Layout = Layout.FULL, made: BuildPlan | None = None, step: int = 1) -> Bom:
    """Return what is known of a package; with the ``step`` -1 from members in the other order."""
    made = made or plan()
    files = [member for member in members(made, layout) if member.path != SBOM][::step]
    return describe_bom(made, name(made, layout), files, wheels(files)[::step], lock())


def component(document: Json, purl: str) -> Json:
    components = document["components"]
    assert isinstance(components, list)
    return next(one for one in components if one.get("purl") == purl)


def files(document: object) -> list[tuple[str, str]]:
    """Return the name and sha256 of each component of type file at any depth, from plain JSON."""
    if isinstance(document, list):
        return [file for one in document for file in files(one)]
    if not isinstance(document, dict):
        return []
    own = [(document["name"], document["hashes"][0]["content"])] if document.get("type") == "file" else []
    return own + files([value for key, value in document.items() if key == "components"])


@pytest.mark.parametrize("layout", list(Layout))
def test_it_is_valid_by_the_formats_own_schema_and_by_the_librarys_validator(layout: Layout) -> None:
    document = render_bom(bom(layout))
    assert bom_problems(document) == ()
    told = json.loads(document)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    subject = told["metadata"]["component"]
    thin = "-thin" if layout is Layout.THIN else ""
    assert subject["name"] == f"ortpacks-legacy-1.21.0-cuda12.9-lean{thin}-linux-x64"
    assert subject["version"] == "1.21.0"


@pytest.mark.parametrize("layout", list(Layout))
def test_every_file_of_the_installed_package_is_in_it_once_with_its_sha256(layout: Layout) -> None:
    """The package has 22 files (3 of ORT, 7 of CUDA, 8 of cuDNN, 4 licence texts) and our own two."""
    found = files(json.loads(render_bom(bom(layout)))["components"])
    assert len(found) == len(dict(found)) == 24
    assert dict(found)["lib/libcublasLt.so.12"] == hashlib.sha256(b"lib/libcublasLt.so.12").hexdigest()
    assert "manifest.json" not in dict(found)


def test_a_wheel_is_a_component_with_purl_version_licence_hash_and_its_files() -> None:
    told = component(json.loads(render_bom(bom())), CUBLAS)
    assert PackageURL.from_string(str(told["purl"])).name == told["name"] == "nvidia-cublas-cu12"
    assert told["version"] == "12.9.1.4"
    assert told["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(b"wheel:nvidia-cublas-cu12==12.9.1.4").hexdigest()}
    ]
    assert told["licenses"] == [
        {
            "license": {
                "name": "NVIDIA CUDA Toolkit End User License Agreement",
                "properties": [{"name": "ortpacks:text", "value": "licenses/nvidia-cuda.txt"}],
            }
        }
    ]
    assert [path for path, _ in files(told)] == ["lib/libcublas.so.12", "lib/libcublasLt.so.12"]


def test_onnx_runtime_compiled_from_source_is_a_component_of_its_own() -> None:
    document = json.loads(render_bom(bom()))
    compiled = component(document, "pkg:github/microsoft/onnxruntime@v1.21.0")
    assert [path for path, _ in files(compiled)] == [
        "lib/libonnxruntime_providers_cuda.so",
        "lib/libonnxruntime_providers_shared.so",
    ]
    assert "hashes" not in compiled
    licence = compiled["licenses"]
    assert isinstance(licence, list)
    assert licence[0]["license"]["id"] == "MIT"
    host = component(document, "pkg:pypi/onnxruntime-gpu@1.21.0")
    assert "lib/libonnxruntime.so.1" in dict(files(host))


def test_what_is_not_packed_or_was_modified_is_marked() -> None:
    told = json.loads(render_bom(bom(Layout.THIN, official())))
    marks = {
        file["name"]: {one["name"]: one["value"] for one in file["properties"]}
        for parent in told["components"]
        for file in parent.get("components", [])
    }
    cudnn, provider = marks["lib/libcudnn.so.9"], marks["lib/libonnxruntime_providers_cuda.so"]
    assert cudnn == {"ortpacks:size": "17", "ortpacks:packed": "false"}
    assert provider == {"ortpacks:size": "36", "ortpacks:modified": "true"}
    assert sum("ortpacks:packed" in mark for mark in marks.values()) == 15


def test_the_same_bytes_whatever_the_order_of_members_and_of_the_interpreters_sets() -> None:
    code = (
        "import sys; from tests.component.io.test_cyclonedx import *;"
        "sys.stdout.buffer.write(render_bom(bom(Layout.THIN)))"
    )
    env = {"PYTHONHASHSEED": "4711"}
    made = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout
    assert made == render_bom(bom(Layout.THIN, step=-1))


def test_the_serial_number_follows_from_the_content_alone() -> None:
    first = bom()
    assert bom().serial == first.serial
    assert json.loads(render_bom(first))["serialNumber"] == f"urn:uuid:{first.serial}"
    assert bom(Layout.THIN).serial != first.serial
    other = replace(first.files[0], sha256="0" * 64)
    assert replace(first, files=(other, *first.files[1:])).serial != first.serial


def test_it_speaks_of_no_machine_and_no_time() -> None:
    text = render_bom(bom()).decode()
    assert "timestamp" not in text
    assert "nowhere" not in text  # the folder of the members


@pytest.mark.parametrize(
    "change",
    [
        lambda bom: bom.update(colour="red"),
        lambda bom: bom.pop("bomFormat"),
        lambda bom: bom.update(serialNumber="1"),
        lambda bom: bom["components"][0].pop("name"),
        lambda bom: bom["components"][0]["hashes"][0].update(content="xyz"),
        lambda bom: bom["components"][0].update(type="wheel"),
        lambda bom: bom["components"][0].update(externalReferences=[NO_ADDRESS]),
        lambda bom: bom.update(specVersion="1.4"),
    ],
)
def test_what_is_not_strictly_valid_is_told_by_key(told: Told, change: Callable[[Json], object]) -> None:
    document = json.loads(render_bom(bom()))
    change(document)
    problems = bom_problems(json.dumps(document).encode())
    assert problems
    told("\n".join(problems))


DEEP = (b"[" * 100_000, b'{"x":' * 900 + b"0" + b"}" * 900)


@pytest.mark.parametrize("document", [b"", b"{", b"\xff", b"null", b"[]", b'"x"', b'["\\ud800"]', *DEEP])
def test_what_is_no_document_at_all_is_told_and_never_a_traceback(document: bytes) -> None:
    assert bom_problems(document)


@pytest.mark.parametrize("layout", list(Layout))
def test_of_a_repacked_wheel_it_fits_the_manifest(layout: Layout) -> None:
    """``tests/unit/contents/test_sbom.py`` has the same of a compiled package."""
    document = render_bom(bom(layout, official()))
    assert list(check_sbom(manifest(official(), layout), document, ())) == []
