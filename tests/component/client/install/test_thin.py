"""Tests of thin packages: NVIDIA's libraries come from this machine or from a loopback index
through real pip."""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pip
import pytest

from tests.doubles.gpus import program
from tests.doubles.library import library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, libraries, name_of, write_release
from tests.doubles.wheels import CUBLAS, CUDNN, WHEELS, PackageIndex, Wheel, indexing, unpacked
from tests.support.messages import Told
from tests.support.tables import data_text

ALL = {**FILES, **libraries(WHEELS)}


@pytest.fixture
def pypi() -> Iterator[PackageIndex]:
    with indexing() as server:
        yield server


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)


@pytest.fixture
def machine(tmp_path: Path, pypi: PackageIndex) -> Machine:
    return Machine(tmp_path / "home", pip={"PIP_INDEX_URL": pypi.url})


def installed(machine: Machine) -> dict[str, bytes]:
    folder = machine.prefix / "current"
    ours = {"manifest.json", "gpu-package-info.json"}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in ours}


def refused(machine: Machine, release: Path, code: int, *flags: str) -> str:
    assert machine.run("install", "--index", str(release), *flags) == code, machine.out + machine.err
    assert not list((machine.prefix / "versions").iterdir())
    assert [path for path in machine.litter() if not path.endswith(".library")] == []
    return machine.err


def test_the_wheels_are_fetched_through_pip(machine: Machine, release: Path, pypi: PackageIndex) -> None:
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert "Layout thin: the release has no other." in machine.out
    assert installed(machine) == ALL
    assert pypi.fetched == [CUBLAS.file, CUDNN.file]
    assert machine.litter() == []
    assert machine.run("verify") == 0
    assert "7 files are as the manifest says" in machine.out
    modes = {path.name: path.stat().st_mode & 0o777 for path in machine.lib.iterdir()}
    assert set(modes.values()) == {0o755}
    info = json.loads((machine.prefix / "current" / "gpu-package-info.json").read_text())
    assert (info["layout"], info["name"]) == ("thin", name_of("modern", layout="thin"))


@pytest.mark.parametrize("place", data_text("client/places.txt").split())
def test_libraries_of_this_machine_are_copied(
    machine: Machine, release: Path, pypi: PackageIndex, tmp_path: Path, place: str
) -> None:
    """uv fills environments with links into its cache."""
    top, _, inside = place.partition("/")
    home = machine.home / "no-such-root" if top == "SYSTEM" else tmp_path / top
    folder, cache = home / inside, unpacked(tmp_path / "cache", *WHEELS)
    if top == "VENV":
        shutil.copytree(cache, folder, copy_function=os.symlink)
    else:
        folder.mkdir(parents=True)
        for library in cache.rglob("lib*.so.*"):
            library.rename(folder / f"{library.name}.9")
            (folder / library.name).symlink_to(f"{library.name}.9")
    flags = ["--look-in", str(home)] if top in {"VENV", "GIVEN"} else []
    variables = {"CONDA": {"CONDA_PREFIX": str(home)}, "VARIABLE": {"ORTPACKS_LOOK_IN": f":{home}:"}}
    machine.env = {**machine.env, **variables.get(top, {})}
    assert machine.run("install", "--index", str(release), *flags) == 0, machine.err
    assert "3 of 3 NVIDIA libraries are on this machine already." in machine.err
    assert (installed(machine), pypi.requests) == (ALL, [])
    assert (machine.lib / "libcudnn.so.9").stat().st_nlink == 1, "it may change tomorrow"
    for gone in (home, cache):
        shutil.rmtree(gone)
    assert machine.run("verify") == 0


def test_an_update_takes_what_is_here_and_follows_no_link(
    machine: Machine, release: Path, pypi: PackageIndex, tmp_path: Path
) -> None:
    machine.environments = (unpacked(tmp_path / "site-packages", *WHEELS),)
    machine.run("install", "--index", str(release))
    machine.environments = ()
    before = (machine.lib / "libcudnn.so.9").stat()
    newer = write_release(tmp_path / "newer", version="1.24.0", layouts=("full", "thin"), wheels=WHEELS)
    assert machine.run("install", "--index", str(newer)) == 0, machine.err
    assert pypi.requests == []
    assert "Layout thin: NVIDIA's libraries are on this machine" in machine.out
    assert installed(machine) == {**ALL, HOST: library("1.24.0")}
    after = (machine.lib / "libcudnn.so.9").stat()
    assert (after.st_ino, after.st_nlink) == (before.st_ino, 2)  # one file with two names
    for number, path in enumerate(machine.prefix.glob("versions/*/lib/libcudnn.so.9")):
        path.rename(tmp_path / f"{number}.so")
        path.symlink_to(tmp_path / f"{number}.so")
    last = write_release(tmp_path / "last", version="1.25.0", layouts=("thin",), wheels=WHEELS)
    assert machine.run("install", "--index", str(last)) == 0, machine.err
    assert pypi.fetched == [CUDNN.file]


def test_without_pip_it_says_so_and_the_way_out(machine: Machine, release: Path, tmp_path: Path) -> None:
    without = program(tmp_path, f'exec {machine.python} -S "$@"', "python")  # -S: no site-packages
    machine.python, machine.pip = without, {"PATH": "/nonexistent"}
    told = refused(machine, release, 4)
    assert "has pip" in told
    assert "--layout full" in told


def test_the_next_python_that_has_pip_is_taken(machine: Machine, release: Path, tmp_path: Path) -> None:
    real = machine.python
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(real)
    machine.python = "/nonexistent/python"
    machine.pip = {
        **machine.pip,
        "PATH": str(tmp_path / "bin"),
        "PYTHONPATH": str(Path(pip.__file__).parents[1]),
    }
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert installed(machine) == ALL


