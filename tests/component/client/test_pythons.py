"""Tests of ``ortpacks.pyz`` on every supported Python that is installed: each command once,
without warnings."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.doubles.release import FILES, serving, write_release
from tests.doubles.wheels import WHEELS, unpacked
from tests.support import ROOT
from tests.support.pypi_programs import pypi_program
from tests.support.pythons import one_of

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")

ENDS = ("3.9", "3.13")
"""The oldest Python and the newest that cannot read zstd."""


@dataclass(frozen=True, kw_only=True)
class Shell:
    """A runner of the client, like a user's shell, with the Python under test."""

    python: str
    pyz: Path
    home: Path
    path: str = "/usr/bin:/bin"

    def run(self, *argv: str | Path, code: int = 0, told: str | None = "") -> str:
        """Run the client and return its standard output; a ``DeprecationWarning`` is an error.

        ``told`` is the expected standard error; ``None`` accepts messages on progress and none of Python's
        own.
        """
        done = subprocess.run(
            [self.python, "-W", "error", "-I", "-S", self.pyz, *argv],
            env={
                "PATH": self.path,
                "HOME": str(self.home),
                "ORTPACKS_FORCE_CC": "8.6",
                "ORTPACKS_FORCE_DRIVER": "570.133.07",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr if told is not None else told
        assert "Warning" not in done.stderr
        assert (done.returncode, said) == (code, told), (argv, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return an older and a newer release with both kinds of archive: not every Python reads zstd."""
    place, forms = tmp_path_factory.mktemp("releases"), (".tar.zst", ".tar.gz")
    older = write_release(place / "older", version="1.22.0", forms=forms)
    return older, write_release(place / "newer", forms=forms)


def _each(versions: Sequence[str]) -> list[object]:
    """Return parameters of which those between the ends take part in thorough runs alone."""
    return [name if name in ENDS else pytest.param(name, marks=pytest.mark.thorough) for name in versions]


@pytest.fixture(params=_each(VERSIONS))
def shell(request: pytest.FixtureRequest, pyz: Path, tmp_path: Path) -> Shell:
    return Shell(python=one_of(request.param), pyz=pyz, home=tmp_path)


def test_each_command_runs_on_each_python(shell: Shell, releases: tuple[Path, Path], tmp_path: Path) -> None:
    """PATH has no program, and only the standard library is importable."""
    bare = replace(shell, path="/nonexistent")
    older, newer = releases
    for command, index in (("install", older), ("select", newer), ("list", newer), ("recommend", newer)):
        assert bare.run(command, "--index", index, told=None)
    bare.run("install", "--index", newer, told=None)
    for command in ("detect", "env", "rollback"):
        assert bare.run(command, told=None)
    assert json.loads(bare.run("verify", "--json"))["command"] == "verify"
    host = tmp_path / ".local/share/ortpacks/current/lib/libonnxruntime.so.1"
    assert host.read_bytes() != FILES["lib/libonnxruntime.so.1"], "rolled back to the older one"
    assert "session" in bare.run("doctor", code=6), "the stand-in loads and opens no model"
    bare.run("uninstall")
    assert list((tmp_path / ".local/share").iterdir()) == []


def test_a_thin_package_is_completed_on_every_python(shell: Shell, tmp_path: Path) -> None:
    forms = (".tar.zst", ".tar.gz")
    index = write_release(tmp_path / "release", forms=forms, layouts=("thin",), wheels=WHEELS)
    venv = unpacked(tmp_path / "venv", *WHEELS)
    shell.run("install", "--index", index, "--look-in", venv, "--quiet")


NO_HOME = """\
import os, pwd, runpy, sys
os.environ.pop("HOME")
pwd.getpwuid = lambda _: {}["uid not found"]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
"""Starts the client as a user who has no entry in passwd and no HOME, as ``docker run --user 12345`` does."""


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["verify"], 3, "No package is installed under /.local/share/ortpacks"),
        (["verify", "--prefix", "~/x"], 2, "no home is known for that user"),
    ],
)
def test_a_user_without_a_home(shell: Shell, argv: list[str], code: int, words: str) -> None:
    started: list[str | Path] = [shell.python, "-I", "-S", "-c", NO_HOME, shell.pyz, *argv]
    done = subprocess.run(started, capture_output=True, text=True, check=False)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stderr


IMPORT = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
for file in pathlib.Path(sys.argv[1], "ortpacks_runtime").glob("*.py"):
    try:
        importlib.import_module(f"ortpacks_runtime.{file.stem}")
    except ModuleNotFoundError as error:
        assert error.name in ("numpy", "onnxruntime", "tomli"), error
"""
"""A program that imports every module of the runtime layer, as far as its dependencies are there."""

SUPPORTED = VERSIONS[1:]
"""Pythons of ``requires-python`` in ``runtime/pyproject.toml``."""


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_runtime_layer_is_importable_on_each_python(version: str) -> None:
    argv = [one_of(version), "-W", "error", "-I", "-S", "-B", "-c", IMPORT, str(ROOT / "runtime")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.integration
@pytest.mark.parametrize("version", SUPPORTED)
def test_the_runtime_layer_runs_on_each_python(version: str, pyz: Path, tmp_path: Path) -> None:
    package = f"lib/python{version}/site-packages/onnxruntime"
    folder = pypi_program(("onnxruntime", "tomli"), package, one_of(version)).parents[3]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "runtime"),
        "ORTPACKS_CLIENT": str(pyz),
        "ORTPACKS_FORCE_CC": "none",
    }
    doctor = [str(folder / "bin" / "python"), "-B", "-m", "ortpacks_runtime", "doctor", "--json"]
    done = subprocess.run(doctor, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["provider"], said["proved"]) == ("cpu", True)


@pytest.mark.parametrize("shell", ENDS, indirect=True)
def test_a_permanent_redirect_is_followed(shell: Shell, releases: tuple[Path, Path]) -> None:
    """urllib follows 308 from Python 3.11 on."""
    _, newer = releases
    with serving(newer.parent) as server:
        server.faults.append(lambda handler, content: handler.answer(308, b"", {"Location": handler.path}))
        shell.run("install", "--index", f"{server.url}/index.json", told=None)
