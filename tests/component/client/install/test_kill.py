"""Tests of kill -9 at each step that changes the disk, of an interrupt, and of two installs at once:
a whole version always stays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from builder.client.install import installer
from builder.client.install.prefix import Prefix, make_folders
from tests.doubles.machine import Machine
from tests.doubles.release import write_release
from tests.doubles.wheels import CUBLAS, CUDNN, WHEELS, indexing, unpacked
from tests.support import ROOT
from tests.support.faults.client import NEW, OLD, Ground, Quick, require_cured, require_usable, version_in_use
from tests.support.faults.killed import after_each_kill, dies_at


def test_a_kill_at_any_step_leaves_a_whole_version_in_use(ground: Ground, tmp_path: Path) -> None:
    kills, in_use = 0, set()
    index = str(ground.newer)
    for machine in after_each_kill(
        lambda step: ground.machine(tmp_path / str(step)), "install", "--index", index
    ):
        require_usable(machine, {OLD, NEW})
        in_use.add(version_in_use(machine))
        require_cured(machine, index)
        kills += 1
    assert kills > 15
    assert in_use == {OLD, NEW}, "some kills came before the switch, some after"


def test_a_kill_while_the_same_is_installed_again_leaves_it_whole(ground: Ground, tmp_path: Path) -> None:
    machine = ground.machine(tmp_path / "home")
    index = str(ground.older)
    for _ in after_each_kill(lambda _: machine, "install", "--index", index):
        require_usable(machine, {OLD})
    assert machine.litter() == []


def test_a_kill_while_a_thin_package_is_completed_leaves_a_whole_version(tmp_path: Path) -> None:
    """Some libraries are links to the earlier package, some are copies from an environment."""
    older = write_release(tmp_path / "older", layouts=("thin",), wheels=(CUBLAS,))
    newer = write_release(tmp_path / "newer", version="1.24.0", layouts=("thin",), wheels=WHEELS)
    environment = unpacked(tmp_path / "site-packages", *WHEELS)
    before = Quick(tmp_path / "before", environments=(environment,))
    assert before.run("install", "--index", str(older)) == 0, before.err

    def machine_of(step: int) -> Machine:
        return replace(before, home=shutil.copytree(before.home, tmp_path / f"home-{step}", symlinks=True))

    in_use = set()
    for machine in after_each_kill(machine_of, "install", "--index", str(newer)):
        assert machine.run("verify") == 0, machine.out
        in_use.add((machine.lib / "libcudnn.so.9").exists())
        assert machine.run("install", "--index", str(newer)) == 0, machine.err
        assert machine.run("verify") == 0, machine.out
        assert machine.litter() == []
    assert in_use == {False, True}


@pytest.mark.parametrize(("start", "again"), [(1, [CUBLAS.file, CUDNN.file]), (2, [CUDNN.file])])
def test_a_kill_between_two_wheels_keeps_what_came(tmp_path: Path, start: int, again: list[str]) -> None:
    """The kills are at the start of the first and of the second pip."""
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    with indexing() as pypi:
        machine = Machine(tmp_path / "home", pip={"PIP_INDEX_URL": pypi.url})
        install = partial(machine.run, "install", "--index", str(release))
        assert dies_at(start, machine.prefix, install, {"subprocess.Popen"})
        assert machine.run("verify") == 3, "nothing is installed yet"
        pypi.requests.clear()
        assert install() == 0, machine.err
        assert pypi.fetched == again
    assert machine.run("verify") == 0
    assert machine.litter() == []


def test_two_installs_at_once_both_end_well(ground: Ground, tmp_path: Path) -> None:
    machine = ground.machine(tmp_path / "home")
    place = ["--prefix", str(machine.prefix), "--index", str(ground.newer)]
    argv = [sys.executable, "-m", "builder.client", "install", "--json", *place]
    env = {"ORTPACKS_FORCE_CC": "8.6", "PATH": "/usr/bin:/bin"}
    both = [subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(json.loads(output)["installed"]["fresh"] for output in outputs) == [False, True]
    assert machine.run("verify") == 0
    assert machine.litter() == []


def test_first_installs_make_their_folders_at_the_same_moment(tmp_path: Path) -> None:
    """The folders are made before the lock, whose file is in one of them."""
    for attempt in range(50):
        prefix, together = Prefix(tmp_path / str(attempt)), Barrier(8)

        def make(prefix: Prefix = prefix, together: Barrier = together) -> None:
            together.wait()
            make_folders(prefix)

        with ThreadPoolExecutor(8) as pool:
            for made in [pool.submit(make) for _ in range(8)]:
                made.result()
        assert prefix.versions.is_dir()


def test_ctrl_c_is_one_line_and_130_and_leaves_nothing(
    quick: Quick, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(installer, "complete", interrupted)
        assert quick.run("install", "--index", str(ground.newer)) == 130
    assert quick.err.splitlines()[-1] == "ortpacks: interrupted; run it again to go on"
    require_usable(quick, {OLD})
    assert quick.litter() == []
