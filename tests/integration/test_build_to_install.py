"""Tests of the real pipeline: BuildKit, ORT's source, NVIDIA's wheels, a release, an install, a model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.io.wiring import Wiring
from tests.doubles.github import GitHubDouble
from tests.support import ROOT
from tests.support.real_packages import (
    LIBRARIES,
    MINIMAL,
    listing,
    manifest,
    require_stock_numbers,
    silero_arguments,
    silero_model,
    write_silero_inputs,
)

pytestmark = pytest.mark.integration


def test_a_package_holds_every_library_as_a_real_file(legacy_package: Path, modern_package: Path) -> None:
    for package, libraries in ((legacy_package, MINIMAL), (modern_package, LIBRARIES)):
        rows = listing(package)
        assert all(row.startswith("-") for row in rows), "only regular files"
        assert rows[0].endswith("/manifest.json")
        names = {row.rsplit("/", maxsplit=1)[1] for row in rows if "/lib/" in row}
        assert names == libraries


def test_packages_have_the_bytes_they_had_before(modern_package: Path, dist: Path, root: Path) -> None:
    """A change that is meant to change packages changes ``packages.sha256`` too, and its author says why.

    A compiled package names the state of Debian's archive, so its bytes change with that.
    """
    golden = root / "tests/golden/packages.sha256"
    argv = ["sha256sum", "--check", "--ignore-missing", str(golden)]
    done = subprocess.run(argv, cwd=dist, capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    assert f"{modern_package.name}: OK" in told
    assert all(line.endswith(": OK") for line in told)


def test_legacy_runs_where_no_official_build_does(legacy_package: Path) -> None:
    said = manifest(legacy_package)
    capabilities = said["capabilities"]
    assert isinstance(capabilities, dict)
    for device in ("5.0", "5.2", "6.0", "6.1", "7.0"):
        assert capabilities[device] == "native", device
    for device in ("5.3", "6.2", "7.2", "8.0", "8.9", "12.0"):
        assert capabilities[device] == "none", device
    assert said["driver"] == {"floor": "525.60.13", "ceiling": "580"}


@pytest.fixture(scope="module")
def shelf(legacy_package: Path, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the check tools and the packages of legacy in ``dist``."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / ".check-tools-assembled").symlink_to(dist / ".check-tools-assembled")
    for file in dist.glob("ortpacks-legacy-*"):
        os.link(file, folder / file.name)
    lines = (dist / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if "ortpacks-legacy-" in line))
    return folder


@pytest.fixture(scope="module")
def release(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Publish both layouts to the GitHub double and yield the base URL of the release's files."""
    double = GitHubDouble(tmp_path_factory.mktemp("github"), repository="ortpacks/ortpacks", token="t0ken")
    with double.running():
        environment = {"GITHUB_TOKEN": "t0ken", "GITHUB_REPOSITORY": "ortpacks/ortpacks"}
        argv = ["publish", "--api", double.url, "--tag", "gpu-libs-test", "--dist", shelf]
        argv += ["--allow-lean", "--allow-unresolved", "--allow-partial"]
        done = subprocess.run(
            [sys.executable, "-m", "invoke", *map(str, argv)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**Wiring(ROOT).env, **environment},
        )
        assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
        assert "t0ken" not in done.stdout + done.stderr
        assert "ortpacks-inspect.pyz\n" in (shelf / "SHA256SUMS").read_text()
        with zipfile.ZipFile(shelf / "ortpacks.pyz") as client:
            default = client.read("builder/client/default_index.txt").decode().strip()
        assert default == f"{double.url}/ortpacks/ortpacks/releases/download/gpu-libs-test/index.json"
        yield f"{double.url}/ortpacks/ortpacks/releases/download/gpu-libs-test/"


def test_the_client_installs_a_thin_package_from_the_release_and_a_model_runs(
    release: str, shelf: Path, tmp_path: Path
) -> None:
    """For a thin package pip fetches NVIDIA's wheels from the index that this machine uses."""
    client = shelf / "ortpacks.pyz"
    pips = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    environment = {
        **pips,
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ORTPACKS_FORCE_CC": "5.2",  # Quadro M2200
        "ORTPACKS_FORCE_DRIVER": "535.183.01",
    }
    done = subprocess.run(
        [
            *(sys.executable, client, "install", "--index", release),
            *("--layout", "thin", "--prefix", tmp_path / "prefix"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    installed = tmp_path / "prefix" / "current"
    said = json.loads((installed / "manifest.json").read_text())
    assert (said["variant"], said["layout"]) == ("legacy", "thin")
    assert {path.name for path in (installed / "lib").iterdir()} == MINIMAL
    assert (
        run_model(installed, shelf / ".check-tools-assembled" / "tools" / "ortpacks-smoke", tmp_path) == "cpu"
    )


def run_model(installed: Path, smoke: Path, folder: Path) -> str:
    """Run Silero VAD on the installed host library, without a GPU, and return the provider that ran it."""
    write_silero_inputs(folder)
    done = subprocess.run(
        [smoke, installed / "lib/libonnxruntime.so.1", silero_model(), *silero_arguments(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    said = json.loads(done.stdout)
    assert "CUDA failure" in said["cuda"]["message"]
    require_stock_numbers(said)
    return str(said["provider"])
