"""Tests of the workflow that opens a pull request with pins: its scripts, run in order as a runner would.

They run in a clone. ``gh`` and ``./run`` are stand-ins; git is real, and pushes to a bare repository.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support import ran
from tests.support.tables import data_text

GH = data_text("programs/gh.sh")

CREATE = "pr create --head pins --base main"


@dataclass
class Checkout:
    """A clone with the workflow's scripts, and what its stand-ins were called with."""

    folder: Path
    scripts: dict[str, str]
    """Scripts by the names or ids of their steps."""

    @property
    def env(self) -> dict[str, str]:
        temp = str(self.folder.parent)
        files = {"GITHUB_OUTPUT": f"{temp}/output", "CALLS": f"{temp}/calls", "OPEN": f"{temp}/open"}
        own = {"PATH": f"{temp}:/usr/bin:/bin", "HOME": temp, "RUNNER_TEMP": temp, "GITHUB_REF_NAME": "main"}
        return {**os.environ, **own, **files}

    def script(self, name: str) -> subprocess.CompletedProcess[str]:
        argv = ["bash", "-e", "-c", self.scripts[name]]
        return ran(argv, cwd=self.folder, env=self.env)

    def lock(self, status: int, pin: str | None) -> int:
        """Run the first step over a ``./run`` that says something, ends so, and may write a pin."""
        asked = '[ "$*" = "lock --missing" ] || exit 9'
        writes = f"printf '%s' '{pin}' > inputs.lock" if pin else ""
        lines = ("#!/bin/sh", asked, writes, "echo image:x: rate limit", f"exit {status}")
        (self.folder / "run").write_text("\n".join(lines))
        (self.folder / "run").chmod(0o755)
        return self.script("lock").returncode

    def git(self, *words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=self.folder, env=self.env, text=True).strip()

    def temp(self, name: str) -> str:
        file = self.folder.parent / name
        return file.read_text() if file.exists() else ""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Checkout:
    steps = yaml.safe_load((root / ".github/workflows/pins.yml").read_text())["jobs"]["propose"]["steps"]
    scripts = {step.get("id") or step["name"]: step["run"] for step in steps if "run" in step}
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "open").write_text("")
    made = Checkout(tmp_path / "clone", scripts)
    made.folder.mkdir()
    made.git("init", "--quiet", "--initial-branch=main")
    (made.folder / "inputs.lock").write_text("open")
    (made.folder / "other").write_text("as it was")
    made.git("add", ".")
    made.git("-c", "user.name=you", "-c", "user.email=you@here", "commit", "--quiet", "--message=one")
    made.git("init", "--quiet", "--bare", str(tmp_path / "origin"))
    made.git("remote", "add", "origin", str(tmp_path / "origin"))
    return made


PROPOSE, OPEN = "The pull request", "What stays open"


def test_pins_come_in_a_pull_request_of_the_lock_alone(checkout: Checkout) -> None:
    assert checkout.lock(0, "pinned") == 0
    assert checkout.temp("output") == "status=0\n"
    (checkout.folder / "other").write_text("changed by something")
    done = checkout.script(PROPOSE)
    assert done.returncode == 0, done.stderr
    assert checkout.git("--git-dir=../origin", "show", "pins:inputs.lock") == "pinned"
    assert checkout.git("diff", "--name-only", "main", "pins") == "inputs.lock"
    assert CREATE in checkout.temp("calls")
    assert "image:x: rate limit" in checkout.temp("body")


def test_without_a_new_pin_nothing_is_pushed(checkout: Checkout) -> None:
    checkout.lock(6, None)
    done = checkout.script(PROPOSE)
    assert (done.returncode, checkout.temp("calls")) == (0, "")
    assert "::notice::" in done.stdout


def test_what_is_pinned_is_proposed_although_something_stays_open_and_a_second_run_renews_it(
    checkout: Checkout,
) -> None:
    assert checkout.lock(2, None) == 2, "another failure ends the run"
    assert checkout.lock(6, "half") == 0
    assert checkout.script(PROPOSE).returncode == 0
    assert checkout.git("--git-dir=../origin", "show", "pins:inputs.lock") == "half"
    assert checkout.temp("output").endswith("status=6\n")
    done = checkout.script(OPEN)
    assert (done.returncode, "image:x: rate limit" in done.stdout) == (6, True)
    checkout.git("switch", "--quiet", "main")
    checkout.git("branch", "--quiet", "-D", "pins")
    (checkout.folder.parent / "open").write_text("https://github.example/you/ortpacks/pull/1\n")
    checkout.lock(0, "pinned")
    assert checkout.script(PROPOSE).returncode == 0
    assert checkout.git("--git-dir=../origin", "show", "pins:inputs.lock") == "pinned"
    calls = checkout.temp("calls")
    assert "pr edit https://github.example/you/ortpacks/pull/1 " in calls
    assert calls.count(CREATE) == 1
