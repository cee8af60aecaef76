"""Factory of a copy of the project, whose verbs run without a Docker engine and with an empty cache."""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from invoke.collection import Collection

import tasks
from builder.build.verbs import command_line, flags
from tests.support import ROOT

PARTS = (
    "tasks.py",
    "builder",
    "npm",
    "patches",
    "pypi",
    "templates",
    "variants.yaml",
    "inputs.lock",
    "LICENSE",
)

NO_ENGINE = "unix:///nonexistent/docker.sock"

NO_ENGINE_MESSAGE = (
    f"error: No Docker engine answers at {NO_ENGINE}: there is no such socket. Start Docker, or set "
    "DOCKER_HOST. As root on Debian or Ubuntu, `./run` installs and starts one.\n"
)


@dataclass(frozen=True)
class Done:
    """A finished verb's exit code and output."""

    returncode: int
    stdout: str
    stderr: str


class Place:
    """A copy of the project without an engine and with an empty cache, whose verbs run in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ORTPACKS_CACHE": str(folder / "cache"),
            "DOCKER_HOST": NO_ENGINE,
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the verb in a process of its own, as ./run does."""
        return subprocess.Popen(
            [sys.executable, "-m", "builder.build.verbs.command_line", *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> Done:
        """Run the verb in this process through Invoke's ``Program``, and return how it ended.

        Raises any exception that ``Program`` does not handle.
        """
        out, err = io.StringIO(), io.StringIO()
        code: object = 0
        with (
            mock.patch.dict(os.environ, self.env, clear=True),
            mock.patch.object(flags, "ROOT", self.folder),
            mock.patch.object(sys, "argv", ["ortpacks", *words]),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                command_line.program(Collection.from_module(tasks)).run(["ortpacks", *words])
            except SystemExit as stop:
                code = stop.code
        assert isinstance(code, int)
        return Done(code, out.getvalue(), err.getvalue())

    def fails(self, code: int, *words: str) -> str:
        """Run the verb, which must exit with ``code``, and return its stderr."""
        done = self.run(*words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr

    def edit(self, old: str, new: str) -> None:
        text = (self.folder / "variants.yaml").read_text(encoding="utf-8")
        assert old in text
        (self.folder / "variants.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")

    def made(self) -> set[str]:
        """Return the names of files and folders that verbs left in the copy's root folder."""
        return {path.name for path in self.folder.iterdir()} - {*PARTS}


def copied_to(folder: Path, builder: Path = ROOT / "builder") -> Place:
    """Copy the project's ``PARTS`` into ``folder``.

    The files of ``builder`` elsewhere than in the project become hard links, which take a tenth of the time.
    Its bytecode comes along: a verb in a process of its own would compile every module again.
    """
    copy = shutil.copy2 if builder == ROOT / "builder" else os.link
    ignored, unfinished = (shutil.ignore_patterns(names) for names in ("__pycache__", "*.pyc.*"))
    for name in PARTS:
        source = ROOT / name
        if name == "builder":
            shutil.copytree(builder, folder / name, ignore=unfinished, copy_function=copy)
        elif source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return Place(folder)


def times_below(folder: Path) -> dict[str, int]:
    """Return the time of the last change of each file's content below ``folder``."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
