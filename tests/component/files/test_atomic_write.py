"""Tests of files and folders that appear whole or not at all, of full disks, locks and missing folders."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from builder.errors import ConfigError, DiskError
from builder.files import file_lock
from builder.files.atomic_write import part_file, replace_folder, scratch_folder
from builder.files.disk import absolute, disk_errors, is_writable, says_full
from builder.files.pip_download import NO_PIP, pip_download, refusal
from tests.support.faults.killed import ended, in_a_child
from tests.support.messages import Refused


def test_kill_9_leaves_the_old_file_and_the_next_run_clears_up(tmp_path: Path) -> None:
    dest = tmp_path / "package"
    dest.write_bytes(b"old")

    def killed() -> None:
        with part_file(dest) as file, scratch_folder(tmp_path / "scratch", needed=0) as folder:
            folder.mkdir()
            file.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert ended(in_a_child(killed)) == -signal.SIGKILL
    assert dest.read_bytes() == b"old"
    assert len([path for path in tmp_path.iterdir() if ".part-" in path.name]) == 2
    with part_file(dest) as file, scratch_folder(tmp_path / "scratch", needed=0):
        file.write(b"new")
    assert dest.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_two_threads_may_make_the_same_file_and_the_same_scratch_folder(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=10)

    def write(text: bytes) -> bytes:
        with part_file(tmp_path / "x") as file, scratch_folder(tmp_path / "work", needed=0) as folder:
            folder.mkdir()
            (folder / "mine").write_bytes(text)
            both.wait()  # both threads write
            file.write(text)
            return (folder / "mine").read_bytes()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, [b"one", b"two"])) == [b"one", b"two"]
    assert (tmp_path / "x").read_bytes() in {b"one", b"two"}
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_part_taken_for_an_orphan_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process searches for orphans after the part was made and before it is locked."""
    locks: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        locks.append(descriptor)
        for path in tmp_path.glob("*.part-*") if len(locks) in {1, 3} else ():
            path.rmdir() if path.is_dir() else path.unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with part_file(tmp_path / "x") as file:
        file.write(b"whole")
    with scratch_folder(tmp_path / "work", needed=0) as folder:
        folder.mkdir()
    assert len(locks) == 4
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"whole")]


Kind = Callable[..., AbstractContextManager[object]]


@pytest.fixture(params=[part_file, scratch_folder], ids=["file", "folder"])
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


def test_what_raises_half_way_is_not_there(tmp_path: Path, kind: Kind) -> None:
    with pytest.raises(KeyboardInterrupt), kind(tmp_path / "package", needed=0):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_more_than_is_free_is_told(tmp_path: Path, kind: Kind) -> None:
    said = r"package does not fit: about 1,152,921,504,606,846,976 .* are free"
    with pytest.raises(DiskError, match=said), kind(tmp_path / "package", needed=1 << 60):
        pytest.fail("there is no file to write")


@pytest.mark.parametrize(
    "code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOENT], ids=errno.errorcode.get
)
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, refused: Refused, code: int) -> None:
    with refused(DiskError), disk_errors(tmp_path / "x"):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    "place", [Path("/proc/not-there"), Path("/proc/not-there/folder/new"), Path("file/new")], ids=str
)
def test_a_place_that_takes_nothing_new_is_named_with_what_to_do(
    tmp_path: Path, refused: Refused, kind: Kind, place: Path
) -> None:
    """``/proc`` takes no folders and reports ENOENT; a file is no folder.

    Defect: of ``/proc``, which is there, the message said that something had removed it.
    """
    (tmp_path / "file").touch()
    with refused(DiskError), kind(tmp_path / place, needed=0):
        pytest.fail("there is nothing to write")


