"""Tests of a system without links: a file names the package in use, and all commands follow it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.library import library
from tests.doubles.machine import Machine
from tests.doubles.release import write_release


def refuse(*_: object, **__: object) -> None:
    raise OSError(1314, "A required privilege is not held by the client")


def lack(*_: object, **__: object) -> None:
    raise NotImplementedError


def only_say(*_: object, **__: object) -> None:
    """Make no link and report success, as Wine 8.0 does."""


@pytest.fixture
def releases(tmp_path: Path) -> list[str]:
    return [str(write_release(tmp_path / version, version=version)) for version in ("1.22.0", "1.23.2")]


def folder(machine: Machine) -> Path:
    name = (machine.prefix / "current.txt").read_text().strip()
    return machine.prefix / name


@pytest.mark.parametrize("symlink_to", [refuse, lack, only_say])
def test_every_command_follows_the_file(
    tmp_path: Path, releases: list[str], monkeypatch: pytest.MonkeyPatch, symlink_to: Callable[..., None]
) -> None:
    monkeypatch.setattr(Path, "symlink_to", symlink_to)
    machine = Machine(tmp_path / "home")
    for index in releases:
        assert machine.run("install", "--index", index) == 0, machine.err
        info = json.loads((folder(machine) / "gpu-package-info.json").read_text())
        assert info["libsPath"] == str(folder(machine) / "lib")
    assert not (machine.prefix / "current").exists()
    assert (folder(machine) / "lib" / "libonnxruntime.so.1").read_bytes() == library("1.23.2")
    assert machine.run("verify") == 0
    variables = machine.answer("env")["variables"]
    assert variables["ORT_DYLIB_PATH"] == str(folder(machine) / "lib" / "libonnxruntime.so.1")
    assert variables["LD_LIBRARY_PATH"] == str(folder(machine) / "lib")
    assert machine.run("rollback") == 0, machine.err
    assert "1.22.0" in folder(machine).name
    assert machine.run("uninstall") == 0, machine.err
    assert not machine.prefix.exists()


def test_links_that_can_be_made_later_take_over(
    tmp_path: Path, releases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "home")
    with monkeypatch.context() as without_links:
        without_links.setattr(Path, "symlink_to", refuse)
        machine.run("install", "--index", releases[0])
    assert machine.run("install", "--index", releases[1]) == 0, machine.err
    assert not (machine.prefix / "current.txt").exists()
    assert (machine.lib / "libonnxruntime.so.1").read_bytes() == library("1.23.2")
    monkeypatch.setattr(Path, "symlink_to", refuse)
    assert machine.run("rollback") == 0, machine.err
    assert not (machine.prefix / "current").is_symlink()
    assert "1.22.0" in folder(machine).name


def test_both_are_one_answer(tmp_path: Path, releases: list[str]) -> None:
    """A kill between the two steps leaves the link and the file: the file decides."""
    machine = Machine(tmp_path / "home")
    for index in releases:
        machine.run("install", "--index", index)
    (old,) = (machine.prefix / "versions").glob("*1.22.0*")
    (machine.prefix / "current.txt").write_text(f"versions/{old.name}\n")
    assert machine.answer("verify")["folder"] == str(old)


@pytest.mark.parametrize("text", ["mine", "versions/../../etc\n", "versions/a/b\n", "\0"])
def test_a_file_that_is_not_ours_is_not_followed_and_not_replaced(
    tmp_path: Path, releases: list[str], text: str
) -> None:
    machine = Machine(tmp_path / "home")
    machine.prefix.mkdir(parents=True)
    (machine.prefix / "current.txt").write_text(text)
    assert machine.run("env") == 3
    assert machine.run("install", "--index", releases[0]) == 11
    assert "current.txt is in the way" in machine.err
    assert (machine.prefix / "current.txt").read_text() == text


@pytest.mark.parametrize("number", [5, 32])
def test_a_folder_that_a_virus_scanner_has_open_is_renamed_later(
    tmp_path: Path, releases: list[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Windows reports ERROR_ACCESS_DENIED or ERROR_SHARING_VIOLATION while a scanner reads a new file."""
    replace = Path.replace
    refused: list[Path] = []
    waits: list[float] = []

    def windows(path: Path, target: Path) -> Path:
        if path.is_dir() and not path.is_symlink() and len(refused) < 3:
            refused.append(path)
            error = PermissionError(13, "Access is denied", str(path))
            error.winerror = number  # type: ignore[attr-defined]  # it is there on Windows
            raise error
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", windows)
    monkeypatch.setattr(time, "sleep", waits.append)
    machine = Machine(tmp_path / "home")
    assert machine.run("install", "--index", releases[0]) == 0, machine.err
    ours = [wait for wait in waits if wait >= 0.1]  # subprocess waits in steps of at most 0.05 s
    assert ours == [0.1, 0.2, 0.4]
    assert machine.run("verify") == 0
