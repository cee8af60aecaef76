"""Tests of full disks and quotas, a missing drive, a removed folder, and a user's setting of pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.errors import ConfigError, DiskError
from builder.files.disk import absolute, is_writable, says_full
from builder.files.pip_download import NO_PIP, pip_download, refusal


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "ERROR: Could not install packages due to an OSError: [Errno 122] Disk quota exceeded",
        "write /var/lib/docker/tmp/x: disk quota exceeded",
    ],
)
def test_a_full_disk_and_a_full_quota_are_told_from_an_index_without_the_wheel(line: str) -> None:
    """A home folder of a computing centre has a quota, and the disk below has terabytes free."""
    assert says_full(["Collecting a", line])
    assert isinstance(refusal("a==1", [line], "Set its index."), DiskError)


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
