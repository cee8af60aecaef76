"""Tests of what brings the client to a machine: pip from an index, and ``install.sh``."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.doubles.release import serving
from tests.support import ROOT
from tests.support.factories.archives import zipped
from tests.support.messages import Told
from tests.support.pypi_programs import UV, pypi_program
from tests.support.pythons import one_of

WHEEL = "ortpacks-1.0.0-py3-none-any.whl"
VERSION = "ortpacks 1.0.0 of the release gpu-libs-v1.23.2, with Python 3."


def simple_index(folder: Path, wheel: Path) -> str:
    """Return the address of a package index (PEP 503) with one wheel."""
    page = folder / "simple" / "ortpacks" / "index.html"
    page.parent.mkdir(parents=True)
    shutil.copy(wheel, page.parent)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    page.write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')
    return page.parent.parent.as_uri()


def older_wheel(folder: Path) -> Path:
    """Write a wheel of an ortpacks before this one, which had a module ``ortpacks.gone``."""
    wheel, info = folder / "ortpacks-0.9-py3-none-any.whl", "ortpacks-0.9.dist-info"
    kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {"ortpacks/__init__.py": "", "ortpacks/gone.py": "", f"{info}/WHEEL": kind}
    texts[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: ortpacks\nVersion: 0.9\n"
    texts[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*texts, f"{info}/RECORD"])
    wheel.write_bytes(zipped({name: text.encode() for name, text in texts.items()}))
    return wheel


def test_pip_installs_the_releases_client_in_the_place_of_an_older_one(
    programs: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = (sys.executable, "-m", "pip", "--isolated", f"--python={venv}/bin/python", "install", "--quiet")
    index = f"--index-url={simple_index(tmp_path, programs / WHEEL)}"
    for argv in (["--no-index", str(older_wheel(tmp_path))], ["--upgrade", index, "ortpacks"]):
        subprocess.run([*pip, *argv], check=True)
    (package,) = venv.glob("lib/python3*/site-packages/ortpacks")
    files = {path.name for path in package.iterdir()} - {"__pycache__"}
    assert files == {"__init__.py", "__main__.py", "ortpacks.pyz"}
    assert (package / "ortpacks.pyz").read_bytes() == (programs / "ortpacks.pyz").read_bytes()
    own = venv / "bin/ortpacks"
    for command in ([own], [venv / "bin/python", "-m", "ortpacks"]):
        assert subprocess.check_output([*command, "--version"], text=True).startswith(VERSION)
    assert 'eval "$(ortpacks env)"' in subprocess.check_output([own], text=True)
    done = subprocess.run([own, "self-update"], capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install --upgrade ortpacks" in done.stderr) == (3, True)


def test_the_workflow_compares_what_the_index_gives_with_what_was_published(
    programs: Path, tmp_path: Path
) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (script,) = [one["run"] for one in jobs["pypi"]["steps"] if one.get("name") == "PyPI has these bytes"]
    (tmp_path / "wheels").mkdir()
    wheel = Path(shutil.copy(programs / WHEEL, tmp_path / "wheels"))
    env = {**os.environ, "PIP_INDEX_URL": simple_index(tmp_path, wheel), "PIP_CONFIG_FILE": os.devnull}
    for content, code in ((wheel.read_bytes(), 0), (b"another build of that version", 1)):
        wheel.write_bytes(content)
        shell = ["bash", "-e", "-c", script]
        done = subprocess.run(shell, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("::error::PyPI has another ortpacks 1.0.0" in done.stdout) == bool(code)


TOOLS = "sh curl sha256sum cut sed mkdir mktemp rm mv chmod tar gzip uname"

UVS_STAND_IN = """\
#!/bin/sh
[ "$1" != python ] || echo "uv $*" >>"$HOME/asked"
[ "$2" != find ] || echo {python}
"""
"""A stand-in for uv, which finds this Python."""


class Computer:
    """A user's machine with the tools that ``install.sh`` needs, with Python or not."""

    def __init__(self, folder: Path, programs: Path, *, python: bool) -> None:
        self.home, self.path, self.served = (folder / name for name in ("home", "path", "served"))
        for made in (self.home, self.path, self.served):
            made.mkdir()
        for tool in TOOLS.split():
            (self.path / tool).symlink_to(str(shutil.which(tool)))
        if python:
            (self.path / "python3").symlink_to(sys.executable)
        self.script = shutil.copy(programs / "install.sh", folder)
        shutil.copy(programs / "ortpacks.pyz", self.served)

    def run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        with serving(self.served) as server:
            world = {"PATH": str(self.path), "HOME": str(self.home)}
            world |= dict.fromkeys(("ORTPACKS_DOWNLOADS", "UV_DOWNLOAD_URL"), server.url) | env
            return subprocess.run(
                ["sh", self.script, *argv], env=world, capture_output=True, text=True, check=False
            )

    def files(self) -> set[str]:
        return {str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()}

    def version(self) -> str:
        """Return what the command says, which needs nothing of PATH."""
        own = self.home / ".local/bin/ortpacks"
        assert 'eval "$(ortpacks env)"' in subprocess.check_output([own], env={}, text=True)
        return subprocess.check_output([own, "--version"], env={}, text=True)


