"""The main job for real: engine, BuildKit, ORT source, NVIDIA wheels, a model; then the way to the user."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.adapters.test_models.stock import stock_outputs
from builder.builds.wiring import Wiring
from builder.pipeline.plan import PROVIDER_IN_WHEEL
from builder.pipeline.selftest_models import silero_inputs
from builder.project.inputs import SELFTEST_MODEL, ort_wheel
from tests.doubles.github import GitHubDouble
from tests.support import ROOT
from tests.support.fakes.verbs import build, invoke, thin_of

pytestmark = pytest.mark.integration

MINIMAL = {
    "libcudart.so.12",
    "libonnxruntime.so.1",
    "libonnxruntime_providers_cuda.so",
    "libonnxruntime_providers_shared.so",
}
"""The minimal provider needs cudart alone: what nothing needs is left out."""
LIBRARIES = MINIMAL | {
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudnn.so.9",
    "libcudnn_adv.so.9",
    "libcudnn_cnn.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_graph.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_ops.so.9",
    "libcufft.so.11",
    "libcurand.so.10",
    "libnvrtc-builtins.so.12.9",
    "libnvrtc.so.12",
}
"""ORT's three, CUDA's seven, cuDNN's eight."""


def listing(package: Path) -> list[str]:
    """Members by the system's own tar, an outsider."""
    done = subprocess.run(
        ["tar", "--use-compress-program", "zstd --long=27", "-tvf", package],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def manifest(package: Path) -> dict[str, object]:
    top = package.name.removesuffix(".tar.zst")
    done = subprocess.run(
        ["tar", "--use-compress-program", "zstd --long=27", "-xOf", package, f"{top}/manifest.json"],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_package_holds_every_library_as_a_real_file(legacy_package: Path, modern_package: Path) -> None:
    for package, libraries in ((legacy_package, MINIMAL), (modern_package, LIBRARIES)):
        rows = listing(package)
        assert all(row.startswith("-") for row in rows), "only regular files"
        assert rows[0].endswith("/manifest.json")
        names = {row.rsplit("/", maxsplit=1)[1] for row in rows if "/lib/" in row}
        assert names == libraries


def test_legacy_runs_where_no_official_build_does(legacy_package: Path) -> None:
    said = manifest(legacy_package)
    capabilities = said["capabilities"]
    assert isinstance(capabilities, dict)
    for device in ("5.0", "5.2", "6.0", "6.1", "7.0"):
        assert capabilities[device] == "native", device
    for device in ("5.3", "6.2", "7.2", "8.0", "8.9", "12.0"):
        assert capabilities[device] == "none", device
    assert said["driver"] == {"floor": "525.60.13", "ceiling": "580"}


def test_modern_is_the_official_wheel(modern_package: Path) -> None:
    said = manifest(modern_package)
    assert said["onnxruntime"]["origin"] == "wheel"  # type: ignore[index]
    capabilities = said["capabilities"]
    assert isinstance(capabilities, dict)
    assert {device: capabilities[device] for device in ("7.5", "8.0", "8.6", "12.0", "5.2")} == {
        "7.5": "native",
        "8.0": "native",
        "8.6": "native",
        "12.0": "jit",
        "5.2": "none",
    }


def test_the_compiled_provider_asks_for_nothing_beyond_an_old_debian(
    legacy_package: Path, dist: Path
) -> None:
    provider = dist / "legacy" / "artifact" / "libonnxruntime_providers_cuda.so"
    dynamic = subprocess.run(["readelf", "-dW", provider], capture_output=True, text=True, check=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
    assert needed <= {
        "libcudart.so.12",
        "libstdc++.so.6",
        "libgcc_s.so.1",
        "libc.so.6",
        "libm.so.6",
        "ld-linux-x86-64.so.2",
    }
    assert "Library runpath: [$ORIGIN]" in dynamic
    versions = subprocess.run(["readelf", "-VW", provider], capture_output=True, text=True, check=True).stdout
    glibc = {word for word in versions.replace("\n", " ").split() if word.startswith("GLIBC_2.")}
    assert max(int(word.split(".")[1]) for word in glibc) <= 35, "Ubuntu 22.04 has glibc 2.35"


def test_a_second_build_does_nothing(legacy_package: Path, dist: Path) -> None:
    before = legacy_package.stat().st_mtime_ns
    started = time.monotonic()
    done = invoke(
        "build", "--variant", "legacy", "--profile", "minimal", "--base", "assembled", "--dist", dist
    )
    assert done.returncode == 0, done.stderr
    assert "is up to date" in done.stdout
    assert legacy_package.stat().st_mtime_ns == before
    assert time.monotonic() - started < 20


def test_the_same_inputs_give_the_same_bytes(modern_package: Path, tmp_path: Path) -> None:
    again = build(tmp_path, "--variant", "modern", "--mixed", "--offline")
    assert sha256(again) == sha256(modern_package)
    assert sha256(thin_of(again)) == sha256(thin_of(modern_package))


def test_a_thin_package_leaves_nvidias_libraries_to_nvidias_wheels(modern_package: Path) -> None:
    thin = thin_of(modern_package)
    names = {row.rsplit("/", maxsplit=1)[1] for row in listing(thin) if "/lib/" in row}
    assert names == {name for name in LIBRARIES if "onnxruntime" in name}
    files = manifest(thin)["files"]
    assert isinstance(files, list)
    assert {entry["path"].removeprefix("lib/") for entry in files if not entry["packed"]} == LIBRARIES - names
    assert thin.stat().st_size < modern_package.stat().st_size * 0.15


def test_the_wrong_provider_never_gets_into_a_package(
    legacy_package: Path, dist: Path, tmp_path: Path
) -> None:
    """The seed's release: one provider in all three variants."""
    shutil.copytree(dist / "legacy", tmp_path / "legacy")
    old = tmp_path / legacy_package.name
    old.write_bytes(b"an older package")
    shop = Wiring(ROOT)
    official = shop.store(shop.lock).unpack(ort_wheel("1.21.0")) / PROVIDER_IN_WHEEL
    shutil.copy2(official, tmp_path / "legacy" / "artifact" / official.name)
    flags = ("--variant", "legacy", "--profile", "minimal", "--base", "assembled", "--dist", tmp_path)
    done = invoke("bundle", *flags)
    assert done.returncode == 6, done.stdout
    assert "A001" in done.stderr
    assert "sm_50" in done.stderr
    assert not old.exists(), "fail closed: no package of this name is left"


def test_what_was_compiled_for_one_profile_is_not_packed_as_another(
    legacy_package: Path, dist: Path, tmp_path: Path
) -> None:
    shutil.copytree(dist / "legacy", tmp_path / "legacy")
    done = invoke(
        "bundle", "--variant", "legacy", "--profile", "lean", "--base", "assembled", "--dist", tmp_path
    )
    assert done.returncode == 6, done.stdout
    assert "was not compiled for this plan" in done.stderr
    assert not list(tmp_path.glob("*.tar.zst"))


@pytest.fixture(scope="module")
def release(
    legacy_package: Path, modern_package: Path, dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Both packages published to the double; yields the release's download address."""
    double = GitHubDouble(tmp_path_factory.mktemp("github"), repository="ortpacks/ortpacks", token="t0ken")
    with double.running():
        environment = {"GITHUB_TOKEN": "t0ken", "GITHUB_REPOSITORY": "ortpacks/ortpacks"}
        argv = ["publish", "--api", double.url, "--tag", "gpu-libs-test", "--dist", dist]
        argv += ["--allow-lean", "--allow-unresolved", "--allow-mixed"]
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
        with zipfile.ZipFile(dist / "ortpacks.pyz") as client:
            default = client.read("builder/client/default_index.txt").decode().strip()
        assert default == f"{double.url}/ortpacks/ortpacks/releases/download/gpu-libs-test/index.json"
        yield f"{double.url}/ortpacks/ortpacks/releases/download/gpu-libs-test/"


@pytest.mark.parametrize(
    ("capability", "driver", "variant", "layout"),
    [
        ("5.2", "535.183.01", "legacy", "full"),  # Quadro M2200, where it all began
        ("5.2", "535.183.01", "legacy", "thin"),
        ("8.6", "570.133.07", "modern", "full"),  # RTX A1000
    ],
)
def test_the_client_installs_from_the_release_and_a_model_runs(
    release: str, dist: Path, tmp_path: Path, capability: str, driver: str, variant: str, layout: str
) -> None:
    """Of a thin package pip fetches the rest, from the index that this machine uses."""
    client = dist / "ortpacks.pyz"
    pips = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    environment = {
        **pips,
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ORTPACKS_FORCE_CC": capability,
        "ORTPACKS_FORCE_DRIVER": driver,
    }
    done = subprocess.run(
        [
            *(sys.executable, client, "install", "--index", release),
            *("--layout", layout, "--prefix", tmp_path / "prefix"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    installed = tmp_path / "prefix" / "current"
    said = json.loads((installed / "manifest.json").read_text())
    assert (said["variant"], said["layout"]) == (variant, layout)
    assert {path.name for path in (installed / "lib").iterdir()} == (
        MINIMAL if variant == "legacy" else LIBRARIES
    )
    assert run_model(installed, dist / ".kit-assembled" / "kit" / "ortpacks-smoke", tmp_path) == "cpu"


def silero_model() -> Path:
    shop = Wiring(ROOT)
    return shop.store(shop.lock).unpack(SELFTEST_MODEL) / "silero_vad/data/silero_vad.onnx"


def run_model(installed: Path, smoke: Path, folder: Path) -> str:
    """Silero VAD on the installed host library, without a GPU; the provider that was used."""
    inputs = silero_inputs()
    model = silero_model()
    for item in inputs:
        (folder / item.name).write_bytes(item.data)
    arguments = [f"{item.argument}{folder / item.name}" for item in inputs]
    done = subprocess.run(
        [smoke, installed / "lib/libonnxruntime.so.1", model, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    said = json.loads(done.stdout)
    assert "CUDA failure" in said["cuda"]["message"]
    for name, wanted in stock_outputs(model, inputs).items():
        assert said["outputs"][name] == pytest.approx(wanted, abs=1e-4)
    return str(said["provider"])


def test_a_machine_without_gpu_stays_on_the_cpu_and_is_told_why(
    release: str, dist: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, dist / "ortpacks.pyz", "select", "--index", release],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ORTPACKS_FORCE_CC": "none"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CPU: ")
    assert "ORTPACKS_FORCE_CC" in done.stdout, "the reason"
