"""Tests of the client under emulated rules of Windows, and where no links can be made: a file names the
package in use. No test ran on Windows itself."""

import json
import os
import re
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.doubles.library import library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, serving, write_release
from tests.doubles.wheels import WHEELS, indexing
from tests.doubles.windows_files import ACCESS_DENIED, NO_PRIVILEGE, SHARING_VIOLATION, windows

VERSIONS = ("1.22.0", "1.23.1", "1.23.2")


@pytest.fixture
def releases(tmp_path: Path) -> list[str]:
    return [str(write_release(tmp_path / version, version=version)) for version in VERSIONS[:2]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "AppData")


def run(machine: Machine, *argv: str) -> None:
    assert machine.run(*argv) == 0, machine.err


@pytest.mark.parametrize("links", [True, False])
def test_from_the_first_install_to_the_last_file(machine: Machine, tmp_path: Path, links: bool) -> None:
    releases = [write_release(tmp_path / version, version=version) for version in VERSIONS]
    with windows(tmp_path / "AppData", links=links) as refused:
        for index in releases:
            with serving(index.parent) as server:
                run(machine, "install", "--index", f"{server.url}/")
            run(machine, "verify")
        assert len(list((machine.prefix / "versions").iterdir())) == 2
        run(machine, "rollback")
        assert VERSIONS[1] in str(machine.answer("verify")["folder"])
        assert (machine.prefix / "current.txt").exists() is not links
        assert machine.litter() == []
        run(machine, "uninstall", "--old")
        run(machine, "uninstall")
        assert "Not ours" not in machine.out
    ours = {f"replace current: {ACCESS_DENIED}"} if links else {f"link current: {NO_PRIVILEGE}"}
    assert {re.sub(r"-\d+:", ":", what) for what in refused} == {*ours, f"remove lock: {SHARING_VIOLATION}"}
    assert [path.name for path in machine.prefix.rglob("*") if path.is_file()] == ["lock"], "it was held"


def test_a_prefix_is_the_same_in_whatever_case_it_is_written(machine: Machine, tmp_path: Path) -> None:
    """The packages hold no host library, because a child process would not see the rules."""
    files = {"lib/a.so": b"a"}
    lower, upper = (str(tmp_path / "AppData" / name) for name in ("tools", "Tools"))
    with windows(tmp_path / "AppData"):
        for prefix, version in ((lower, VERSIONS[0]), (upper, VERSIONS[1])):
            index = write_release(tmp_path / version, version=version, files=files)
            run(machine, "install", "--index", str(index), "--prefix", prefix)
        run(machine, "rollback", "--prefix", lower)
        run(machine, "verify", "--prefix", upper)
        assert VERSIONS[0] in machine.out
        run(machine, "uninstall", "--prefix", upper)
    assert [path.name for path in (tmp_path / "AppData").iterdir()] == ["tools"]


@pytest.mark.parametrize("name", ["current.txt", "gpu-info.json", ".ortpacks/history"])
def test_a_file_that_a_program_reads_is_replaced_once_it_is_closed(
    machine: Machine, tmp_path: Path, releases: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    older, newer = releases
    with windows(tmp_path / "AppData") as refused:
        run(machine, "install", "--index", older)
        with (machine.prefix / name).open("rb") as read:
            monkeypatch.setattr(time, "sleep", lambda pause: read.close() if pause >= 0.1 else None)
            run(machine, "install", "--index", newer)
        assert "not written" not in machine.err
        run(machine, "verify")
    assert f"replace {Path(name).name}: {ACCESS_DENIED}" in refused
    assert VERSIONS[1] in str(machine.answer("verify")["folder"])


def test_a_scanner_may_open_files(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    scanned: list[object] = []
    waits: list[float] = []
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        if scanned.count(old) < 3:
            scanned.append(old)
            error = PermissionError(13, "The process cannot access the file", str(old))
            error.winerror = SHARING_VIOLATION  # type: ignore[attr-defined]  # as on Windows
            raise error
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(time, "sleep", waits.append)
    with indexing() as pypi:
        machine.pip = {"PIP_INDEX_URL": pypi.url}
        run(machine, "install", "--index", str(release))
    run(machine, "verify")
    assert len(scanned) > 3 * len(WHEELS)
    assert [wait for wait in waits if wait >= 0.1][:4] == [0.1, 0.2, 0.4, 0.1]  # pip is waited for in steps


def test_a_damaged_package_is_replaced_and_the_longest_path_fits(machine: Machine, tmp_path: Path) -> None:
    """The library's name is as long as NVIDIA's longest; the user's folder is the documented default."""
    name = "lib/libcudnn_engines_runtime_compiled_of_a_very_long_name.so.9.10.2"
    index = write_release(tmp_path / "release", files={**FILES, name: b"x"})
    with windows(tmp_path / "AppData"):
        run(machine, "install", "--index", str(index))
        (installed,) = (machine.prefix / "versions").glob(f"*/{name}")
        installed.write_bytes(b"damaged")
        run(machine, "install", "--index", str(index))
        run(machine, "verify")


REFUSED = OSError(NO_PRIVILEGE, "A required privilege is not held by the client")


def folder(machine: Machine) -> Path:
    name = (machine.prefix / "current.txt").read_text().strip()
    return machine.prefix / name


@pytest.mark.parametrize("failure", [REFUSED, NotImplementedError, None])
def test_every_command_follows_the_file(
    machine: Machine, releases: list[str], monkeypatch: pytest.MonkeyPatch, failure: Exception | None
) -> None:
    """Wine 8.0 makes no link and reports success."""
    monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=failure))
    for index in releases:
        run(machine, "install", "--index", index)
        info = json.loads((folder(machine) / "gpu-package-info.json").read_text())
        assert info["libsPath"] == str(folder(machine) / "lib")
    assert not (machine.prefix / "current").exists()
    run(machine, "verify")
    variables = machine.answer("env")["variables"]
    assert Path(variables["ORT_DYLIB_PATH"]).read_bytes() == library(VERSIONS[1])
    assert variables["LD_LIBRARY_PATH"] == str(folder(machine) / "lib")
    run(machine, "rollback")
    assert VERSIONS[0] in folder(machine).name
    run(machine, "uninstall")
    assert not machine.prefix.exists()


def test_links_take_over(machine: Machine, releases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the two steps leaves the link and the file: the file decides."""
    with monkeypatch.context() as without_links:
        without_links.setattr(Path, "symlink_to", Mock(side_effect=REFUSED))
        run(machine, "install", "--index", releases[0])
        old = folder(machine)
    run(machine, "install", "--index", releases[1])
    assert not (machine.prefix / "current.txt").exists()
    assert (machine.lib / "libonnxruntime.so.1").read_bytes() == library(VERSIONS[1])
    (machine.prefix / "current.txt").write_text(f"versions/{old.name}\n")
    assert machine.answer("verify")["folder"] == str(old)
    (machine.prefix / "current.txt").unlink()
    monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=REFUSED))
    run(machine, "rollback")
    assert (machine.prefix / "current").is_symlink() is False
    assert folder(machine) == old


@pytest.mark.parametrize("text", ["mine", "versions/../../etc\n", "\0"])
def test_a_file_that_is_not_ours_is_not_followed(machine: Machine, releases: list[str], text: str) -> None:
    machine.prefix.mkdir(parents=True)
    (machine.prefix / "current.txt").write_text(text)
    assert machine.run("env") == 3
    assert machine.run("install", "--index", releases[0]) == 11
    assert "current.txt is in the way" in machine.err
    assert (machine.prefix / "current.txt").read_text() == text