BROUGHT = {".local/share/ortpacks-client/ortpacks", ".local/bin/ortpacks"}


def test_the_script_shows_what_it_does_and_brings_the_command(programs: Path, tmp_path: Path) -> None:
    computer = Computer(tmp_path, programs, python=True)
    shown = computer.run("--dry-run")
    assert (shown.returncode, computer.files()) == (0, set())
    digest = hashlib.sha256((programs / "ortpacks.pyz").read_bytes()).hexdigest()
    assert f"ortpacks.pyz, sha256 {digest}\n" in shown.stdout
    assert f"the command {computer.home}/.local/bin/ortpacks, which runs it with " in shown.stdout
    for _ in range(2):  # it may be run again
        done = computer.run()
        assert (done.returncode, done.stderr, computer.files()) == (0, "", BROUGHT)
        assert computer.version().startswith(VERSION)


def test_without_python_uv_brings_one(programs: Path, tmp_path: Path) -> None:
    computer = Computer(tmp_path, programs, python=False)
    (computer.path / "uv").write_text(UVS_STAND_IN.format(python=sys.executable))
    (computer.path / "uv").chmod(0o755)
    done = computer.run("--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert (computer.home / "asked").read_text() == "uv python install 3.13\nuv python find 3.13\n"
    assert computer.files() == {"asked", *BROUGHT}
    assert computer.version().startswith(VERSION)


def small(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what the client does not need of a Python."""
    return None if member.name.endswith(("/test", "/site-packages")) else member


def downloads_of_uv(folder: Path, python: Path) -> Path:
    """Write what uv installs of a Python 3.13, and the list in which uv finds it; return the list's path."""
    archive, home = folder / "cpython.tar.gz", python.parent.parent
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(python, "python/bin/python3.13")
        tar.add(home / "lib/python3.13", "python/lib/python3.13", filter=small)
    build = {"name": "cpython", "major": 3, "minor": 13, "patch": 0, "prerelease": "", "variant": None}
    system = {"arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu", "build": "1"}
    where = {"url": archive.as_uri(), "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    listed = folder / "downloads.json"
    listed.write_text(json.dumps({"cpython-3.13.0-linux-x86_64-gnu": {**build, **system, **where}}))
    return listed


@pytest.mark.thorough
def test_uv_itself_brings_a_python_that_runs_the_client(programs: Path, tmp_path: Path) -> None:
    """Its own list of Pythons leads to GitHub."""
    computer = Computer(tmp_path, programs, python=False)
    (computer.path / "uv").symlink_to(pypi_program(UV, "bin/uv"))
    listed = downloads_of_uv(tmp_path, Path(one_of("3.13")).resolve())
    world = {"UV_PYTHON_DOWNLOADS_JSON_URL": str(listed), "UV_PYTHON_PREFERENCE": "only-managed"}
    done = computer.run("--yes", **world)
    assert done.returncode == 0, done.stdout + done.stderr
    assert computer.files() > BROUGHT
    assert computer.version().startswith(f"{VERSION}13")


def test_an_uv_with_other_bytes_is_never_run(programs: Path, tmp_path: Path) -> None:
    computer = Computer(tmp_path, programs, python=False)
    (computer.served / "uv-x86_64-unknown-linux-musl.tar.gz").write_bytes(b"another uv")
    done = computer.run()
    assert "fetch uv from " in done.stdout
    assert (done.returncode, computer.files()) == (1, set())
    assert f"has the sha256 {hashlib.sha256(b'another uv').hexdigest()}, not a4742988" in done.stderr


def test_what_stops_the_script_is_told_and_leaves_no_file(programs: Path, tmp_path: Path, told: Told) -> None:
    computer = Computer(tmp_path, programs, python=True)
    said = [
        computer.run("--force"),
        computer.run(ORTPACKS_DOWNLOADS="http://127.0.0.1:9"),
        computer.run(BIN="/proc/bin"),
    ]
    (computer.served / "ortpacks.pyz").write_bytes(b"another client")
    said.append(computer.run())
    (computer.path / "curl").unlink()
    said.append(computer.run())
    (computer.path / "python3").unlink()
    (computer.path / "curl").symlink_to(str(shutil.which("curl")))
    (computer.path / "uname").unlink()  # an unknown system
    said.append(computer.run())
    assert [done.returncode for done in said] == [1] * 6
    assert computer.files() == set()
    ours = hashlib.sha256((programs / "ortpacks.pyz").read_bytes()).hexdigest()
    for done in said:
        *_, last = done.stderr.splitlines()  # above it are curl's own words
        told(last.replace(ours, "<that of the release>"))
