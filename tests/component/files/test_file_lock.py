"""Tests of the errors with which a system refuses a lock."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from builder.errors import DiskError
from builder.files import file_lock


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES, 0], ids=["Linux", "Windows", "Wine"])
def test_another_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    assert not _locked(tmp_path, monkeypatch, number)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_that_cannot_lock_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with pytest.raises(OSError, match=os.strerror(number)):
        _locked(tmp_path, monkeypatch, number)


def _locked(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> bool:
    """Return the answer of ``locked`` on a system whose lock call fails with this error number."""

    def lock(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(file_lock, "_lock", lock)
    with (folder / "lock").open("wb") as file:
        return file_lock.locked(file.fileno())


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """NFS without lockd answers ENOLCK, Lustre without the mount option flock ENOSYS."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    wanted = f"^{tmp_path}/lock cannot be written: {os.strerror(number)}. .* have no locks. Choose a folder"
    with pytest.raises(DiskError, match=wanted), file_lock.exclusive(tmp_path / "lock", lambda: None):
        pass
    with pytest.raises(DiskError, match=wanted), file_lock.if_free(tmp_path / "lock"):
        pass