def test_a_full_folder_is_told_with_its_own_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix may be a file system of its own."""
    (tmp_path / "mounted").mkdir()
    free = {"mounted": 7}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path.name, 10**9)))
    with pytest.raises(DiskError, match="7 bytes are free now"), disk_errors(tmp_path / "mounted"):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_what_another_user_left_in_a_shared_folder_is_in_nobodys_way(mode: int) -> None:
    """``/tmp`` has the sticky bit: nobody removes there what is another's."""
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        shared.chmod(0o1777)
        theirs = shared / "scratch.part-1-aa"
        theirs.mkdir(mode=mode)
        (theirs / "file").write_bytes(b"x")

        def as_nobody() -> None:
            os.setuid(65534)
            with scratch_folder(shared / "scratch", needed=0) as folder:
                folder.mkdir()

        assert ended(in_a_child(as_nobody)) == 0
        assert [path.name for path in shared.iterdir()] == [theirs.name]


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    """A browser calls a second download of a file ``gpus[1].html``."""
    for name in ("gpus[1].html", "**.html"):
        orphan = tmp_path / f"{name}.part-1-aa"
        orphan.write_bytes(b"half")
        with part_file(tmp_path / name) as file:
            file.write(b"whole")
        assert not orphan.exists()


def replaced(folder: Path, word: str) -> None:
    """Put a new folder with the file ``word`` in the place of ``folder``."""
    with scratch_folder(folder, needed=0) as fresh:
        fresh.mkdir()
        (fresh / word).touch()
        replace_folder(folder, fresh)


@pytest.mark.parametrize(
    "failure", [OSError(errno.EBUSY, "busy"), KeyboardInterrupt()], ids=["busy", "Ctrl-C"]
)
@pytest.mark.parametrize("when", [1, 2], ids=["the old folder", "the new folder"])
def test_an_earlier_folder_that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, when: int
) -> None:
    """A mount point can be emptied, but neither renamed nor removed; Ctrl-C comes between the two renames."""
    replaced(tmp_path / "made", "older")
    replaced(tmp_path / "made", "old")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["old"]
    rename, seen = Path.rename, list[Path]()

    def fails(path: Path, target: Path) -> Path:
        seen.append(path)
        if len(seen) == when:
            raise failure
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(type(failure)):
        replaced(tmp_path / "made", "new")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path("made"), Path("made/old")]


@pytest.mark.parametrize("said", ["[Errno 28] No space left on device", "write /x: disk quota exceeded"])
def test_a_full_disk_and_a_full_quota_are_told_from_an_index_without_the_wheel(said: str) -> None:
    """A home folder of a computing centre has a quota, and the disk below has terabytes free."""
    lines = ["Collecting a", f"ERROR: Could not install packages due to an OSError: {said}"]
    assert says_full(lines)
    assert isinstance(refusal("a==1", lines, "Set its index."), DiskError)


def test_a_login_in_pips_output_is_in_no_message() -> None:
    """Defect: with no host in PIP_INDEX_URL, pip's last line shows the password."""
    line = "InvalidURL: Invalid URL 'https://user:s3cret@/a/': No host supplied"
    assert "Invalid URL 'https://…@/a/': No host supplied" in str(refusal("a==1", [line], "Set its index."))


def test_nothing_is_writable_on_a_drive_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no folder above a drive that does not exist."""
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert not is_writable(Path("Z:/cache"))


def test_a_relative_path_in_a_removed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "gone"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    with pytest.raises(
        ConfigError, match=r"^packages: it is relative to the current folder, which was removed\. Change to"
    ):
        absolute(Path("packages"))


@pytest.mark.skipif(os.name != "posix", reason="the path of the interpreter outside of the environment")
def test_pip_downloads_for_a_user_who_installs_into_environments_alone(tmp_path: Path) -> None:
    """``require-virtualenv`` is for installs, and pip holds to it in ``pip download`` as well."""
    outside = Path(sys.base_prefix) / "bin/python3"
    done = subprocess.run(
        pip_download(str(outside), tmp_path, ["ortpacks-no-such-wheel==1"]),
        env={"PIP_REQUIRE_VIRTUALENV": "1", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_PIP:
        pytest.skip(f"{outside} has no pip")
    assert "No matching distribution found" in done.stderr


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES, 0], ids=["Linux", "Windows", "Wine"])
def test_another_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(file_lock, "_lock", Mock(side_effect=OSError(number, os.strerror(number))))
    with (tmp_path / "lock").open("wb") as file:
        assert not file_lock.locked(file.fileno())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused, number: int
) -> None:
    """NFS without lockd answers ENOLCK, Lustre without the mount option flock ENOSYS."""
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number))))
    with refused(DiskError), file_lock.exclusive(tmp_path / "lock", lambda: None):
        pass
    with refused(DiskError), file_lock.if_free(tmp_path / "lock"):
        pass
