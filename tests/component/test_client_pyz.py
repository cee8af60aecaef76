"""The one file: built twice the same, run without site-packages, and its JSON held to the schema."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from builder.stages.client import ClientRequest, build_client
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, cut, manifest_of, serving, write_release
from tests.doubles.wheels import WHEELS, indexing


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def build(folder: Path, index_url: str | None = None) -> Path:
    source = Path(__file__).parents[2]
    return build_client(ClientRequest(source=source, target=folder / "ortpacks.pyz", index_url=index_url))


def run(pyz: Path, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", pyz, *argv],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert again.read_bytes() == pyz.read_bytes()
    assert again.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert os.access(again, os.X_OK)
    assert [path.name for path in tmp_path.iterdir()] == ["ortpacks.pyz"]


def test_it_holds_what_it_imports_and_nothing_of_the_builder(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()
    assert names == sorted(names)
    assert {
        "__main__.py",
        "builder/errors.py",
        "builder/core/select.py",
        "builder/client/cuda_probe.py",
    } <= set(names)
    assert not [name for name in names if "stages" in name or "adapters" in name or "fatbin" in name]


def test_it_installs_with_nothing_but_python_and_zstd(pyz: Path, tmp_path: Path) -> None:
    index = write_release(tmp_path / "release")
    env = {
        "ORTPACKS_FORCE_CC": "5.2",
        "ORTPACKS_FORCE_DRIVER": "550.54.14",
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    with serving(index.parent) as server:
        done = run(pyz, "install", "--index", f"{server.url}/index.json", env=env)
    assert done.returncode == 0, done.stderr
    lib = tmp_path / "data" / "ortpacks" / "current" / "lib"
    assert (lib / "libonnxruntime.so.1").read_bytes() == FILES["lib/libonnxruntime.so.1"]
    assert run(pyz, "verify", env=env).returncode == 0
    assert str(lib / "libonnxruntime.so.1") in run(pyz, "env", env=env).stdout


def test_it_completes_a_thin_package_through_the_machines_pip(pyz: Path, tmp_path: Path) -> None:
    index = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    env = {"ORTPACKS_FORCE_CC": "8.6", "XDG_DATA_HOME": str(tmp_path / "data")}
    with indexing() as pypi:
        pip = {"PIP_INDEX_URL": pypi.url, "PIP_CONFIG_FILE": os.devnull}
        done = run(pyz, "install", "--index", str(index), env={**env, **pip})
    assert done.returncode == 0, done.stderr
    assert "Fetching nvidia_cublas_cu12-12.9.1.4-py3-none-manylinux_2_27_x86_64.whl" in done.stderr
    assert "7 files are as the manifest says" in run(pyz, "verify", env=env).stdout


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13", "3.14"])
def test_it_runs_on_every_python_from_3_9(pyz: Path, tmp_path: Path, version: str) -> None:
    env = {**os.environ, "ORTPACKS_FORCE_CC": "8.6", "PYENV_VERSION": version}
    python = shutil.which(f"python{version}")
    if (
        python is None
        or subprocess.run([python, "-c", ""], env=env, check=False, capture_output=True).returncode != 0
    ):
        pytest.skip(f"no python{version} here")
    index = write_release(
        tmp_path / "release", forms=(".tar.zst", ".tar.gz"), layouts=("thin",), wheels=WHEELS
    )
    cut(index, 500)
    for wheel in WHEELS:
        for member, content in wheel.libraries.items():
            (tmp_path / "venv" / member).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "venv" / member).write_bytes(content)
    argv: list[str | Path] = [python, "-W", "error", "-I", "-S", pyz, "install", "--index", index]
    argv += ["--prefix", tmp_path / "prefix", "--look-in", tmp_path / "venv"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "3 of 3 NVIDIA libraries are on this machine already.\n")


def test_the_index_it_was_published_with_is_the_default(tmp_path: Path) -> None:
    index = write_release(tmp_path / "release")
    with serving(index.parent) as server:
        own = build(tmp_path / "dist", f"{server.url}/index.json")
        done = run(own, "select", env={"ORTPACKS_FORCE_CC": "8.6"})
        assert (done.returncode, "has native code for" in done.stdout) == (0, True), done.stderr
    assert run(build(tmp_path / "bare"), "select").returncode == 2


def test_detect_is_quick_where_there_is_nothing(pyz: Path) -> None:
    done = run(pyz, "detect", "--json")
    assert done.returncode == 0, done.stderr
    assert [probe["name"] for probe in json.loads(done.stdout)["probes"]][:3] == [
        "environment",
        "libcuda",
        "nvidia-smi",
    ]


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--help"], 0, "exit codes"),
        (["install", "--help"], 0, "--prefix"),
        ([], 2, "COMMAND"),
        (["instal"], 2, "invalid choice"),
        (["env", "--shell", "tcsh"], 2, "invalid choice"),
        (["select"], 2, "--index"),
        (["select", "--index", "/no/such/index.json"], 10, "No such file"),
        (["select", "--index", "ftp://host/index.json"], 10, "ftp:"),
        (["verify", "--prefix", "/no/such/prefix"], 3, "Run install"),
    ],
)
def test_wrong_use_is_a_message_and_an_exit_code(pyz: Path, argv: list[str], code: int, words: str) -> None:
    done = run(pyz, *argv)
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_every_json_answer_holds_its_schema(root: Path, tmp_path: Path) -> None:
    schema = json.loads((root / "docs" / "schemas" / "client.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    release = str(write_release(tmp_path / "release").parent)
    answers: set[tuple[str, bool]] = set()
    for env in ({"ORTPACKS_FORCE_CC": "8.6,5.2"}, {"ORTPACKS_FORCE_CC": "8.7"}, {}):
        machine = Machine(tmp_path / f"home-{len(answers)}", env=env)
        commands = ([name, "--index", release] for name in ("select", "install", "recommend"))
        for argv in (["detect"], *commands, ["verify"], ["env"]):
            if machine.run(*argv, "--json") != 0:
                continue  # verify and env where nothing is installed
            answer = json.loads(machine.out)
            Draft202012Validator(schema).validate(answer)
            answers.add((answer["command"], answer.get("package") is None))
    assert {command for command, _ in answers} == {
        "detect",
        "select",
        "install",
        "verify",
        "env",
        "recommend",
    }
    assert ("install", False) in answers
    assert ("install", True) in answers


def test_the_stand_in_release_is_one_by_our_own_schemas(root: Path, tmp_path: Path) -> None:
    release = write_release(tmp_path, layouts=("full", "thin"), forms=(".tar.zst", ".tar.gz"), wheels=WHEELS)
    cut(release, 500)
    schemas = root / "docs" / "schemas"
    index = Draft202012Validator(json.loads((schemas / "index.schema.json").read_text()))
    index.validate(json.loads(release.read_text()))
    manifest = Draft202012Validator(json.loads((schemas / "manifest.schema.json").read_text()))
    for layout in ("full", "thin"):
        manifest.validate(manifest_of("modern", FILES, layout=layout, wheels=WHEELS))
