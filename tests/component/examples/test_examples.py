"""Tests of the programs in ``examples/``, run as users run them, with a release for this machine."""

import configparser
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml
from ortpacks_runtime.one_node import ONE_NODE
from ortpacks_service.app import make_app
from ortpacks_service.options import EMBEDDER, read_options
from starlette.routing import Route

from builder.config.inputs import ort_wheel
from builder.prove.virtualcard.sessions import VirtualCard, environment_of
from tests.answers import pairs
from tests.answers.card import COMPILER, needs_compiler, runtime
from tests.doubles.release import name_of, write_release
from tests.support import ROOT, ran
from tests.support.debian import debian_program
from tests.support.factories.onnx_models import write_model
from tests.support.pypi_programs import npm_package
from tests.support.service import write_embedder

EXAMPLES = ROOT / "examples"
NODE, NPM = shutil.which("node"), shutil.which("npm")
needs_npm = pytest.mark.skipif(
    NODE is None or NPM is None, reason="no Node.js with npm on PATH: it runs npm/"
)
HOST = {"name": "onnxruntime-node", "version": "1.23.2"}
"""The application's own host, of the release's version."""
GPU = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07", "ORTPACKS_FORCE_MEMORY": "8192"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("release"), forms=(".tar.zst", ".tar.gz"))


def unpacked(programs: Path, modules: Path) -> Path:
    """Unpack our package for npm into a folder of packages, and return its own folder."""
    with tarfile.open(programs / "ortpacks-1.0.0.tgz") as archive:
        archive.extractall(modules, filter="data")
    return (modules / "package").rename(modules / "ortpacks")


