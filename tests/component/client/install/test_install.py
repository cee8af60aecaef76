"""Tests of install, verify and env with small packages on disk and on a loopback server."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.client.cli import main
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, name_of, serving

MODERN = name_of("modern")


def test_install_from_a_server_puts_every_byte_where_current_points(machine: Machine, release: Path) -> None:
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/index.json") == 0, machine.err
    assert {path.relative_to(machine.prefix / "current").as_posix(): path.read_bytes()
            for path in (machine.prefix / "current").rglob("*")
            if path.is_file() and path.suffix != ".json"} == FILES  # fmt: skip
    assert machine.litter() == []


def test_the_info_file_says_what_for_and_what(
    machine: Machine, release: Path, told: Callable[[object], None]
) -> None:
    machine.run("install", "--index", str(release))
    info = json.loads((machine.prefix / "current" / "gpu-package-info.json").read_text())
    assert Path(info["libsPath"], "libonnxruntime.so.1").read_bytes() == FILES["lib/libonnxruntime.so.1"]
    del info["libsPath"], info["sha256"]
    told(json.dumps(info, indent=2))


def test_again_is_already_installed_and_fetches_no_package(machine: Machine, release: Path) -> None:
    with serving(release) as server:
        machine.run("install", "--index", server.url + "/index.json")
        before = len(server.requests)
        assert machine.run("install", "--index", server.url + "/index.json") == 0
        assert [path for path, _ in server.requests[before:]] == ["/index.json"]
    assert "Already installed" in machine.out


def test_a_damaged_file_is_seen_by_verify_and_cured_by_install(machine: Machine, release: Path) -> None:
    machine.run("install", "--index", str(release))
    library = machine.lib / "libonnxruntime.so.1"
    library.write_bytes(library.read_bytes()[:-1] + b"!")  # the size is the same: only the hash differs
    (machine.lib / "libcudart.so.12").write_bytes(b"stranger")
    assert machine.run("verify") == 7
    assert "lib/libonnxruntime.so.1: sha256 differs" in machine.out
    assert "lib/libcudart.so.12: does not belong" in machine.out
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert machine.run("verify") == 0
    assert "4 files are as the manifest says" in machine.out
    assert machine.litter() == []


def test_a_machine_without_gpu_installs_nothing_and_that_is_fine(machine: Machine, release: Path) -> None:
    machine.env = {}
    assert machine.run("install", "--index", str(release)) == 0
    assert machine.out.startswith("CPU: no NVIDIA GPU was found")
    assert "nvidia-smi is not on PATH" in machine.out
    assert sorted(path.name for path in machine.prefix.iterdir()) == [
        ".ortpacks",
        "gpu-info.json",
        "versions",
    ]
    assert not list((machine.prefix / "versions").iterdir())
    assert machine.run("env") == 3
    assert machine.run("verify") == 3


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"libc": "glibc 2.31"}, "glibc 2.34, this system has 2.31"),
        ({"env": {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "470.256.02"}}, "525.60.13 or newer"),
    ],
    ids=["glibc", "driver"],
)
def test_an_older_system_than_the_package_needs_is_the_cpu_with_the_way_out(
    machine: Machine, release: Path, about: dict[str, Any], words: str
) -> None:
    older = replace(machine, **about)
    assert older.run("install", "--index", str(release)) == 0
    assert older.out.startswith("CPU:")
    assert words in older.out
    assert not list((older.prefix / "versions").iterdir())


def test_variant_overrides_the_card_but_not_the_platform(machine: Machine, release: Path) -> None:
    machine.env = {}
    assert machine.run("install", "--index", str(release), "--variant", "legacy") == 0
    assert "as asked" in machine.err
    assert "no NVIDIA GPU was found" in machine.err
    assert machine.run("verify") == 0
    assert machine.run("select", "--index", str(release), "--variant", "lagacy") == 2
    assert "legacy, modern" in machine.err
    machine.platform = "win-x64"
    assert machine.run("select", "--index", str(release), "--variant", "legacy") == 9


def test_a_package_for_the_cpu_that_was_asked_for_is_not_called_what_is_left(
    machine: Machine, release: Path
) -> None:
    """The release also has a package for this GPU."""
    index = json.loads((release / "index.json").read_text())
    index["packages"][0] |= {"provider": "cpu", "driver": None, "capabilities": {}, "generations": []}
    (release / "index.json").write_text(json.dumps(index))
    said = machine.answer("select", "--index", str(release), "--variant", "legacy")
    assert said["summary"] == f"{name_of('legacy')}, as asked with --variant."


def test_the_disk_is_asked_before_anything_is_fetched(machine: Machine, release: Path) -> None:
    machine.free = 1000
    with serving(release) as server:
        assert machine.run("install", "--index", server.url + "/index.json") == 11
        assert [path for path, _ in server.requests] == ["/index.json"]
    assert "1000 are free" in machine.err
    assert machine.litter() == []


def test_what_dead_installs_left_is_removed_but_a_download_goes_on(machine: Machine, release: Path) -> None:
    archive = (release / f"{MODERN}.tar.zst").read_bytes()
    entry = json.loads((release / "index.json").read_text())["packages"][1]
    downloads, parts = machine.prefix / ".ortpacks" / "downloads", machine.prefix / ".ortpacks" / "parts"
    (parts / "dead-123" / "lib").mkdir(parents=True)
    downloads.mkdir()
    (downloads / "another.tar.zst.part").write_bytes(b"old")
    (downloads / f"{entry['sha256'][:12]}-{entry['file']}.part").write_bytes(archive[:500])
    with serving(release) as server:
        assert machine.run("install", "--index", server.url + "/index.json") == 0, machine.err
        assert server.requests[1][1]["Range"] == "bytes=500-"
    assert machine.litter() == []
    assert machine.run("verify") == 0


def test_a_prefix_with_other_things_in_it_keeps_them(machine: Machine, release: Path) -> None:
    """The prefix may be a home folder: ``--prefix $HOME``."""
    theirs = ["downloads/thesis.pdf", "movie.part-1", "versions/novel.part-2/draft.txt", "install.lock"]
    for name in theirs:
        file = machine.prefix / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert [(machine.prefix / name).read_text() for name in theirs] == theirs
    assert {path.name for path in machine.prefix.iterdir()} == {
        *(name.split("/", maxsplit=1)[0] for name in theirs),
        ".ortpacks",
        "current",
        "gpu-info.json",
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda current: current.write_text("mine"),
        Path.mkdir,
        lambda current: current.symlink_to("/usr"),
        lambda current: current.symlink_to("current"),
    ],
    ids=["file", "folder", "link", "loop"],
)
def test_somebody_else_s_current_is_not_replaced(
    machine: Machine, release: Path, make: Callable[[Path], object]
) -> None:
    current = machine.prefix / "current"
    machine.prefix.mkdir(parents=True)
    make(current)
    before = _unread(os.lstat(current))
    assert machine.run("install", "--index", str(release)) == 11
    assert "current is in the way" in machine.err
    assert _unread(os.lstat(current)) == before


def _unread(status: os.stat_result) -> tuple[int, ...]:
    """Return all fields but the time of the last access, which any reader changes."""
    return (*status[: stat.ST_ATIME], status.st_mtime_ns, status.st_ctime_ns)


def test_every_user_can_read_what_was_installed_under_a_strict_umask(machine: Machine, release: Path) -> None:
    before = os.umask(0o077)
    try:
        assert machine.run("install", "--index", str(release)) == 0, machine.err
    finally:
        os.umask(before)
    folder = (machine.prefix / "current").resolve()
    for path in (folder.parent, folder, *folder.rglob("*")):
        run_or_entered = path.is_dir() or ".so" in path.name
        assert path.stat().st_mode & 0o7777 == (0o755 if run_or_entered else 0o644), path


def test_sh_env_sets_what_a_program_reads(machine: Machine, release: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "pre fix's"
    machine.run("install", "--index", str(release), "--prefix", str(prefix))
    assert machine.run("env", "--prefix", str(prefix)) == 0
    script = machine.out + 'printf "%s\\n" "$ORT_DYLIB_PATH" "$LD_LIBRARY_PATH"'
    shell = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"LD_LIBRARY_PATH": "/mine"},
        capture_output=True,
        text=True,
        check=True,
    )
    dylib, libraries = shell.stdout.splitlines()
    assert Path(dylib).read_bytes() == FILES["lib/libonnxruntime.so.1"]
    assert libraries == f"{prefix}/current/lib:/mine"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "ortpacks-other"),
        ("glibc", "2.31"),
        ("layout", "thin"),
        ("capabilities", {"8.6": "native"}),
        (
            "onnxruntime",
            {"version": "1.23.1", "origin": "wheel", "profile": None, "host": "wheel", "cannot_run": []},
        ),
    ],
)
def test_an_index_that_says_something_else_than_the_manifest_is_refused(
    machine: Machine, release: Path, key: str, value: object
) -> None:
    """The client selects by the index: the user would get another package than the selected one."""
    index = json.loads((release / "index.json").read_text())
    for package in index["packages"]:
        package[key] = value
    (release / "index.json").write_text(json.dumps(index))
    assert machine.run("install", "--index", str(release)) == 7, machine.out
    assert f"its manifest and the index disagree on {key}." in machine.err
    assert not list((machine.prefix / "versions").iterdir())


@pytest.mark.parametrize(
    "flag",
    ["--prefix", "--index", "--offline", "--mirror", "--look-in", "--wheels", "--device", "--variant"],
)
def test_an_empty_word_names_nothing(
    machine: Machine, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """An unset shell variable gives an empty word: nothing may be installed into the current folder."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    index = [] if flag in {"--index", "--offline", "--mirror"} else ["--index", str(release)]
    assert machine.run("install", flag, "", *index) == 2
    assert f"argument {flag}: " in machine.err
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("platform", "name", "code"),
    [("linux-x64", "a:b", 2), ("linux-x64", "a;b", 2), ("macos-arm64", "a;b", 0), ("win-x64", "a;b", 2)],
)
def test_a_prefix_that_a_loader_takes_for_two_folders_is_refused(
    machine: Machine, release: Path, tmp_path: Path, platform: str, name: str, code: int
) -> None:
    here = replace(machine, platform=platform)
    prefix = str(tmp_path / name)
    assert here.run("install", "--index", str(release), "--prefix", prefix) == code, here.err
    assert ("as two folders" in here.err) == (code == 2)
    assert machine.run("uninstall", "--prefix", prefix) != 2, "what lies there can be removed"


