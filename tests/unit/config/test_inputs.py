"""Tests of the inputs that a project needs, counted by hand in variants.yaml."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from builder.config.inputs import InputKind, Lock
from builder.config.load import load_project
from builder.config.variants import Origin, Project, all_inputs, python_wheel_requirements
from builder.formats.package_names import Host


def test_every_input_of_variants_yaml_once(root: Path) -> None:
    text = Path(root / "variants.yaml").read_text(encoding="utf-8")
    items = all_inputs(load_project(text, "variants.yaml"), Lock(pins={}))
    named = [line.split("#")[0].strip() for line in text.splitlines()]
    debian = {line.rpartition(": ")[2] for line in named if ": pool/" in line}
    wheels = {line.rpartition(": ")[2].rstrip("}") for line in named if "==" in line}
    kinds = Counter(item.kind for item in items)
    assert len(items) == len(set(items))
    assert kinds[InputKind.DEBIAN] == len(debian) == 14
    assert len(wheels) == 17 + 6
    # both ORT versions, for CUDA and for the CPU; the tests' four; for images of arm64 both and numpy; for
    # Windows both and six of NVIDIA's; 1.31.1 for CUDA 13; for arm64 it and six of NVIDIA's
    assert kinds[InputKind.WHEEL] == 17 + 2 + 2 + 4 + 3 + (2 + 6) + (6 + 1) + (1 + 6)
    assert kinds[InputKind.GIT] == 1
    assert kinds[InputKind.IMAGE] == 2
    assert kinds[InputKind.URL] == 3
    assert kinds[InputKind.REDIST] == 3
    assert {"wheel:onnxruntime-gpu==1.21.0", "wheel:onnxruntime-gpu==1.23.2", "wheel:silero-vad==6.2.3"} <= {
        item.key for item in items
    }
    assert {item.spec for item in items if item.spec.startswith("onnxruntime==")} == {
        "onnxruntime==1.21.0",
        "onnxruntime==1.21.0@linux-arm64",
        "onnxruntime==1.23.2",
        "onnxruntime==1.23.2@linux-arm64",
        "onnxruntime==1.23.2@macos-arm64",
    }


@pytest.mark.parametrize(
    ("host", "origin", "wheels", "needed"),
    [
        (Host.WHEEL, Origin.AUTO, False, True),
        (Host.SOURCE, Origin.AUTO, False, False),
        (Host.SOURCE, Origin.SOURCE, False, False),
        (Host.SOURCE, Origin.WHEEL, False, True),
        (Host.SOURCE, Origin.AUTO, True, True),
    ],
)
def test_a_project_that_compiles_all_of_onnxruntime_needs_no_gpu_wheel(
    project: Project, host: Host, origin: Origin, wheels: bool, needed: bool
) -> None:
    """Wheels for Python are made of the official ones, and so are packages for Windows."""
    changed = replace(
        project,
        onnxruntime=replace(project.onnxruntime, host=host, origin=origin),
        bundle=replace(project.bundle, wheels=wheels),
    )
    found = {item.spec for item in all_inputs(changed, Lock(pins={}))}
    gpu = {f"onnxruntime-gpu=={version}" for version in ("1.21.0", "1.23.2")}
    assert found & gpu == (gpu if needed else set())
    assert gpu & {*python_wheel_requirements(changed)} == (gpu if needed else set())
    assert {"onnxruntime==1.21.0", "onnxruntime-gpu==1.21.0@win-x64", "onnxruntime-gpu==1.31.1"} <= found
