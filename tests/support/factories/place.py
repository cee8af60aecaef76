"""A copy of the project, and its verbs in it as a user runs them: without an engine, with an empty cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

INVOKE = Path(sys.executable).with_name("invoke")

PARTS = ("tasks.py", "builder", "templates", "patches", "variants.yaml", "inputs.lock", "LICENSE")

NO_ENGINE = "unix:///nonexistent/docker.sock"

NO_ENGINE_MESSAGE = (
    f"error: No Docker engine answers at {NO_ENGINE}: there is no such socket. Start Docker, set "
    "DOCKER_HOST, or let ./run install and start one (root on Debian or Ubuntu).\n"
)


class Place:
    """A copy of the project, and Invoke in it without an engine and with an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ORTPACKS_CACHE": str(folder / "cache"),
            "DOCKER_HOST": NO_ENGINE,
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [INVOKE, *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in out + err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def fails(self, code: int, *words: str) -> str:
        """What is said on stderr by a command that must exit with ``code``."""
        done = self.run(*words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr

    def edit(self, old: str, new: str) -> None:
        text = (self.folder / "variants.yaml").read_text(encoding="utf-8")
        assert old in text
        (self.folder / "variants.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")

    def made(self) -> set[str]:
        """What commands left in the folder."""
        return {path.name for path in self.folder.iterdir()} - {*PARTS}


def copied_to(folder: Path) -> Place:
    """The project as it is, below ``folder``."""
    root = ROOT
    for name in PARTS:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return Place(folder)
