"""Runner of `build` as a process that tests interrupt, and assertions on its folder afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from tests.support import ROOT
from tests.support.containers import docker
from tests.support.real_packages import manifest, sha256

VARIANTS = {"legacy": ("--profile", "minimal"), "modern": ("--mixed",)}
"""Flags of a variant that is compiled and small, and of one that is repacked and large."""
STEP = "• "


class Run:
    """The real command in a session of its own. ``lines`` has its output so far, stdout and stderr."""

    _started: ClassVar[list[Run]] = []

    def __init__(
        self,
        dist: Path,
        variant: str = "legacy",
        *more: str,
        root: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        flags = ["--variant", variant, *VARIANTS[variant], "--base", "assembled", "--dist", str(dist), *more]
        argv = [sys.executable, "-m", "invoke", "build", *flags]
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            argv,
            cwd=root,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._started.append(self)

    @classmethod
    def end_all(cls) -> int:
        """End all processes of all runs, whatever their state, and return the number of runs."""
        count = len(cls._started)
        while cls._started:
            run = cls._started.pop()
            end_session(run._process.pid)
            run.wait()
        return count

    @property
    def process(self) -> int:
        """The id of the command's process."""
        return self._process.pid

    def until(self, pattern: str, *, timeout: float = 1500) -> None:
        """Wait for a line in which ``pattern`` is found. Raises ``AssertionError`` if none comes."""
        with self._news:
            self._news.wait_for(lambda: self._said(pattern) or self._ended(), timeout)
        assert self._said(pattern), f"no {pattern!r} in {timeout} s:\n{self.text}"

    def wait(self, *, timeout: float = 1500) -> int:
        """Wait for the end of the command and of its output, and return the exit code."""
        code = self._process.wait(timeout)
        self._reader.join(timeout)
        if self._process.stdout and not self._reader.is_alive():
            self._process.stdout.close()
        return code

    def signal(self, number: signal.Signals, *, group: bool) -> None:
        """Send a signal to the whole process group, as a terminal does, or to the command's process alone."""
        (os.killpg if group else os.kill)(self._process.pid, number)

    def survivors(self, *, grace: float = 60) -> list[str]:
        """Return the command lines of the run's processes that still exist after ``grace`` seconds.

        A program that got no signal ends with the next line that it prints, as nobody reads it any more.
        """
        deadline = time.monotonic() + grace
        while (alive := session(self._process.pid)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return list(alive.values())

    @property
    def goes_on(self) -> bool:
        return self._process.poll() is None

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def stage(self) -> str:
        """The step that began last; ``start`` before the first one."""
        steps = [line.removeprefix(STEP) for line in self.lines if line.startswith(STEP)]
        return steps[-1] if steps else "start"

    def _said(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in self.lines)

    def _ended(self) -> bool:
        return not self._reader.is_alive() or self._process.poll() is not None

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


def session(leader: int) -> dict[int, str]:
    """Return the command lines of a session's processes by id, without zombies. Source: proc(5), stat."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _parent, _group, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            command = os.fsdecode((folder / "cmdline").read_bytes()).replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its) == leader and state != "Z":
            found[int(folder.name)] = command
    return found


def end_session(leader: int) -> None:
    for pid in session(leader):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def promised(dist: Path) -> dict[str, str]:
    """Return the digests of ``SHA256SUMS`` by file name."""
    sums = dist / "SHA256SUMS"
    rows = [line.split("  ") for line in sums.read_text().splitlines()] if sums.exists() else []
    return {name: digest for digest, name in rows}


def assert_nothing_half_made(dist: Path, why: str) -> None:
    """Assert that files with final names are whole: they fit ``SHA256SUMS``, and packages can be read."""
    for name, digest in promised(dist).items():
        assert sha256(dist / name) == digest, f"{name} after {why}"
    for package in dist.glob("*.tar.zst"):
        assert package.name.startswith(f"ortpacks-{manifest(package)['variant']}-"), why
        subprocess.run(["zstd", "--test", "--quiet", "--long=27", package], check=True)
    for stamp in dist.glob("*/built.json"):
        said = json.loads(stamp.read_text())
        assert said["packages"].items() <= promised(dist).items(), why


def litter(dist: Path) -> list[str]:
    """Return the relative paths of part files and folders, and of packages that were not verified."""
    left = [*dist.rglob("*.part*"), *dist.glob("*/unverified/*.tar.zst")]
    return sorted(str(path.relative_to(dist)) for path in left)


def orphaned_containers() -> set[int]:
    """Return the ids of ended build processes that left a container of ortpacks."""
    owners = docker("ps", "--all", "--filter=label=io.ortpacks", '--format={{.Label "io.ortpacks.owner"}}')
    ids = {int(owner.rpartition(":")[2]) for owner in owners.split()}
    return {process for process in ids if not Path("/proc", str(process)).exists()}
