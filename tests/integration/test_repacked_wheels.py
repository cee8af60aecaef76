"""Tests of real packages without CUDA, by the wheels that pip fetches."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.fakes.verbs import invoke
from tests.support.real_packages import sha256, unpack

pytestmark = pytest.mark.thorough

WHEELS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "cpu": (
        "onnxruntime==1.21.0",
        "manylinux_2_28_x86_64",
        {
            "libonnxruntime.so.1": "libonnxruntime.so.1.21.0",
            "libonnxruntime_providers_shared.so": "libonnxruntime_providers_shared.so",
        },
    ),
    "directml": (
        "onnxruntime-directml==1.24.4",
        "win_amd64",
        {name: name for name in ("DirectML.dll", "onnxruntime.dll", "onnxruntime_providers_shared.dll")},
    ),
    "coreml": (
        "onnxruntime==1.30.0",
        "macosx_14_0_arm64",
        {"libonnxruntime.dylib": "libonnxruntime.1.30.0.dylib"},
    ),
}
"""Requirement and platform tag of each variant's wheel, and the names of the package's libraries in it.

Source: PyPI's pages of both projects.
"""


def test_each_library_is_the_one_in_the_wheel_that_pip_fetches(tmp_path: Path) -> None:
    chosen = [word for name in WHEELS for word in ("--variant", name)]
    done = invoke("build", *chosen, "--base", "assembled", "--dist", tmp_path / "dist")
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    for variant, (requirement, tag, libraries) in WHEELS.items():
        asked = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", f"--platform={tag}"]
        argv = [sys.executable, "-m", "pip", "download", "-q", *asked, requirement]
        subprocess.run([*argv, "-d", tmp_path / variant], check=True)
        with zipfile.ZipFile(next((tmp_path / variant).glob("*.whl"))) as wheel:
            theirs = {
                name: hashlib.sha256(wheel.read(f"onnxruntime/capi/{source}")).hexdigest()
                for name, source in libraries.items()
            }
        archive = next((tmp_path / "dist").glob(f"ortpacks-{variant}-*.tar.zst"))
        package = unpack(archive, tmp_path / f"{variant}-package")
        assert {path.name: sha256(path) for path in (package / "lib").iterdir()} == theirs
