"""Tests of the inputs that a project needs, counted by hand in variants.yaml, and of lock files."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from builder.config.inputs import InputKind, Lock, Pin
from builder.config.load import load_project, parse_lock, render_lock
from builder.config.variants import Origin, Project, all_inputs, python_wheel_requirements
from builder.errors import ConfigError
from builder.formats.package_names import Host
from tests.unit.config.config_cases import LOCK_TEXT, ZEROS, Case, changed, read_cases

COUNTED = {"DEBIAN": 14, "GIT": 1, "IMAGE": 2, "URL": 3, "REDIST": 3}


def test_every_input_of_variants_yaml_once(root: Path) -> None:
    text = Path(root / "variants.yaml").read_text(encoding="utf-8")
    items = all_inputs(load_project(text, "variants.yaml"), Lock(pins={}))
    kinds = Counter(item.kind for item in items)
    assert len(items) == len(set(items))
    # the wheels that the file names; three ORT versions, for CUDA and the CPU; the tests' four; for images of
    # arm64 these, numpy and the newest; for Windows one and six of NVIDIA's; 1.31.1 for CUDA 13; for arm64 it
    # and six of NVIDIA's; five of CUDA 13's compiler; five hosts of plug-ins, of which two are of these
    assert kinds.pop(InputKind.WHEEL) == 17 + 3 + 3 + 4 + 5 + (1 + 6) + (6 + 1) + (1 + 6) + 5 + 3
    assert {kind.name: count for kind, count in kinds.items()} == COUNTED
    assert {item.spec for item in items if item.spec.startswith("onnxruntime==")} == {
        "onnxruntime==1.21.0",
        "onnxruntime==1.21.0@linux-arm64",
        "onnxruntime==1.26.0",
        "onnxruntime==1.26.0@linux-arm64",
        "onnxruntime==1.30.0",
        "onnxruntime==1.30.0@linux-arm64",
        "onnxruntime==1.30.0@macos-arm64",
        "onnxruntime==1.32.0@linux-arm64",
        *(f"onnxruntime==1.{minor}" for minor in ("24.4", "28.0", "32.0")),
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
    gpu = {f"onnxruntime-gpu=={version}" for version in ("1.21.0", "1.26.0", "1.30.0")}
    assert found & gpu == (gpu if needed else set())
    assert gpu & {*python_wheel_requirements(changed)} == (gpu if needed else set())
    assert {"onnxruntime==1.21.0", "onnxruntime-gpu==1.26.0@win-x64", "onnxruntime-gpu==1.31.1"} <= found


LOCK = Lock(
    pins={
        "wheel:cmake==3.31.6": Pin(filename="cmake-3.31.6-py3-none-any.whl", size=27, sha256=ZEROS),
        "image:nvidia/cuda:12.9.1-devel-ubuntu22.04": Pin(revision=None),
    }
)


def test_a_lock_is_written_sorted_and_read_back() -> None:
    assert render_lock(LOCK) == LOCK_TEXT
    revisions = {
        "git:https://github.com/microsoft/onnxruntime@v1.23.2": Pin(revision="a" * 40),
        "image:ubuntu:22.04": Pin(revision="sha256:" + "b" * 64),
    }
    for lock in (LOCK, Lock({}), Lock(revisions)):
        assert parse_lock(render_lock(lock), "inputs.lock") == lock
    one_line_with_tabs = LOCK_TEXT.replace("  ", "\t").replace("\n", "")
    assert parse_lock(one_line_with_tabs, "inputs.lock") == LOCK


@pytest.mark.parametrize("case", read_cases("lock-messages.txt"), ids=str)
def test_a_wrong_lock_names_line_and_key(case: Case) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_lock(changed((case.old, case.new), text=LOCK_TEXT), "inputs.lock")
    assert type(caught.value).__name__ == case.kind
    assert caught.value.problems == tuple(f"inputs.lock:{line}" for line in case.lines)
