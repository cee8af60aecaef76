"""Tests of the client with bad streams and surroundings: closed, full, of another encoding, not permitted."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from builder.client.commands.environment import lines
from builder.client.output import Output
from builder.errors import ValidationError
from tests.doubles.gpus import program
from tests.doubles.hostile import says
from tests.doubles.machine import Machine
from tests.doubles.release import serving, write_release

GPU = {"ORTPACKS_FORCE_CC": "8.6", "ORTPACKS_FORCE_DRIVER": "570.133.07"}

NOBODY = 65534
"""Number of a user without access to root's folders."""


def run(
    argv: Sequence[str | Path], env: Mapping[str, str], *, streams: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run the client; ``streams`` holds the redirections of a shell command line."""
    words = [sys.executable, "-S", *map(str, argv)]
    line = ["sh", "-c", f'exec "$@" {streams}', "sh", *words] if streams else words
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env}
    return subprocess.run(line, env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("command", [["--help"], ["detect"], ["env"], ["doctor"]])
def test_a_home_and_a_python_path_that_may_not_be_looked_at(
    pyz: Path, tmp_path: Path, command: list[str]
) -> None:
    """In a container started with ``--user``, HOME may be root's folder, which the user cannot read."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    for folder in pyz.parents:  # pytest's own folders are closed to other users
        if folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o755)
    done = subprocess.run(
        ["/usr/bin/python3", pyz, *command],
        env={"PATH": "/usr/bin:/bin", "HOME": str(closed), "PYTHONPATH": str(closed / "inside"), **GPU},
        user=NOBODY,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == {"env": 11, "doctor": 6}.get(command[0], 0), done.stderr
    assert ("Permission denied" in done.stdout + done.stderr) == (command[0] in {"env", "doctor"})


@pytest.mark.parametrize("name", ["Jos\N{LATIN SMALL LETTER E WITH ACUTE}", "\udce9", "\N{SNOWMAN}"])
def test_a_path_keeps_its_bytes_whatever_the_encoding_is(pyz: Path, tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path / name)
    assert machine.run("install", "--index", str(write_release(tmp_path / "release"))) == 0, machine.err
    lib = os.fsencode(machine.lib)
    assert os.fsencode(machine.answer("env")["variables"]["LD_LIBRARY_PATH"]) == lib
    for encoding in ("ascii", "cp1252", "utf-8"):
        env = {**GPU, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}
        said = run([pyz, "env", "--prefix", machine.prefix], env).stdout
        told = subprocess.run(["sh", "-c", said + b'\nprintf %s "$LD_LIBRARY_PATH"'], capture_output=True)  # noqa: PLW1510
        assert told.stdout == lib


def test_powershell_is_told_letters_by_their_numbers() -> None:
    """The numbers are UTF-16 for ``[char]``: the code pages of PowerShell and Python differ on Windows."""
    said = lines({"X": "C:\\Jos\N{LATIN SMALL LETTER E WITH ACUTE}"}, "powershell", "win-x64")
    assert said == ["$env:X = (-join [char[]](67,58,92,74,111,115,233))"]


@pytest.mark.parametrize(
    ("shell", "platform", "value"),
    [
        ("cmd", "win-x64", "C:\\\N{SNOWMAN}"),
        ("sh", "win-x64", "\N{SNOWMAN}"),
        ("systemd", "linux-x64", "\udce9"),
    ],
)
def test_a_shell_that_would_read_another_path_is_told_none(shell: str, platform: str, value: str) -> None:
    with pytest.raises(ValidationError, match="plain ASCII"):
        lines({"X": value}, shell, platform)


def test_nothing_that_others_write_steers_the_terminal(pyz: Path, tmp_path: Path) -> None:
    index = write_release(tmp_path / "release")
    told = json.loads(index.read_text())
    told["tag"] = "\x1b[31m\x9b2Jt"
    for package in told["packages"]:
        package["name"] = "\x1b]0;mine\x07\u202e"
    index.write_text(json.dumps(told))
    smi = program(tmp_path / "bin", r"printf '0, GPU-1, \033[2JRTX\n'")
    env = {"PATH": f"{Path(smi).parent}:/usr/bin:/bin", "XDG_DATA_HOME": str(tmp_path / "data")}
    with serving(index.parent) as server:
        server.faults.append(says(b"HTTP/1.1 410 \x1b[2Jgone\r\n\r\n"))
        said = [
            run([pyz, "install", "--index", f"{server.url}/"], {**GPU, **env}),
            run([pyz, "list", "--index", index], {**GPU, **env}),
            run([pyz, "select", "--index", index], {**GPU, **env}),
            run([pyz, "detect"], env),
        ]
    everything = b"".join(done.stdout + done.stderr for done in said)
    assert b"\\x1b[2JRTX" in said[-1].stdout
    assert b"\\x1b[2Jgone" in said[0].stderr
    assert not {0x1B, 0x07} & set(everything)
    assert not set(everything.decode()) & {"\x9b", "\u202e"}


@pytest.mark.parametrize("command", [["--help"], ["detect"], ["verify", "--json"]])
@pytest.mark.parametrize("streams", [">/dev/full", ">&-"])
def test_an_answer_that_cannot_be_written_is_said(pyz: Path, command: list[str], streams: str) -> None:
    done = run([pyz, *command], GPU, streams=streams)
    assert (done.returncode, b"Traceback" in done.stderr) == (11, False), done.stderr
    assert b"ortpacks: the answer cannot be written: " in done.stderr


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "<&-", "<&- 2>&-"])
def test_nobody_to_be_told_is_no_failure(pyz: Path, tmp_path: Path, streams: str) -> None:
    index = write_release(tmp_path / "release")
    data = {**GPU, "XDG_DATA_HOME": str(tmp_path)}
    done = run([pyz, "install", "--index", index], data, streams=streams)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert run([pyz, "select"], data, streams=streams).returncode == 2


def test_what_was_installed_stays_where_that_cannot_be_told(pyz: Path, tmp_path: Path) -> None:
    index = write_release(tmp_path / "release")
    data = {**GPU, "XDG_DATA_HOME": str(tmp_path)}
    assert run([pyz, "install", "--index", index], data, streams=">/dev/full").returncode == 11
    assert run([pyz, "verify"], data).returncode == 0


def test_what_is_said_stands_below_the_progress() -> None:
    stream = io.StringIO()
    output = Output(None, stream)
    for line in ("\r10 %", "\r20 %"):
        output.move(line)
    output.say("it broke off; trying again")
    output.say("it broke off again")
    output.move("\r100 %\n")
    output.say("done")
    assert stream.getvalue() == (
        "\r10 %\r20 %\nit broke off; trying again\nit broke off again\n\r100 %\ndone\n"
    )


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_system_that_gives_no_more_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A container's limit of processes counts threads too."""
    index = write_release(tmp_path / "release")
    machine = Machine(tmp_path / "home")

    def refuse(thread: threading.Thread) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert machine.run("install", "--index", str(index)) == 11
    assert "no more memory or threads" in machine.err
    assert machine.litter() == []
    assert machine.run("install", "--index", str(index)) == 0, machine.err


def test_what_is_said_has_no_login() -> None:
    stderr = io.StringIO()
    Output(None, stderr).say("from https://user:s3cret@host/x?sig=s3cret or https://USER:PASSWORD@HOST")
    assert stderr.getvalue() == "from https://…@host/x?sig=… or https://USER:PASSWORD@HOST\n"
