"""Tests of kill -9 at each step that changes the disk, and of two installs at once: a whole
version always stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from builder.client.install.prefix import Prefix, make_folders
from tests.doubles.library import library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, write_release
from tests.doubles.wheels import CUBLAS, CUDNN, WHEELS, indexing, unpacked

OLD = FILES["lib/libonnxruntime.so.1"]

NEW = library("1.24.0") + b"new" * 5000

# Every open, rename, link, folder and removal below the prefix is an audit event: the n-th one kills.
KILLER = """
import os, signal, sys
prefix, last = sys.argv[1], int(sys.argv[2])
events = {"open", "os.rename", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "fcntl.flock"}
seen = 0
def watch(event, arguments):
    global seen
    if event in events and (event == "fcntl.flock" or prefix in str(arguments[0])):
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.argv[1:] = sys.argv[3:]
from builder.client.__main__ import run
sys.addaudithook(watch)
code = run()
print(seen)
sys.exit(code)
"""


def install(
    root: Path,
    prefix: Path,
    index: Path,
    last: int,
    env: Mapping[str, str] | None = None,
    killer: str = KILLER,
) -> subprocess.CompletedProcess[str]:
    return run_killer(root, prefix, last, ["install", "--index", str(index)], killer, env)


def run_killer(
    root: Path, prefix: Path, last: int, argv: list[str], killer: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", killer, str(prefix), str(last), *argv, "--prefix", str(prefix)],
        cwd=root,
        env={
            "ORTPACKS_FORCE_CC": "8.6",
            "ORTPACKS_FORCE_DRIVER": "570.133.07",
            "PATH": "/usr/bin:/bin",
            **(env or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    files = {**FILES, "lib/libonnxruntime.so.1": NEW}
    return write_release(tmp_path / "newer", version="1.24.0", files=files)


def test_a_kill_at_any_step_leaves_a_whole_version_in_use(root: Path, tmp_path: Path, newer: Path) -> None:
    older = write_release(tmp_path / "older")
    dry = Machine(tmp_path / "dry")
    assert dry.run("install", "--index", str(older)) == 0
    steps = int(install(root, dry.prefix, newer, 0).stdout.split()[-1])
    assert steps > 15
    in_use = set()
    for last in range(1, steps + 1):
        machine = Machine(tmp_path / f"home-{last}")
        machine.run("install", "--index", str(older))
        killed = install(root, machine.prefix, newer, last)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert machine.run("verify") == 0, (last, machine.out)
        in_use.add((machine.lib / "libonnxruntime.so.1").read_bytes())
        assert machine.run("install", "--index", str(newer)) == 0, (last, machine.err)
        assert (machine.lib / "libonnxruntime.so.1").read_bytes() == NEW
        assert machine.litter() == []
    assert in_use == {OLD, NEW}  # some kills came before the switch, some after


def test_a_kill_while_the_same_is_installed_again_leaves_it_whole(
    root: Path, tmp_path: Path, newer: Path
) -> None:
    machine = Machine(tmp_path / "home")
    assert machine.run("install", "--index", str(newer)) == 0
    steps = int(install(root, machine.prefix, newer, 0).stdout.split()[-1])
    for last in range(1, steps + 1):
        assert install(root, machine.prefix, newer, last).returncode == -signal.SIGKILL
        assert machine.run("verify") == 0, (last, machine.out)
    assert machine.run("install", "--index", str(newer)) == 0
    assert machine.litter() == []


def test_a_kill_while_a_thin_package_is_completed_leaves_a_whole_version(root: Path, tmp_path: Path) -> None:
    """Some libraries are links to the earlier package, some are copies from an environment."""
    older = write_release(tmp_path / "older", layouts=("thin",), wheels=(CUBLAS,))
    newer = write_release(tmp_path / "newer", version="1.24.0", layouts=("thin",), wheels=WHEELS)
    environment = unpacked(tmp_path / "site-packages", *WHEELS)
    look = {"ORTPACKS_LOOK_IN": str(environment)}
    dry = Machine(tmp_path / "dry", environments=(environment,))
    assert dry.run("install", "--index", str(older)) == 0
    steps = int(install(root, dry.prefix, newer, 0, look).stdout.split()[-1])
    in_use = set()
    for last in range(steps, 0, -2):
        machine = Machine(tmp_path / f"home-{last}", environments=(environment,))
        machine.run("install", "--index", str(older))
        killed = install(root, machine.prefix, newer, last, look)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert machine.run("verify") == 0, (last, machine.out)
        in_use.add((machine.lib / "libcudnn.so.9").exists())
        assert machine.run("install", "--index", str(newer)) == 0, (last, machine.err)
        assert machine.run("verify") == 0, (last, machine.out)
        assert machine.litter() == []
    assert in_use == {False, True}


@pytest.mark.parametrize(("last", "again"), [(1, [CUBLAS.file, CUDNN.file]), (2, [CUDNN.file])])
def test_a_kill_between_two_wheels_keeps_what_came(
    root: Path, tmp_path: Path, last: int, again: list[str]
) -> None:
    """The kills are at the start of the first and of the second pip."""
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    at_pip = KILLER.replace('event == "fcntl.flock" or', 'event == "subprocess.Popen" or').replace(
        'events = {"open", ', 'events = {"subprocess.Popen"} or {'
    )
    with indexing() as pypi:
        pip = {"PIP_INDEX_URL": pypi.url, "PIP_CONFIG_FILE": os.devnull}
        machine = Machine(tmp_path / "home", pip=pip)
        killed = install(root, machine.prefix, release, last, pip, at_pip)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert machine.run("verify") == 3, "nothing is installed yet"
        pypi.requests.clear()
        assert machine.run("install", "--index", str(release)) == 0, machine.err
        assert pypi.fetched == again
    assert machine.run("verify") == 0
    assert machine.litter() == []


def test_two_installs_at_once_both_end_well(root: Path, tmp_path: Path, newer: Path) -> None:
    machine = Machine(tmp_path / "home")
    argv = [
        sys.executable,
        "-m",
        "builder.client",
        "install",
        "--json",
        "--prefix",
        str(machine.prefix),
        "--index",
        str(newer),
    ]
    env = {"ORTPACKS_FORCE_CC": "8.6", "PATH": "/usr/bin:/bin"}
    both = [subprocess.Popen(argv, cwd=root, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
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


def test_ctrl_c_is_one_line_and_130(root: Path, tmp_path: Path, newer: Path, machine: Machine) -> None:
    interrupted = KILLER.replace("signal.SIGKILL", "signal.SIGINT")
    done = install(root, machine.prefix, newer, 12, killer=interrupted)
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last) == (130, "ortpacks: interrupted; run it again to go on"), done.stderr
    assert "Traceback" not in done.stderr
    assert machine.litter() == []
