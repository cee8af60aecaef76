"""Tests of signals: the client ends together with pip, which runs in its own session."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doubles.release import write_release
from tests.doubles.wheels import WHEELS


def fetching(folder: Path) -> list[int]:
    """Return the ids of pip's processes, whose argument ``--dest`` is a path below ``folder``."""
    wanted = os.fsencode(f"--dest={folder}")
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if wanted in text(path)]


def text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def until(seconds: float, there: bool, folder: Path) -> bool:
    """Wait up to ``seconds`` until a process fetches into ``folder``, or none if not ``there``;
    return success."""
    end = time.monotonic() + seconds
    while bool(fetching(folder)) != there and time.monotonic() < end:
        time.sleep(0.05)
    return bool(fetching(folder)) == there


@pytest.mark.parametrize(
    ("number", "code"), [("SIGTERM", 130), ("SIGHUP", 130), ("SIGINT", 130), ("SIGKILL", -9)]
)
def test_pip_ends_with_the_client(pyz: Path, tmp_path: Path, number: str, code: int) -> None:
    index = write_release(tmp_path / "release", layouts=("thin",), wheels=WHEELS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "ORTPACKS_FORCE_CC": "8.6",
            "PIP_INDEX_URL": url,
        }
        argv = [sys.executable, "-I", "-S", str(pyz), "install", "--index", str(index)]
        with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as client:
            assert until(30, there=True, folder=tmp_path), "else this tests nothing"
            client.send_signal(getattr(signal, number))
            said = client.communicate(timeout=30)[1]
        assert until(5, there=False, folder=tmp_path), "pip goes on alone"
    assert client.returncode == code
    assert "Traceback" not in said


def test_a_hangup_that_is_ignored_ends_nothing(pyz: Path, tmp_path: Path) -> None:
    """nohup ignores the signal in the same way."""
    index = write_release(tmp_path / "release")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ORTPACKS_FORCE_CC": "8.6"}
    line = 'trap "" HUP; (sleep 0.02; kill -HUP $$) & exec "$@"'
    argv = ["sh", "-c", line, "sh", sys.executable, "-I", "-S", str(pyz), "install", "--index", str(index)]
    assert subprocess.run(argv, env=env, check=False, capture_output=True).returncode == 0
