"""Tests of the verbs with a version of ONNX Runtime that has no GPU wheel, like 1.22.1."""

from __future__ import annotations

import json
import re
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


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_plan_tells_the_nearest_versions_and_the_way_without(newer: Place, more: list[str]) -> None:
    """Defect: the plan asked for ``./run lock``, which ended with a text of pip."""
    said = newer.fails(2, "plan", "--variant", "modern", "--base", "redist", *more)
    assert "onnxruntime-gpu==1.22.1 is not on the package index for linux-x64" in said
    assert "1.22.0 and 1.23.0" in said
    assert "--host source" in said


def test_a_release_without_the_pin_of_its_wheel_is_refused_like_any_open_pin(newer: Place) -> None:
    """Defect: it ended with exit code 2 and the advice ``./run lock``, and the index was asked."""
    newer.env["PIP_INDEX_URL"] = "http://127.0.0.1:1/simple"
    said = newer.fails(6, "plan", "--variant", "modern", "--base", "redist", "--release")
    assert "R009 wheel:onnxruntime-gpu==1.22.1: no pin in inputs.lock. Run `./run lock --missing`" in said
    said = newer.fails(6, "lock", "--check", "redist")
    assert "R009 wheel:onnxruntime-gpu==1.22.1: " in said


def test_a_dead_index_is_no_index_without_the_version(newer: Place) -> None:
    newer.env["PIP_INDEX_URL"] = "http://127.0.0.1:1/simple"
    said = newer.fails(10, "plan", "--variant", "modern", "--base", "redist")
    assert "not on the package index" not in said
    assert "wheel:onnxruntime-gpu==1.22.1 has no pin" in said


@pytest.mark.parametrize("as_key", [False, True])
def test_a_compiled_host_library_is_planned_without_the_wheel(newer: Place, as_key: bool) -> None:
    flags = [] if as_key else ["--host", "source"]
    if as_key:
        newer.edit("host: wheel", "host: source")
    done = newer.run("plan", "--variant", "modern", "--base", "redist", *flags)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(?m)^  ort      1\.22\.1, profile full, host source$", done.stdout)
