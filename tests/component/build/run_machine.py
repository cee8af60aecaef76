"""A machine on which ./run is started, with stubs for all programs that it calls."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ran
from tests.support.tables import data_text

REAL = ("bash", "cat", "cut", "dirname", "flock", "grep", "head", "mkdir", "rm", "sha256sum", "chmod", "cp")
"""Real programs on PATH; all others are stubs."""

PYTHON = data_text("programs/python3-of-run.sh")


def absent(context: str = "default") -> str:
    """Return a docker program without an engine."""
    return f'case "$1" in version) exit 1 ;; context) echo {context} ;; esac'


class Machine:
    """A folder with ``run``, a PATH of stubs, and a log of their calls."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder / "project with a space"
        self.bin = folder / "bin"
        self.calls = folder / "calls"
        self.folder.mkdir()
        self.bin.mkdir()
        shutil.copy(root / "run", self.folder / "run")
        (self.folder / "requirements.lock").write_text("invoke==2.2.0\n")
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name) or pytest.fail(f"{name} is not on this machine"))
        self.stub("python3", PYTHON)
        self.stub("docker", 'case "$1" in version) exit 0 ;; context) echo default ;; esac')
        self.stub("id", "echo 0")
        for name in ("apt-get", "dockerd", "setsid"):
            self.stub(name, "")
        self.calls.touch()

    def stub(self, name: str, script: str) -> None:
        """Write a program that logs its call and then runs ``script``."""
        note = "" if name == "python3" else f'printf \'{name} %s\\n\' "$*" >>"$CALLS"\n'
        (self.bin / name).write_text(f"#!{shutil.which('bash')}\n{note}{script}\n")
        (self.bin / name).chmod(0o755)

    def no_engine(self) -> None:
        self.stub("docker", absent())

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return ran(
            [self.folder / "run", *words],
            cwd="/",
            env={"PATH": str(self.bin), "CALLS": str(self.calls), **env},
            timeout=30,
        )

    def refuses(self, *words: str, **env: str) -> str:
        """Run ``run``, which must change nothing and exit with 4, and return its stderr."""
        done = self.run(*words, **env)
        assert (done.returncode, done.stdout, self.installed()) == (4, "", [])
        return done.stderr

    def called(self, program: str) -> list[str]:
        lines = self.calls.read_text().splitlines()
        return [line.removeprefix(f"{program} ") for line in lines if line.startswith(f"{program} ")]

    def installed(self) -> list[str]:
        """Return the logged calls that change the machine."""
        return [line for name in ("apt-get", "dockerd", "setsid") for line in self.called(name)]
