"""Tests of files and scratch folders that appear whole or not at all, even when their writer is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.errors import DiskError
from builder.files.atomic_write import part_file, replace_folder, scratch_folder
from builder.files.disk import disk_errors
from tests.support.faults.killed import ended, in_a_child
from tests.support.messages import Refused

KILLED = """
import os, signal, sys
from pathlib import Path
from builder.files.atomic_write import part_file, scratch_folder
dest = Path(sys.argv[1])
with part_file(dest) as file, scratch_folder(dest.with_name("scratch"), needed=0) as folder:
    folder.mkdir()
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_leaves_the_old_file_and_the_next_run_clears_up(tmp_path: Path, root: Path) -> None:
    dest = tmp_path / "package"
    dest.write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(dest)], cwd=root, check=False)
    assert killed.returncode == -9
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


def test_a_part_taken_for_an_orphan_before_it_was_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def interrupt(dest: Path) -> None:
    with part_file(dest) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_a_file_that_raises_half_way_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / "package")
    assert list(tmp_path.iterdir()) == []


def enter(dest: Path, needed: int = 0) -> None:
    with part_file(dest, needed=needed):
        pytest.fail("there is no file to write")


def test_more_than_is_free_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"package does not fit: about 1,152,921,504,606,846,976 .* are free"):
        enter(tmp_path / "package", needed=1 << 60)
    with (
        pytest.raises(DiskError, match="work does not fit"),
        scratch_folder(tmp_path / "work", needed=1 << 60),
    ):
        pass


CODES = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOENT)


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, refused: Refused, code: int) -> None:
    with refused(DiskError), disk_errors(tmp_path / "x"):
        raise OSError(code, os.strerror(code))


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path, refused: Refused) -> None:
    """``/proc`` takes no folders and reports ENOENT; a file is no folder."""
    (tmp_path / "file").touch()
    for path in (Path("/proc/not-there/folder/file"), tmp_path / "file/package"):
        with refused(DiskError):
            enter(path)
    with refused(DiskError), disk_errors(tmp_path / "file" / "new"):
        (tmp_path / "file" / "new" / "er").mkdir(parents=True)


@pytest.mark.parametrize("kind", [part_file, partial(scratch_folder, needed=0)], ids=["file", "folder"])
def test_a_folder_that_takes_nothing_new_is_not_called_removed(
    refused: Refused, kind: Callable[[Path], AbstractContextManager[object]]
) -> None:
    """Defect: of ``/proc``, which is there, the message said that something had removed it."""
    with refused(DiskError), kind(Path("/proc/not-there")):
        pass


def test_a_full_folder_is_told_with_the_room_of_its_own_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix may be a file system of its own."""
    (tmp_path / "mounted").mkdir()
    free = {"mounted": 7}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path.name, 10**9)))
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskError, match="7 bytes are free now"), disk_errors(tmp_path / "mounted"):
        raise full


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


def test_a_folder_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    replaced(tmp_path / "made", "old")
    replaced(tmp_path / "made", "new")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path("made"), Path("made/new")]


@pytest.mark.parametrize(
    "failure", [OSError(errno.EBUSY, "busy"), KeyboardInterrupt()], ids=["busy", "Ctrl-C"]
)
@pytest.mark.parametrize("when", [1, 2], ids=["the old folder", "the new folder"])
def test_an_earlier_folder_that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, when: int
) -> None:
    """A mount point can be emptied, but neither renamed nor removed; Ctrl-C comes between the two renames."""
    replaced(tmp_path / "made", "old")
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