@pytest.mark.parametrize(
    ("chosen", "code", "said"),
    [
        ([], 0, "2 for other systems: `list` names them\nNothing was installed"),
        (["--variant", "modern"], 9, "--variant modern: it has no package for linux-x64."),
    ],
)
def test_packages_for_arm_are_not_installed_on_x64(
    machine: Machine, release: Path, chosen: list[str], code: int, said: str
) -> None:
    index = release / "index.json"
    index.write_text(index.read_text().replace('"platform": "linux-x64"', '"platform": "linux-arm64"'))
    assert machine.run("install", "--index", str(release), *chosen) == code
    assert said in machine.out + machine.err
    assert not [path for path in machine.prefix.rglob("*") if path.name in {"current", "manifest.json"}]
    assert not [path for path in machine.prefix.rglob("*") if ".so" in path.name or ".tar" in path.name]


def test_an_empty_variable_states_nothing(machine: Machine, release: Path) -> None:
    names = ("ORTPACKS_FORCE_CC", "ORTPACKS_FORCE_DRIVER", "ORTPACKS_FORCE_MEMORY")
    machine.env = dict.fromkeys(names, "")
    assert machine.run("select", "--index", str(release)) == 0, machine.err
    assert machine.run("doctor") == 0, machine.err
    assert not [name for name in names if f"{name}=" in machine.out]


def test_a_file_system_without_modes_is_one_to_install_on(
    machine: Machine, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On FAT, chmod(2) fails with EPERM."""

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert machine.run("verify") == 0


def test_a_package_without_nvidias_libraries_asks_for_no_room_for_them(
    machine: Machine, release: Path
) -> None:
    """The space for the package was checked earlier; meanwhile, another program has filled the disk."""
    room = iter([2**40, 0, 0])
    context = replace(machine.context(), free=lambda path: next(room))
    argv = ["install", "--index", str(release)]
    assert main(argv, context, machine.env, machine.home, print, print) == 0
