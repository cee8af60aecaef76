"""Tests of the verbs with a version of ONNX Runtime that has no GPU wheel, like 1.22.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.loopback import static_server
from tests.support.factories.project_copy import Place

LISTED = [
    f"onnxruntime_gpu-{version}-cp311-cp311-manylinux_2_28_x86_64.whl" for version in ("1.22.0", "1.23.0")
]


@pytest.fixture
def newer(place: Place, tmp_path: Path) -> Iterator[Place]:
    """Return the project with base redist at 1.22.1, made-up pins of its parts, and an index on loopback."""
    file = place.folder / "variants.yaml"
    of_git = "onnxruntime@v1.23.2"
    text = file.read_text().replace("onnxruntime: 1.23.2", "onnxruntime: 1.22.1")
    file.write_text(text.replace(of_git, "onnxruntime@v1.22.1"))
    lock = place.folder / "inputs.lock"
    pins = json.loads(lock.read_text().replace(of_git, "onnxruntime@v1.22.1"))
    for key, pin in pins["inputs"].items():
        if key.startswith("redist:"):
            pin |= {"filename": "cuda-archive.tar.xz", "size": 1, "sha256": "1" * 64}
        elif key.startswith("git:"):
            pin["revision"] = "1" * 40
    lock.write_text(json.dumps(pins))
    page = tmp_path / "index/simple/onnxruntime-gpu/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(json.dumps({"files": [{"filename": name} for name in LISTED]}))
    with static_server(tmp_path / "index") as url:
        place.env["PIP_INDEX_URL"] = f"{url}/simple"
        yield place


PLAN = ("plan", "--variant", "modern", "--base", "redist")


def test_plan_tells_the_nearest_versions_and_the_way_without(newer: Place) -> None:
    """Defect: the plan asked for ``./run lock``, which ended with a text of pip."""
    said = newer.fails(2, *PLAN)
    assert "onnxruntime-gpu==1.22.1 is not on the package index for linux-x64" in said
    assert "1.22.0 and 1.23.0" in said
    newer.edit("host: wheel", "host: source")
    assert "ort      1.22.1, profile full, host source" in newer.run(*PLAN).stdout


def test_a_dead_index_is_no_index_without_the_version_and_a_release_asks_none(newer: Place) -> None:
    """Defect: a release ended with exit code 2 and the advice ``./run lock``, and the index was asked."""
    newer.env["PIP_INDEX_URL"] = "http://127.0.0.1:1/simple"
    assert "wheel:onnxruntime-gpu==1.22.1 has no pin" in newer.fails(10, *PLAN)
    for words in ((*PLAN, "--release"), ("lock", "--check", "redist")):
        assert "R009 wheel:onnxruntime-gpu==1.22.1: no pin in inputs.lock. Run" in newer.fails(6, *words)
