"""Tests of kill -9 at each step that changes the disk, and of interrupts: a whole version always stays, and
pip, which runs in its own session, ends with the client."""

import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest

from builder.client.install.prefix import Prefix, make_folders
from tests.doubles.machine import Machine
from tests.doubles.release import write_release
from tests.doubles.wheels import CUBLAS, CUDNN, WHEELS, indexing, unpacked
from tests.support.faults.client import NEW, OLD, Ground, Quick, require_cured, require_usable, version_in_use
from tests.support.faults.killed import after_each_kill, dies_at, meets_at

pytestmark = pytest.mark.thorough


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


def ends_well(machine: Quick, command: str, ground: Ground) -> None:
    """Run the command; no version may be left for rollback or uninstall, which then end with 3."""
    index = ["--index", str(ground.newer)] if command == "install" else []
    assert machine.run(command, *index) in {0, 3}, machine.err


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("install", "uninstall"),
        ("rollback", "uninstall"),
        ("uninstall", "install"),
        ("uninstall", "uninstall"),
    ],
)
def test_a_command_that_begins_at_any_step_of_another_fails_neither(
    ground: Ground, tmp_path: Path, command: str, other: str
) -> None:
    """Defect: ``uninstall`` removed the folders that another command was making, which then failed."""
    for step in count(1):
        machine = ground.machine(tmp_path / str(step))
        if command == "rollback":
            require_cured(machine, str(ground.newer))
        works = [partial(ends_well, machine, name, ground) for name in (command, other)]
        met = meets_at(step, machine.prefix, Prefix(machine.prefix).lock, *works)
        if (machine.prefix / "current").exists():
            require_usable(machine, {OLD, NEW})
        require_cured(machine, str(ground.newer))
        if not met:
            break
    assert step > 5


ENV = {"PATH": "/usr/bin:/bin", "ORTPACKS_FORCE_CC": "8.6"}


@pytest.mark.parametrize(
    ("number", "code"), [("SIGTERM", 130), ("SIGHUP", 130), ("SIGINT", 130), ("SIGKILL", -9)]
)
def test_pip_ends_with_the_client(pyz: Path, tmp_path: Path, number: str, code: int) -> None:
    """The end of its process ends its connection to the index, which never answers."""
    index = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        env = {**ENV, "HOME": str(tmp_path), "PIP_INDEX_URL": url}
        argv = [sys.executable, "-I", "-S", str(pyz), "install", "--index", str(index)]
        with (
            subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as client,
            silent.accept()[0] as pip,
        ):
            client.send_signal(getattr(signal, number))
            said = client.communicate(timeout=30)[1]
            pip.settimeout(5)
            while pip.recv(4096):
                pass
    assert client.returncode == code
    assert "Traceback" not in said


def test_a_hangup_that_is_ignored_ends_nothing(pyz: Path, tmp_path: Path) -> None:
    """nohup ignores the signal in the same way."""
    index = write_release(tmp_path / "release")
    line = 'trap "" HUP; (sleep 0.02; kill -HUP $$) & exec "$@"'
    argv = ["sh", "-c", line, "sh", sys.executable, "-I", "-S", str(pyz), "install", "--index", str(index)]
    env = {**ENV, "HOME": str(tmp_path)}
    assert subprocess.run(argv, env=env, check=False, capture_output=True).returncode == 0


def test_a_kill_while_the_same_is_installed_again_leaves_it_whole(ground: Ground, tmp_path: Path) -> None:
    machine = ground.machine(tmp_path / "home")
    index = str(ground.older)
    for _ in after_each_kill(lambda _: machine, "install", "--index", index):
        require_usable(machine, {OLD})
    assert machine.litter() == []
