"""Tests of list, rollback and uninstall, also when they are killed, and of env.

The output of ``env`` is also read by the programs it is written for, where they exist.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from unittest.mock import Mock

import pytest

from builder.client.commands.environment import library_path, lines
from builder.client.install import installer
from builder.client.install.current import folder_in_use, require_ours
from builder.client.install.prefix import Prefix
from builder.files.file_lock import exclusive
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, name_of, write_release
from tests.support.faults.client import Quick, version_in_use, versions_in
from tests.support.faults.killed import after_each_kill
from tests.support.messages import Told
from tests.support.schemas import schema
from tests.support.tables import table

VERSIONS = ("1.22.0", "1.23.2", "1.24.0")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("releases")
    return {version: write_release(folder / version, version=version) for version in VERSIONS}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, releases: dict[str, Path]) -> Path:
    """Return a home folder with the first two versions, of which each test gets a copy."""
    machine = Quick(tmp_path_factory.mktemp("installed"))
    for version in VERSIONS[:2]:
        assert machine.run("install", "--index", str(releases[version])) == 0, machine.err
    return machine.home


@pytest.fixture
def machine(tmp_path: Path, installed: Path) -> Machine:
    return Quick(shutil.copytree(installed, tmp_path / "home", symlinks=True))


def test_rollback_goes_one_version_back_and_no_further(machine: Machine) -> None:
    assert version_in_use(machine) == "1.23.2"
    assert machine.answer("rollback")["command"] == "rollback"
    assert version_in_use(machine) == "1.22.0"
    assert machine.run("rollback") == 3
    assert "no earlier package is here" in machine.err
    assert version_in_use(machine) == "1.22.0"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"versions/../../x\n"])
def test_an_odd_history_removes_nothing(machine: Machine, releases: dict[str, Path], content: bytes) -> None:
    (machine.prefix / ".ortpacks/history").write_bytes(content)
    assert machine.run("install", "--index", str(releases["1.23.2"])) == 0, machine.err
    assert versions_in(machine) == {"1.22.0", "1.23.2"}


@pytest.mark.parametrize(
    ("before", "versions", "after"),
    [(["rollback"], ["1.24.0"], "1.22.0"), ([], ["1.23.2", "1.22.0"], "1.23.2")],
    ids=["not to what was rolled back from", "the same again, and back and forth"],
)
def test_the_next_rollback_goes_to_what_was_in_use_before(
    machine: Machine, releases: dict[str, Path], before: list[str], versions: list[str], after: str
) -> None:
    for command in before:
        machine.run(command)
    for version in versions:
        assert machine.run("install", "--index", str(releases[version])) == 0, machine.err
    assert machine.run("rollback") == 0, machine.err
    assert version_in_use(machine) == after


@pytest.mark.parametrize(
    ("content", "rollback", "verify"),
    [*((content, 7, 7) for content in ('{"format": 3', "{}", "[]")), ('{"format": 99}', 2, 2)],
)
def test_a_damaged_manifest(machine: Machine, told: Told, content: str, rollback: int, verify: int) -> None:
    for version in (machine.prefix / "versions").iterdir():
        (version / "manifest.json").write_text(content)
    for command, code in (("rollback", rollback), ("verify", verify)):
        assert machine.run(command) == code
        told(re.sub(r"-[0-9a-f]{12}\b", "", machine.err.strip()))
    assert version_in_use(machine) == "1.23.2"


@pytest.mark.parametrize("argv", [["uninstall"], ["uninstall", "--old"]])
def test_a_version_without_a_manifest_is_uninstalled_alone(machine: Machine, argv: list[str]) -> None:
    """Defect: it was on offer for rollback, and stayed as a folder that was "not ours"."""
    (before,) = (machine.prefix / "versions").glob("*1.22.0*")
    (before / "LICENSE").write_bytes(b"MIT?")
    assert machine.run("rollback") == 7
    assert "LICENSE: sha256 differs" in machine.err
    (before / "manifest.json").unlink()
    assert machine.run("rollback") == 7
    assert f"{before.name} is damaged, so" in machine.err
    assert "manifest.json cannot be read" in machine.err
    assert machine.run(*argv) == 0, machine.err
    assert before.name in machine.out
    assert "Not ours" not in machine.out
    assert not before.exists()


def test_install_keeps_the_one_before(machine: Machine, releases: dict[str, Path]) -> None:
    assert machine.run("install", "--index", str(releases["1.24.0"])) == 0, machine.err
    assert versions_in(machine) == {"1.23.2", "1.24.0"}
    assert f"freed: {name_of('modern', '1.22.0')}" in machine.out
    assert f"{name_of('modern', '1.23.2')}-" in machine.out, "what rollback goes back to"


def test_a_version_that_stays_undoes_nothing(
    machine: Machine, releases: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = PermissionError(13, "Permission denied", "a folder")
    monkeypatch.setattr(installer, "remove_packages", Mock(side_effect=refused))
    assert machine.run("install", "--index", str(releases["1.24.0"])) == 0, machine.err
    assert "an older package is not removed: Permission denied" in machine.err
    assert version_in_use(machine) == "1.24.0"
    assert "freed" not in machine.out


def test_list_shows_the_offer_and_what_is_here(machine: Machine, releases: dict[str, Path]) -> None:
    answer = machine.answer("list", "--index", str(releases["1.23.2"]))
    roles = {item["onnxruntime"]: item["role"] for item in answer["installed"]}
    assert roles == {"1.22.0": "previous", "1.23.2": "current"}
    assert {item["variant"]: item["here"] for item in answer["offered"]} == {"legacy": False, "modern": True}
    assert all(item["size"] > sum(map(len, FILES.values())) for item in answer["installed"])
    assert machine.run("list", "--index", str(releases["1.23.2"])) == 0
    assert "current" in machine.out
    assert ", here" in machine.out


def test_list_needs_no_release_and_no_install(tmp_path: Path, releases: dict[str, Path]) -> None:
    bare = Machine(tmp_path / "bare")
    assert bare.run("list") == 0
    assert "nothing" in bare.out
    assert bare.run("list", "--index", "http://127.0.0.1:1/index.json") == 10
    assert f"installed under {bare.prefix}:" in bare.out
    assert "release: http://127.0.0.1:1/index.json: " in bare.out
    assert bare.run("list", "--index", "http://127.0.0.1:1/index.json", "--json") == 10
    answer = json.loads(bare.out)
    schema("client").validate(answer)
    assert (answer["error"]["code"], answer["installed"], answer["tag"]) == (10, [], None)
    assert bare.run("list", "--index", "http://127.0.0.1:1/index.json", "--installed") == 0


def test_folders_deep_in_folders_are_told(machine: Machine, releases: dict[str, Path]) -> None:
    """Defect: each of the commands ended with a traceback, as pathlib and shutil call themselves a level.

    An older ortpacks left such folders behind.
    """
    install = ("install", "--index", str(releases["1.23.2"]))
    folder = (machine.prefix / "current").resolve()
    for _ in range(1200):
        folder /= "a"
        folder.mkdir()
    (folder / "b").touch()
    try:
        assert machine.run("verify") == 7
        assert "a/a/b: does not belong to the package" in machine.out
        assert machine.run("list", "--installed") == 0, machine.err
        assert machine.run(*install) == 0, machine.err
        assert machine.run("uninstall") == 11
        assert "folders lie too deep in folders" in machine.err
        assert machine.run(*install) == 11, "they still lie there"
    finally:
        subprocess.run(["rm", "-rf", machine.prefix], check=True)
    assert "folders lie too deep in folders" in machine.err


def test_uninstall_leaves_nothing_of_ours(machine: Machine) -> None:
    size = sum(path.lstat().st_size for path in (machine.prefix / "versions").rglob("*") if path.is_file())
    answer = machine.answer("uninstall")
    assert (len(answer["removed"]), answer["freed"], answer["in_use"]) == (2, size, None)
    assert not machine.prefix.exists()
    assert machine.run("uninstall") == 3


def test_what_is_somebody_else_s_stays(machine: Machine, releases: dict[str, Path]) -> None:
    """The prefix may be a home folder: ``--prefix $HOME``."""
    names = ("downloads/thesis.pdf", "install.lock", "movie.part-1", "versions/novel.part-2/draft.txt")
    theirs = [machine.prefix / name for name in names]
    for file in theirs:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    assert machine.run("install", "--index", str(releases["1.24.0"])) == 0, machine.err
    assert machine.run("uninstall") == 0, machine.err
    assert sorted(path for path in machine.prefix.rglob("*") if path.is_file()) == theirs
    assert "Not ours, it stays" in machine.out


def test_uninstall_old_keeps_what_is_in_use(machine: Machine) -> None:
    """``freed`` counts no library that another version still has."""
    (old,) = (machine.prefix / "versions").glob("*1.22.0*")
    shared = old / "lib" / "libonnxruntime_providers_cuda.so"
    shared.unlink()
    shared.hardlink_to(machine.lib / shared.name)
    own = sum(path.stat().st_size for path in old.rglob("*") if path.is_file()) - shared.stat().st_size
    assert machine.answer("uninstall", "--old")["freed"] == own
    assert versions_in(machine) == {"1.23.2"}
    assert machine.run("verify") == 0
    assert machine.run("rollback") == 3


def test_somebody_else_s_current_is_not_uninstalled(tmp_path: Path, machine: Machine) -> None:
    (machine.prefix / "current").unlink()
    (tmp_path / "theirs").mkdir()
    (machine.prefix / "current").symlink_to(tmp_path / "theirs")
    assert machine.run("uninstall") == 11
    assert (machine.prefix / "current").is_symlink()


@pytest.mark.parametrize("name", [".ortpacks", ".ortpacks/parts", ".ortpacks/downloads", "versions"])
@pytest.mark.parametrize("command", ["install", "rollback", "uninstall"])
def test_no_file_is_removed_where_a_link_leads(
    tmp_path: Path, machine: Machine, releases: dict[str, Path], command: str, name: str
) -> None:
    """Defect: the content of the folder that the link led to was removed, whatever it was."""
    theirs = tmp_path / "theirs"
    shutil.copytree(machine.prefix / name, theirs)
    (theirs / "parts").mkdir(exist_ok=True)
    for path in (theirs / "kept", theirs / "parts" / "kept"):
        path.write_text("somebody's")
    shutil.rmtree(machine.prefix / name)
    (machine.prefix / name).symlink_to(theirs)
    before = sorted(theirs.rglob("*"))
    argv = [command, *(["--index", str(releases["1.24.0"])] if command == "install" else [])]
    assert machine.run(*argv) == 11
    assert f"{name} is a link to {theirs}" in machine.err
    assert sorted(theirs.rglob("*")) == before


@pytest.mark.parametrize("inside", ["", "packages"])
def test_a_circle_is_told(tmp_path: Path, machine: Machine, releases: dict[str, Path], inside: str) -> None:
    """Defect: it ended with a traceback, because pathlib reports a circle as a ``RuntimeError``."""
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    prefix = circle / inside
    assert machine.run("install", "--index", str(releases["1.24.0"]), "--prefix", str(prefix)) == 11
    assert f"{prefix / '.ortpacks'} cannot be written: Too many levels of symbolic links." in machine.err


@pytest.mark.parametrize("command", ["install", "rollback", "uninstall"])
def test_who_is_there_to_be_asked_is_asked(machine: Machine, releases: dict[str, Path], command: str) -> None:
    argv = [command, *(["--index", str(releases["1.24.0"])] if command == "install" else [])]
    machine.says = [False, False]
    assert machine.run("install", "--index", str(releases["1.23.2"])) == 0, machine.err
    assert machine.asked == [], "what is there already needs no question"
    assert machine.run(*argv) == 3
    assert (version_in_use(machine), "nothing was changed" in machine.err) == ("1.23.2", True)
    assert machine.run(*argv, "--yes") == 0, machine.err
    (question,) = machine.asked
    assert question.endswith("[y/N]" if command == "uninstall" else "[Y/n]")


def test_a_killed_uninstall_is_whole(machine: Machine, tmp_path: Path, releases: dict[str, Path]) -> None:
    def copy(step: int) -> Machine:
        return Quick(shutil.copytree(machine.home, tmp_path / str(step), symlinks=True))

    ends = set()
    for one in after_each_kill(copy, "uninstall"):
        ends.add(one.run("verify"))
        assert ends <= {0, 3}, one.out
        assert one.run("install", "--index", str(releases["1.23.2"])) == 0, one.err
        assert one.run("uninstall") == 0, one.err
        assert not one.prefix.exists()
    assert ends == {0, 3}


def test_a_kill_while_rolling_back_leaves_one_of_the_two(machine: Machine, releases: dict[str, Path]) -> None:
    one = Quick(machine.home)
    seen = set()
    for _ in after_each_kill(lambda _: one, "rollback"):
        assert one.run("verify") == 0, one.out
        seen.add(version_in_use(one))
        assert one.run("install", "--index", str(releases["1.23.2"])) == 0, one.err
    assert seen == {"1.22.0", "1.23.2"}
    assert one.run("rollback") == 0, one.err


def test_who_waited_for_a_lock_that_was_removed_takes_the_one_that_is_there(tmp_path: Path) -> None:
    """Otherwise an install that waited for an uninstall would hold a lock in a file that was removed."""
    path = tmp_path / "state" / "lock"
    waits, done = Event(), Event()
    held: list[bool] = []

    def second() -> None:
        with exclusive(path, waits.set):
            held.append(path.is_file())
        done.set()

    with exclusive(path, lambda: None):
        thread = Thread(target=second)
        thread.start()
        assert waits.wait(10)
        path.unlink()
        path.parent.rmdir()
    assert done.wait(10)
    thread.join()
    assert held == [True]


@pytest.mark.parametrize("name", ["current", "current.txt"])
def test_what_names_the_package_may_go_at_any_look_at_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Defect: "it is no link to a package of ours" was said of one that an uninstall had just removed."""
    prefix = Prefix(machine.prefix)
    prefix.pointer.write_text(f"versions/{prefix.current.resolve().name}\n")

    def going(look: Callable[..., object]) -> Callable[..., object]:
        def looked(path: object, *rest: object, **how: object) -> object:
            try:
                return look(path, *rest, **how)
            finally:
                if str(path) == str(machine.prefix / name):
                    (machine.prefix / name).unlink(missing_ok=True)

        return looked

    for look in ("stat", "lstat", "readlink"):
        monkeypatch.setattr(os, look, going(getattr(os, look)))
    require_ours(prefix)
    assert folder_in_use(prefix) != machine.prefix / "current"