class Application:
    """A program for Node, its user's home, and a PATH with Node and Python alone."""

    def __init__(self, folder: Path, release: Path) -> None:
        self.folder, self.record = folder / "app", folder / "app/node_modules/ortpacks/gpu-package-info.json"
        self.host, self.path = folder / "host", folder / "path"
        for made in (self.folder, self.host, self.path):
            made.mkdir()
        (self.host / "package.json").write_text(json.dumps(HOST))
        for name, program in (("node", NODE), ("npm", NPM), ("python3", sys.executable), ("sh", "/bin/sh")):
            (self.path / name).symlink_to(str(program))
        self.env = {
            "PATH": str(self.path),
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "ORTPACKS_INDEX": str(release),
            **GPU,
        }

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program, which must succeed, in the application's folder."""
        done = ran(argv, cwd=self.folder, env=self.env | env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def install(self, programs: Path, flag: str, **env: str) -> None:
        """Install the host and the package from their own folder and file, without a registry."""
        argv = ("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", flag)
        self.run(*argv, str(self.host), str(programs / "ortpacks-1.0.0.tgz"), **env)

    def unpack(self, programs: Path) -> None:
        """Put both where npm would, without the time that npm takes."""
        modules = self.record.parent.parent
        modules.mkdir()
        (modules / "onnxruntime-node").symlink_to(self.host)
        unpacked(programs, modules)

    def command(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("node", str(self.record.with_name("cli.js")), *words, **env)

    def info(self, **env: str) -> dict[str, Any]:
        return dict(json.loads(self.command("info", **env).stdout))


@pytest.fixture
def application(tmp_path: Path, release: Path) -> Application:
    return Application(tmp_path, release)


@needs_npm
def test_our_package_has_the_files_that_npm_would_pack(programs: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "npm", tmp_path / "npm")
    for file in (programs / "ortpacks.pyz", ROOT / "LICENSE"):
        shutil.copy(file, tmp_path / "npm")
    argv = [str(NPM), "pack", "--dry-run", "--json", str(tmp_path / "npm")]
    (packed,) = json.loads(subprocess.check_output(argv, cwd=tmp_path, text=True))
    with tarfile.open(programs / packed["filename"]) as ours:
        sizes = {member.name.removeprefix("package/"): member.size for member in ours}
    assert sizes == {file["path"]: file["size"] for file in packed["files"]}


@needs_npm
def test_npm_brings_the_package_that_fits_when_its_script_may_run(
    application: Application, programs: Path
) -> None:
    application.install(programs, "--ignore-scripts")
    reason = application.info()["reason"]
    assert ("--ignore-scripts" in reason, "run `npx ortpacks setup`" in reason) == (True, True)
    assert application.command("setup").stdout.startswith("ortpacks-modern-1.23.2")
    info = application.info()
    assert info == json.loads(application.record.read_text())
    assert (info["package"], info["fallbackToCpu"], info["vramMB"]) == (name_of("modern"), False, 8192)
    assert (info["host"], info["providers"]) == ("1.23.2", ["cuda", "cpu"])
    assert Path(info["environment"]["ORT_DYLIB_PATH"]).is_file()
    assert (info["profile"]["batch"], info["profile"]["dtypes"]["medium"]) == (64, ["fp16", "fp32"])
    assert "files are as the manifest says" in application.command("verify").stdout
    program = "console.log(require('ortpacks').environment({ LD_LIBRARY_PATH: '/before' }).LD_LIBRARY_PATH)"
    said = application.run("node", "-e", program).stdout.strip()
    assert said == f"{info['environment']['LD_LIBRARY_PATH']}:/before"
    (application.host / "package.json").write_text(json.dumps({**HOST, "version": "1.30.0"}))
    assert application.info()["reason"].startswith("onnxruntime-node was 1.23.2 and is 1.30.0 now: run `npx")


@needs_npm
def test_npms_own_proxy_is_the_clients_and_does_not_fail_the_installation(
    application: Application, programs: Path
) -> None:
    index = "https://releases.invalid/index.json"
    application.install(programs, "--https-proxy=http://127.0.0.1:9", ORTPACKS_INDEX=index)
    reason = application.info()["reason"]
    assert "Connection refused" in reason, "it would not know the name without the proxy"
    assert reason.endswith("run `npx ortpacks setup`")


@needs_npm
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"ORTPACKS_FORCE_CC": "none"}, "no NVIDIA GPU"),
        ({"ORTPACKS_INDEX": "/no/such/release"}, "/no/such/release"),
        ({"ORTPACKS_CLIENT": "/no/such.pyz"}, "gave no answer"),
        ({"npm_config_offline": "true"}, "npm is offline"),
        ({"XDG_DATA_HOME": "/proc"}, "/proc/ortpacks"),
        ({"PATH": "{folder}"}, "there is no Python 3.9 or newer on PATH. Install one"),
        (
            {"host": "1.30.0"},
            "Install onnxruntime-node@1.23.2, or name a release of 1.30.0 in ORTPACKS_INDEX",
        ),
        ({"host": ""}, "onnxruntime-node is not installed. Run npm install onnxruntime-node"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_application_goes_on_with_the_cpu_and_says_why(
    application: Application, programs: Path, env: dict[str, str], reason: str
) -> None:
    application.unpack(programs)
    if "host" in env:
        (application.host / "package.json").write_text(json.dumps({**HOST, "version": env["host"]}))
    env = {name: value.format(folder=application.host) for name, value in env.items() if name != "host"}
    (application.host / "node").symlink_to(str(NODE))
    assert application.command("postinstall", **env).stdout.startswith("Models will run on the CPU: ")
    info = application.info(**{name: value for name, value in env.items() if name == "PATH"})
    assert (info["fallbackToCpu"], info["providers"], reason in info["reason"]) == (True, ["cpu"], True), info


@needs_npm
def test_a_package_is_not_called_missing_whose_record_cannot_be_written(
    application: Application, programs: Path
) -> None:
    application.unpack(programs)
    application.record.mkdir()
    said = application.command("postinstall").stdout
    assert (application.folder.parent / "data/ortpacks/current").exists()
    assert f"{application.record} was not written: EISDIR" in said
    assert "name a folder in ORTPACKS_INFO_DIR" in said
    assert application.command("postinstall", ORTPACKS_POSTINSTALL="skip").stdout.startswith(
        "ortpacks: skipped"
    )


def test_the_python_program_runs_a_model_and_says_where(pyz: Path, tmp_path: Path) -> None:
    onnx.save(onnx.load_from_string(ONE_NODE), tmp_path / "model.onnx")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "runtime"), "ORTPACKS_CLIENT": str(pyz)}
    argv = [sys.executable, str(EXAMPLES / "python/run_model.py"), "model.onnx"]
    done = ran(argv, cwd=tmp_path, env=env)
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


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder like a package's, with the official build, and a model of one kernel of its own."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "lib").mkdir()
    official = pairs.official("1.30.0").library
    for library in official.parent.glob("libonnxruntime*"):
        (folder / "lib" / library.name).symlink_to(library)
    (folder / "lib/libonnxruntime.so.1").symlink_to(official)
    write_model(folder / "model.onnx", "g (float[2, 2] x) => (float[2, 2] y) { y = Add (x, x) }")
    return folder