def test_a_pip_in_the_users_folder_is_not_run(
    machine: Machine, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "pip.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path / "downloads")
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert not (tmp_path / "downloads" / "ran").exists()


def test_other_bytes_of_an_index_are_told(machine: Machine, release: Path, pypi: PackageIndex) -> None:
    other = Wheel(CUDNN.name, CUDNN.version, {next(iter(CUDNN.libraries)): b"evil"})
    pypi.pages[f"/files/{CUDNN.file}"] = other.content
    told = refused(machine, release, 7)
    assert "the package index serves other bytes" in told
    assert "DO NOT MATCH THE HASHES" in " ".join(told.split())


def _claiming(wheel: Wheel, content: bytes) -> Wheel:
    """Return ``wheel`` with the manifest's size and hash of other bytes."""
    claims = dataclasses.replace(wheel)
    claims.__dict__["content"] = content
    return claims


def _with(member: str, content: bytes) -> bytes:
    """Return the bytes of a cuDNN wheel with this one member."""
    return Wheel(CUDNN.name, CUDNN.version, {member: content}).content


DAMAGED = bytearray(CUDNN.content)
DAMAGED[90] ^= 255
"""In the compressed bytes of its first member, the library: pip reads the metadata only and sees nothing."""


@pytest.mark.parametrize(
    "content",
    [
        _with("nvidia/cudnn/lib/libother.so.9", b"other"),
        _with(next(iter(CUDNN.libraries)), b"another build"),
        bytes(DAMAGED),
    ],
    ids=["no library", "another library", "damaged inside"],
)
def test_a_wheel_without_the_library_that_is_promised(
    machine: Machine, tmp_path: Path, pypi: PackageIndex, told: Told, content: bytes
) -> None:
    pypi.pages[f"/files/{CUDNN.file}"] = content
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=(_claiming(CUDNN, content),))
    told(refused(machine, release, 7).splitlines()[-1])


def claims(**changes: object) -> Wheel:
    """Return a wheel of cuDNN with other words in the manifest."""
    return _claiming(dataclasses.replace(CUDNN, **changes), CUDNN.content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wheel",
    [
        *(claims(name=name) for name in ("--index-url=http://x", "a b", "a==1 --hash=sha256:0", "../a")),
        Wheel("nvidia-x-cu12", "1", {"../../etc/libx.so": b"x"}),
    ],
    ids=["a flag", "two words", "a hash", "a path", "a member outside"],
)
def test_a_source_that_pip_could_misread_is_refused(
    machine: Machine, tmp_path: Path, pypi: PackageIndex, told: Told, wheel: Wheel
) -> None:
    machine.environments = (tmp_path,)
    told(refused(machine, write_release(tmp_path / "release", layouts=("thin",), wheels=(wheel,)), 7).strip())
    assert pypi.requests == []


@pytest.mark.parametrize("key", ["files", "wheels"])
def test_a_path_for_a_hash_is_refused(machine: Machine, tmp_path: Path, pypi: PackageIndex, key: str) -> None:
    def spoil(manifest: dict[str, Any]) -> None:
        manifest[key][-1]["sha256"] = "../../../escaped"

    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS, spoil=spoil)
    assert "'../../../escaped' for a sha256" in refused(machine, release, 7)
    assert pypi.requests == []


def test_room_for_the_wheels_is_asked_for(machine: Machine, tmp_path: Path, pypi: PackageIndex) -> None:
    files = {"LICENSE": b"MIT"}
    release = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS, files=files)
    # Counted by hand: the libraries; twice the largest wheel, because pip copies it; 64 MiB to spare.
    needed = 6 * 3000 + 8 * 5000 + 5 * 2000 + 2 * len(CUBLAS.content) + 64 * 2**20
    machine.free = needed - 1
    assert f"{needed} bytes are needed for NVIDIA's libraries" in refused(machine, release, 11)
    assert pypi.requests == []
    machine.free = needed
    assert machine.run("install", "--index", str(release)) == 0, machine.err


@pytest.mark.parametrize("damage", [False, True])
def test_what_came_is_kept(machine: Machine, release: Path, pypi: PackageIndex, damage: bool) -> None:
    page = pypi.pages.pop(f"/simple/{CUDNN.name}/")
    told = refused(machine, release, 10)
    assert "nvidia-cudnn-cu12==9.10.2.21: pip could not fetch it" in told
    assert "No matching distribution found" in told
    assert "PIP_INDEX_URL" in told
    assert pypi.fetched == [CUBLAS.file]
    waiting = [path for path in machine.litter() if path.endswith(".library")]
    assert len(waiting) == 2
    if damage:
        Path(waiting[0]).write_bytes(b"half")  # a power failure may leave this
    pypi.pages[f"/simple/{CUDNN.name}/"] = page
    pypi.requests.clear()
    assert machine.run("install", "--index", str(release)) == 0, machine.err
    assert pypi.fetched == ([CUBLAS.file, CUDNN.file] if damage else [CUDNN.file])
    assert installed(machine) == ALL
    assert machine.litter() == []


@pytest.mark.parametrize("conda", ["/" + "x" * 5000, "/dev/null"])
def test_conda_without_a_folder_is_none(machine: Machine, release: Path, tmp_path: Path, conda: str) -> None:
    machine.env = {**machine.env, "CONDA_PREFIX": conda}
    machine.environments = (unpacked(tmp_path / "site-packages", *WHEELS),)
    assert machine.run("install", "--index", str(release)) == 0, machine.err