def test_an_index_that_is_none_is_nothing_to_env(machine: Machine) -> None:
    machine.env = {**machine.env, "ORTPACKS_INDEX": "http://["}
    assert machine.run("env") == 0, machine.err
    assert machine.run("list") == 2
    assert "http://[: not a URL" in machine.err
    assert machine.run("list", "--installed") == 0, machine.err


def test_systemd_quoting_is_that_of_its_manual() -> None:
    """systemd.syntax(7): C escapes inside double quotes; systemd.unit(5): ``%%`` is a per cent sign."""
    said = lines({"ORT_DYLIB_PATH": 'a "b" c\\d 100%'}, "systemd", "linux-x64")
    assert said[1] == r'Environment="ORT_DYLIB_PATH=a \"b\" c\\d 100%%"'


def test_systemd_itself_reads_it(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / "app.service"
    values = {"ORT_DYLIB_PATH": "/opt/a b/lib/libonnxruntime.so.1", "LD_LIBRARY_PATH": "/opt/a b/lib"}
    unit.write_text("\n".join([*lines(values, "systemd", "linux-x64"), "ExecStart=/bin/true", ""]))
    done = subprocess.run([verify, "verify", unit], capture_output=True, text=True, check=False)
    assert "Environment" not in done.stderr, done.stderr


@pytest.mark.parametrize(("shell", "platform", "said"), table("client/path-lists.txt"))
def test_lists_keep_what_is_set_by_the_platform_s_separator(shell: str, platform: str, said: str) -> None:
    assert lines({"PATH": "C:\\a 100%"}, shell, platform) == [said]
    names = {"linux-x64": "LD_LIBRARY_PATH", "win-x64": "PATH", "macos-arm64": "DYLD_LIBRARY_PATH"}
    assert library_path(platform) == names[platform]


def test_a_package_that_runs_by_jit_gets_a_large_cache(machine: Machine) -> None:
    """4 GiB is the largest value that the driver accepts (CUDA C Programming Guide, environment variables).

    JSON has the package's folder alone: a program puts it before the value that it finds.
    """
    machine.env = {**machine.env, "LD_LIBRARY_PATH": "/mine"}
    path = machine.prefix / "current" / "gpu-package-info.json"
    info = json.loads(path.read_text())
    assert "CUDA_CACHE_MAXSIZE" not in machine.answer("env")["variables"]
    path.write_text(json.dumps({**info, "support": "jit", "cudaVisibleDevices": "GPU-1"}))
    variables = machine.answer("env")["variables"]
    assert variables["LD_LIBRARY_PATH"] == str(machine.lib)
    assert (variables["CUDA_CACHE_MAXSIZE"], variables["CUDA_VISIBLE_DEVICES"]) == ("4294967296", "GPU-1")
