"""Tests of the inputs that a project needs, counted by hand in variants.yaml."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from builder.config.project import load_project
from builder.project.inputs import InputKind, Lock
from builder.project.required_inputs import all_inputs


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
