"""Tests of the client's file operations under emulated rules of Windows. No test ran on Windows itself."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.doubles.machine import Machine
from tests.doubles.release import (
    FILES,
    archive,
    entry,
    manifest_of,
    name_of,
    serving,
    write_index,
    write_release,
)
from tests.doubles.wheels import WHEELS, indexing, unpacked
from tests.doubles.windows_files import ACCESS_DENIED, NO_PRIVILEGE, SHARING_VIOLATION, windows
from tests.support.factories.archives import member
from tests.support.forked import forked_pip

VERSIONS = ("1.22.0", "1.23.1", "1.23.2")


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


def test_wheels_and_libraries_of_this_machine(machine: Machine, tmp_path: Path) -> None:
    older = write_release(tmp_path / "older", version=VERSIONS[0], layouts=("thin",), wheels=WHEELS)
    newer = write_release(tmp_path / "newer", layouts=("thin",), wheels=WHEELS, forms=(".tar.gz",))
    venv = unpacked(tmp_path / "venv", *WHEELS)
    with windows(tmp_path / "AppData"), indexing() as pypi:
        machine.pip, machine.work = {"PIP_INDEX_URL": pypi.url}, forked_pip
        run(machine, "install", "--index", str(older))
        run(machine, "uninstall")
        run(machine, "install", "--index", str(older), "--look-in", str(venv))
        with serving(newer.parent) as server:
            run(machine, "install", "--index", f"{server.url}/")
        run(machine, "verify")


def test_a_prefix_is_the_same_in_whatever_case_it_is_written(machine: Machine, tmp_path: Path) -> None:
    """The packages hold no host library, because a child process would not see the rules."""
    files = {"lib/a.so": b"a"}
    older, newer = (write_release(tmp_path / name, version=name, files=files) for name in VERSIONS[:2])
    with windows(tmp_path / "AppData"):
        lower, upper = (str(tmp_path / "AppData" / name) for name in ("tools", "Tools"))
        run(machine, "install", "--index", str(older), "--prefix", lower)
        run(machine, "install", "--index", str(newer), "--prefix", upper)
        run(machine, "rollback", "--prefix", lower)
        run(machine, "verify", "--prefix", upper)
        assert VERSIONS[0] in machine.out
        run(machine, "uninstall", "--prefix", upper)
    assert [path.name for path in (tmp_path / "AppData").iterdir()] == ["tools"]


def for_windows(text: str) -> str:
    dll = "onnxruntime_providers_cuda.dll"
    return text.replace("linux-x64", "win-x64").replace("libonnxruntime_providers_cuda.so", dll)


def test_the_info_file_names_the_architectures_of_the_dll(machine: Machine, tmp_path: Path) -> None:
    machine.platform = "win-x64"
    top = for_windows(name_of("modern"))
    manifest = for_windows(json.dumps(manifest_of("modern", FILES)))
    files = {"manifest.json": manifest.encode(), **FILES}
    content = archive([member(for_windows(f"{top}/{path}"), data) for path, data in files.items()])
    (tmp_path / f"{top}.tar.zst").write_bytes(content)
    told = entry("modern", content, sum(map(len, FILES.values())))
    index = write_index(tmp_path, [json.loads(for_windows(json.dumps(told)))])
    run(machine, "install", "--index", str(index))
    info = json.loads((machine.prefix / "current" / "gpu-package-info.json").read_text())
    assert info["architectures"] == ["sm_75", "sm_80", "sm_86"]


@pytest.mark.parametrize("name", ["current.txt", "gpu-info.json", ".ortpacks/history"])
def test_a_file_that_a_program_reads_is_replaced_once_it_is_closed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    older, newer = (write_release(tmp_path / version, version=version) for version in VERSIONS[:2])
    with windows(tmp_path / "AppData") as refused:
        run(machine, "install", "--index", str(older))
        with (machine.prefix / name).open("rb") as read:
            monkeypatch.setattr(time, "sleep", lambda pause: read.close() if pause >= 0.1 else None)
            run(machine, "install", "--index", str(newer))
        assert "not written" not in machine.err
        run(machine, "verify")
    assert f"replace {Path(name).name}: {ACCESS_DENIED}" in refused
    assert VERSIONS[1] in str(machine.answer("verify")["folder"])


def test_each_new_file_may_be_opened_by_a_virus_scanner(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    scanned: list[object] = []
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        if old not in scanned:
            scanned.append(old)
            error = PermissionError(13, "The process cannot access the file", str(old))
            error.winerror = SHARING_VIOLATION  # type: ignore[attr-defined]  # as on Windows
            raise error
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with indexing() as pypi:
        machine.pip, machine.work = {"PIP_INDEX_URL": pypi.url}, forked_pip
        run(machine, "install", "--index", str(release))
    run(machine, "verify")
    assert len(scanned) > len(WHEELS)


def test_a_damaged_package_is_replaced(machine: Machine, tmp_path: Path) -> None:
    index = write_release(tmp_path / "release")
    with windows(tmp_path / "AppData"):
        run(machine, "install", "--index", str(index))
        (library,) = (machine.prefix / "versions").glob("*/lib/libonnxruntime.so.1")
        library.write_bytes(b"damaged")
        run(machine, "install", "--index", str(index))
        run(machine, "verify")


def test_the_longest_path_fits_where_long_paths_are_not_enabled(machine: Machine, tmp_path: Path) -> None:
    """The library's name is as long as NVIDIA's longest; the user's folder is the documented default."""
    name = "lib/libcudnn_engines_runtime_compiled_of_a_very_long_name.so.9.10.2"
    index = write_release(tmp_path / "release", files={**FILES, name: b"x"})
    with windows(tmp_path / "AppData"):
        run(machine, "install", "--index", str(index))
        run(machine, "verify")
