"""Tests of real packages without CUDA, by the wheels that pip fetches and by the tools file and readelf."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.fakes.verbs import invoke
from tests.support.real_packages import unpack

WHEELS: Mapping[str, tuple[str, str]] = {
    "cpu": ("onnxruntime==1.21.0", "manylinux_2_28_x86_64"),
    "directml": ("onnxruntime-directml==1.23.0", "win_amd64"),
    "coreml": ("onnxruntime==1.23.2", "macosx_13_0_arm64"),
}
"""Requirement and platform tag of each variant's wheel, from PyPI's pages of both projects."""
LIBRARIES: Mapping[str, Mapping[str, str]] = {
    "cpu": {
        "libonnxruntime.so.1": "libonnxruntime.so.1.21.0",
        "libonnxruntime_providers_shared.so": "libonnxruntime_providers_shared.so",
    },
    "directml": {
        name: name for name in ("DirectML.dll", "onnxruntime.dll", "onnxruntime_providers_shared.dll")
    },
    "coreml": {"libonnxruntime.dylib": "libonnxruntime.1.23.2.dylib"},
}
"""Names of the libraries in each package, with those in its wheel."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Build the packages and return them unpacked, by variant."""
    folder = tmp_path_factory.mktemp("repacked")
    chosen = [word for name in WHEELS for word in ("--variant", name)]
    done = invoke("build", *chosen, "--base", "assembled", "--dist", folder / "dist")
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    archives = {name: next((folder / "dist").glob(f"ortpacks-{name}-*.tar.zst")) for name in WHEELS}
    return {name: unpack(archive, folder / name) for name, archive in archives.items()}


@pytest.fixture(scope="module", params=WHEELS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_library_is_the_one_in_the_wheel_that_pip_fetches(
    packages: Mapping[str, Path], variant: str, tmp_path: Path
) -> None:
    requirement, tag = WHEELS[variant]
    asked = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", f"--platform={tag}", requirement]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", tmp_path, *asked], check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        theirs = {
            name: hashlib.sha256(wheel.read(f"onnxruntime/capi/{source}")).hexdigest()
            for name, source in LIBRARIES[variant].items()
        }
    ours = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (packages[variant] / "lib").iterdir()
    }
    assert ours == theirs
