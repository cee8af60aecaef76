"""Tests of full and read-only disks, clock changes and reused process numbers: the old version
stays usable."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from builder.client.context import CommandContext
from tests.support.faults.client import (
    NEW,
    OLD,
    Ground,
    Quick,
    require_cured,
    require_usable,
    version_in_use,
)

KIB = 1024

ROOM = 400 * KIB
"""Upper limit of the bytes that the newer release adds to the older one: two archives and two trees."""

COMMANDS = ["install", "rollback", "uninstall"]


def run(machine: Quick, command: str, index: Path) -> int:
    return machine.run(command, *(["--index", str(index)] if command == "install" else []))


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A file system of its own."""

    place: Path

    def change(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.place)], check=True)

    @property
    def used(self) -> int:
        """Return the number of used bytes."""
        stat = os.statvfs(self.place)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of a given size needs root and mount(8)")
    yield Disk(place=place)
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("number", range(24))
def test_a_disk_that_fills_up_at_any_byte_leaves_the_old_version(
    ground: Ground, disk: Disk, number: int
) -> None:
    """The client sees enough free space, which another program takes during the install."""
    machine = ground.machine(disk.place)
    disk.change(f"size={disk.used + number * ROOM // 24}")
    code = machine.run("install", "--index", str(ground.newer))
    assert code in {0, 11}, machine.err
    assert "No space left on device" in machine.err or code == 0
    assert machine.run("verify") == 0, machine.out
    assert version_in_use(machine) == (NEW if code == 0 else OLD)
    disk.change("size=64m")
    require_cured(machine, str(ground.newer))


def test_some_of_these_disks_were_full_and_some_were_not(ground: Ground, disk: Disk) -> None:
    machine = ground.machine(disk.place)
    before = disk.used
    assert machine.run("install", "--index", str(ground.newer)) == 0
    assert 0 < disk.used - before < ROOM


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_is_full_to_the_brim_lets_rollback_and_uninstall_through_or_unharmed(
    ground: Ground, disk: Disk, command: str
) -> None:
    machine = ground.machine(disk.place)
    require_cured(machine, str(ground.newer))
    disk.change(f"size={disk.used}")
    code = run(machine, command, ground.older)
    assert code in {0, 11}, machine.err
    if (machine.prefix / "current").exists():
        require_usable(machine, {OLD, NEW})
    else:
        assert (command, code) == ("uninstall", 0)
    disk.change("size=64m")
    require_cured(machine, str(ground.newer))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_that_is_read_only_is_named_and_what_is_there_works(
    ground: Ground, disk: Disk, command: str
) -> None:
    machine = ground.machine(disk.place)
    require_cured(machine, str(ground.newer))
    disk.change("ro")
    assert run(machine, command, ground.older) == 11, machine.err
    assert "Read-only file system" in machine.err
    require_usable(machine, {NEW})
    disk.change("rw")
    require_cured(machine, str(ground.newer))


def test_a_disk_that_takes_nothing_to_heart_is_not_relied_on(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were written but not synced do not count as installed."""

    def fails(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    machine = ground.machine(tmp_path / "home")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        assert machine.run("install", "--index", str(ground.newer)) == 11
        assert "Input/output error" in machine.err
    require_usable(machine, {OLD})
    require_cured(machine, str(ground.newer))


@dataclass
class Clock(Quick):
    """A machine whose year is set by the test."""

    year: int = 2026

    def context(self) -> CommandContext:
        return replace(super().context(), now=lambda: datetime(self.year, 1, 1, tzinfo=UTC))


def test_a_calendar_that_goes_back_changes_nothing(ground: Ground, tmp_path: Path) -> None:
    """The history of versions follows the order of installs, not their dates."""
    machine = Clock(tmp_path / "home")
    for year, index in ((2038, ground.older), (1970, ground.newer)):
        machine.year = year
        assert machine.run("install", "--index", str(index)) == 0, machine.err
    assert json.loads((machine.prefix / "gpu-info.json").read_text())["checkedAt"].startswith("1970")
    assert machine.run("rollback") == 0, machine.err
    require_usable(machine, {OLD})
    require_cured(machine, str(ground.newer))


@pytest.mark.parametrize("year", [1970, 2100])
def test_files_of_another_century_are_files(ground: Ground, tmp_path: Path, year: int) -> None:
    machine = ground.machine(tmp_path / "home")
    part = machine.prefix / ".ortpacks" / "parts" / "left-1"
    part.write_bytes(b"left by a kill")
    when = datetime(year, 1, 1, tzinfo=UTC).timestamp()
    for path in machine.prefix.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)
    require_usable(machine, {OLD})
    require_cured(machine, str(ground.newer))
    assert machine.run("rollback") == 0, machine.err
    require_usable(machine, {OLD})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_number_that_comes_again_meets_no_leftovers(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """In a container, a client often has the process number of one that was killed."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    machine = ground.machine(tmp_path / "home")
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