Started = tuple[list[str | Path], dict[str, str], str]
"""How an example is started: its command, variables, and the end of its first line."""


def c_program(package: Path, programs: Path, folder: Path) -> Started:
    header = debian_program("libonnxruntime-dev/trixie", "usr/include/onnxruntime/onnxruntime_c_api.h")
    made, strict = folder / "run_model", ("-Wall", "-Wextra", "-Werror", f"-I{header.parent}")
    subprocess.run([COMPILER, *strict, EXAMPLES / "c/run_model.c", "-o", made, "-ldl"], check=True)
    return [made], {}, ": 1 outputs\n"


def node_program(package: Path, programs: Path, folder: Path) -> Started:
    modules = npm_package("onnxruntime-node", "1.30.0").parent
    (folder / "onnxruntime-node").symlink_to(modules / "onnxruntime-node")
    lib = package / "lib"
    variables = {"ORT_DYLIB_PATH": f"{lib}/libonnxruntime.so.1", "LD_LIBRARY_PATH": str(lib)}
    record = {"host": "1.30.0", "providers": ["cuda", "cpu"], "environment": variables}
    (unpacked(programs, folder) / "gpu-package-info.json").write_text(json.dumps(record))
    return (
        [str(NODE), EXAMPLES / "node/run_model.js"],
        {"NODE_PATH": f"{folder}:{modules}"},
        ": [ [ 2, 2 ] ]\n",
    )


def python_program(package: Path, programs: Path, folder: Path) -> Started:
    if not pairs.python_can_import("1.30.0"):
        pytest.skip("the wheel of onnxruntime-gpu 1.30.0 in the cache is not one for this Python")
    paths = [pairs.store().unpack(ort_wheel("1.30.0")), ROOT / "runtime"]
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "ORTPACKS_CLIENT": f"{programs}/ortpacks.pyz",
    }
    return [sys.executable, EXAMPLES / "python/run_model.py"], variables, "outputs: [(2, 2)]\n"


@pytest.mark.integration
@needs_compiler
@needs_npm
@pytest.mark.parametrize(("capability", "provider"), [("8.6", "cuda"), ("5.2", "cpu")])
@pytest.mark.parametrize("program", [c_program, node_program, python_program])
def test_a_program_runs_where_the_package_does_or_says_why_not(
    package: Path,
    programs: Path,
    tmp_path: Path,
    capability: str,
    provider: str,
    program: Callable[[Path, Path, Path], Started],
) -> None:
    argv, variables, end = program(package, programs, tmp_path)
    host, card = package / "lib/libonnxruntime.so.1", VirtualCard(capability=capability)
    env = os.environ | environment_of(host, card, runtime(), Path(tempfile.mkdtemp(dir=package)))
    env |= {
        "ORTPACKS_FORCE_CC": capability,
        "ORTPACKS_FORCE_DRIVER": card.driver,
        "ORT_DYLIB_PATH": str(host),
    }
    argv.append(package / "model.onnx")
    done = ran(argv, env=env | variables)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.split(":")[0], done.stdout.endswith(end)) == (provider, True), (
        done.stdout + done.stderr
    )
    refused = "Falling back to CPU: " in done.stderr and "no kernel image is available" in done.stderr
    assert refused == (provider == "cpu"), done.stderr


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
        return ran(argv, cwd=folder, env=env)

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
