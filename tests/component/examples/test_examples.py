"""Tests of the programs in ``examples/``, run as users run them, with a release for this machine."""

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from ortpacks_runtime.one_node import ONE_NODE
from ortpacks_service.app import make_app
from ortpacks_service.options import EMBEDDER, read_options
from starlette.routing import Route

from tests.answers import pairs
from tests.doubles.release import name_of, write_release
from tests.support import ROOT
from tests.support.service import write_embedder

EXAMPLES = ROOT / "examples"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node on PATH: it runs examples/node")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("release"), forms=(".tar.zst", ".tar.gz"))


def postinstall(pyz: Path, folder: Path, release: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script, which must succeed and writes ``gpu-package-info.json`` into the folder."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "node").symlink_to(str(NODE))
    (programs / "python3").symlink_to(sys.executable)
    world = {
        "PATH": str(programs),
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "ORTPACKS_CLIENT": str(pyz),
        "ORTPACKS_INDEX": str(release),
        "ORTPACKS_INFO_DIR": str(folder),
        **env,
    }
    argv = ["node", str(EXAMPLES / "node/postinstall.js")]
    done = subprocess.run(argv, env=world, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "gpu-package-info.json").read_text()))


@needs_node
def test_npm_brings_the_package_that_fits(pyz: Path, tmp_path: Path, release: Path) -> None:
    gpu = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07", "ORTPACKS_FORCE_MEMORY": "8192"}
    postinstall(pyz, tmp_path, release, **gpu)
    info = record(tmp_path)
    assert (info["package"], info["fallbackToCpu"], info["vramMB"]) == (name_of("modern"), False, 8192)
    assert Path(info["environment"]["ORT_DYLIB_PATH"]).is_file()
    assert (info["profile"]["batch"], info["profile"]["dtypes"]["medium"]) == (64, ["fp16", "fp32"])


@needs_node
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"ORTPACKS_FORCE_CC": "none"}, "no NVIDIA GPU"),
        ({"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_INDEX": "/no/such/release"}, "/no/such/release"),
        ({"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_CLIENT": "/no/such.pyz"}, "gave no answer"),
    ],
    ids=["no GPU", "no release", "no client"],
)
def test_npm_goes_on_with_the_cpu_and_says_why(
    pyz: Path, tmp_path: Path, release: Path, env: dict[str, str], reason: str
) -> None:
    assert postinstall(pyz, tmp_path, release, **env).stdout.startswith("Models will run on the CPU: ")
    info = record(tmp_path)
    assert (info["fallbackToCpu"], reason in info["reason"]) == (True, True)


@needs_node
def test_npm_goes_on_without_python(pyz: Path, tmp_path: Path, release: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "node").symlink_to(str(NODE))
    postinstall(pyz, tmp_path, release, PATH=str(tmp_path / "alone"))
    assert record(tmp_path) == {"fallbackToCpu": True, "reason": "there is no Python 3.9 or newer on PATH"}


@needs_node
def test_npm_does_not_call_a_package_missing_whose_record_cannot_be_written(
    pyz: Path, tmp_path: Path, release: Path
) -> None:
    (tmp_path / "gpu-package-info.json").mkdir()
    done = postinstall(pyz, tmp_path, release, ORTPACKS_FORCE_CC="8.6")
    assert (tmp_path / "data/ortpacks/current").exists()
    assert f"{tmp_path}/gpu-package-info.json was not written: EISDIR" in done.stderr


def test_the_python_program_runs_a_model_and_says_where(pyz: Path, tmp_path: Path) -> None:
    onnx.save(onnx.load_from_string(ONE_NODE), tmp_path / "model.onnx")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "runtime"), "ORTPACKS_CLIENT": str(pyz)}
    argv = [sys.executable, str(EXAMPLES / "python/run_model.py"), "model.onnx"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cpu: onnxruntime ")
    assert done.stdout.endswith("outputs: [(2, 2)]\n")
    assert "Falling back to CPU: cuda: " in done.stderr


def test_the_unit_is_one_and_its_drop_in_names_the_libraries(
    pyz: Path, tmp_path: Path, release: Path
) -> None:
    env = {"ORTPACKS_FORCE_CC": "8.6", "XDG_DATA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    said = ""
    for command in (["install", "--yes", "--index", str(release)], ["env", "--shell", "systemd"]):
        said = subprocess.check_output([sys.executable, str(pyz), *command], env=env, text=True)
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(EXAMPLES / "systemd/my-application.service")
    assert unit["Service"]["ExecStart"].startswith("/")
    unit.read_string(said)
    assert "current/lib" in unit["Service"]["Environment"]


CARGO = shutil.which("cargo")


@pytest.mark.integration
@pytest.mark.skipif(CARGO is None, reason="no cargo on PATH: it compiles examples/rust")
def test_the_rust_program_compiles_and_opens_a_model_on_the_oldest_version(tmp_path: Path) -> None:
    folder = tmp_path / "rust"
    shutil.copytree(EXAMPLES / "rust", folder)
    onnx.save(onnx.load_from_string(ONE_NODE), folder / "model.onnx")

    def cargo(*arguments: str) -> subprocess.CompletedProcess[str]:
        library = pairs.official("1.21.0").library
        argv, env = [str(CARGO), *arguments], {**os.environ, "ORT_DYLIB_PATH": str(library)}
        return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)

    fetched = cargo("fetch")
    if fetched.returncode:
        pytest.skip(f"cargo cannot fetch the crate ort: {fetched.stderr.strip().splitlines()[-1].strip()}")
    done = cargo("run", "--quiet", "--", "model.onnx")
    assert (done.returncode, done.stdout) == (0, "1 inputs, 1 outputs\n"), done.stderr


def test_the_manifest_for_kubernetes_is_one_of_the_service(tmp_path: Path) -> None:
    deployment, claim, service = yaml.safe_load_all((EXAMPLES / "kubernetes/service.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    write_embedder(tmp_path / EMBEDDER)
    given = {one["name"]: one.get("value", "key") for one in container["env"]}
    app = make_app(read_options(["--models", str(tmp_path)], given))
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    paths = {name: probe["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    assert set(paths.values()) <= {route.path for route in app.routes if isinstance(route, Route)}
    (port,) = container["ports"]
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    access = app.state.access
    named = {"type": "http", "method": "GET", "path": "/metrics", "headers": [(b"host", b"ortpacks:9900")]}
    access.require(named)
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["cpu"]
    assert compose["mem_limit"].partition(":-")[2].rstrip("}") == "512m"
    assert container["resources"]["limits"]["memory"] == "512Mi"
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    assert claim["metadata"]["name"] == pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
