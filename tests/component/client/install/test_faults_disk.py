"""Tests of full and read-only disks and reused process numbers: the old version
stays usable."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.support.faults.client import NEW, OLD, Ground, Quick, require_cured, require_usable, version_in_use

ROOM = 400 * 1024
"""Upper limit of the bytes that the newer release adds to the older one: two archives and two trees."""

COMMANDS = ["install", "rollback", "uninstall"]


def run(machine: Quick, command: str, index: Path) -> int:
    return machine.run(command, *(["--index", str(index)] if command == "install" else []))


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


def used(disk: Path) -> int:
    """Return the number of used bytes."""
    stat = os.statvfs(disk)
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of a given size needs root and mount(8)")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("number", range(24))
def test_a_disk_that_fills_up_leaves_the_old_version(ground: Ground, disk: Path, number: int) -> None:
    """The client sees enough free space, which another program takes during the install."""
    machine = ground.machine(disk)
    remount(disk, f"size={used(disk) + number * ROOM // 23}")
    code = machine.run("install", "--index", str(ground.newer))
    assert code == {0: 11, 23: 0}.get(number, code), "the least disk is full, the largest is not"
    assert code in {0, 11}, machine.err
    assert "No space left on device" in machine.err or code == 0
    assert machine.run("verify") == 0, machine.out
    assert version_in_use(machine) == (NEW if code == 0 else OLD)
    remount(disk, "size=64m")
    require_cured(machine, str(ground.newer))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", ["full", "ro"])
def test_a_disk_that_takes_nothing_harms_no_command(
    ground: Ground, disk: Path, command: str, state: str
) -> None:
    machine = ground.machine(disk)
    require_cured(machine, str(ground.newer))
    remount(disk, f"size={used(disk)}" if state == "full" else "ro")
    code = run(machine, command, ground.older)
    assert code == 11 or (code, state) == (0, "full"), machine.err
    assert state == "full" or "Read-only file system" in machine.err
    if (machine.prefix / "current").exists():
        require_usable(machine, {OLD, NEW} if state == "full" else {NEW})
    else:
        assert (command, code) == ("uninstall", 0)
    remount(disk, "size=64m" if state == "full" else "rw")
    require_cured(machine, str(ground.newer))


def test_unsynced_files_do_not_count(quick: Quick, ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were written but not synced do not count as installed."""

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
        assert quick.run("install", "--index", str(ground.newer)) == 11
        assert "Input/output error" in quick.err
    require_usable(quick, {OLD})
    require_cured(quick, str(ground.newer))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reused_number(quick: Quick, ground: Ground, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """In a container, a client often has the process number of one that was killed."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    machine = quick
    require_cured(machine, str(ground.newer))
    parts = machine.prefix / ".ortpacks" / "parts"
    for version in (machine.prefix / "versions").iterdir():
        for name in (f"dropped-{version.name}-7", f"{version.name}-7", "damaged-7", "wheel-7"):
            (parts / name / "lib").mkdir(parents=True, exist_ok=True)
    (parts / "current-7").symlink_to("nowhere")
    (parts / "history-7").write_text("half")
    assert run(machine, command, ground.older) == 0, machine.err
    assert not (machine.prefix / "current.txt").exists(), "links can be made here"
    assert machine.litter() == []
    require_cured(machine, str(ground.newer))
