"""Tests of the client's messages: before it acts, during work that takes time, and with bad streams."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from http.client import HTTPMessage, HTTPResponse
from pathlib import Path
from typing import cast
from unittest.mock import Mock
from urllib.response import addinfourl

import pytest

from builder import errors
from builder.client import arguments, cli
from builder.client.__main__ import BROKEN_PIPE
from builder.client.commands.environment import lines
from builder.client.output import Meter, Output, duration, progress_line
from builder.files.download import WantedFile, fetch
from builder.files.http_client import Web
from tests.doubles.machine import Machine
from tests.doubles.release import change_index, name_of, serving, write_release


def test_what_was_chosen_and_why_is_said_before_the_question(machine: Machine, release: Path) -> None:
    machine.says = [False]
    with serving(release) as server:
        assert machine.run("install", "--index", f"{server.url}/") == 3
        assert [path for path, _ in server.requests] == ["/index.json"]
    assert f"{name_of('modern')} has native code for" in machine.err
    assert f"  not {name_of('legacy')}: it holds no code for compute capability 8.6" in machine.err
    assert machine.asked[0].endswith("MiB on the disk)? [Y/n]")


def test_what_takes_its_time_is_said(machine: Machine, release: Path) -> None:
    assert machine.run("install", "--index", str(release)) == 0
    told = [line.partition(" ")[0] for line in machine.err.splitlines()]
    assert told == [name_of("modern"), "", "Unpacking", "Trying"]


@pytest.mark.parametrize("flag", ["--quiet", "-q"])
def test_quiet_leaves_the_answer_and_the_errors(machine: Machine, release: Path, flag: str) -> None:
    with serving(release) as server:
        server.faults.append(lambda handler, content: handler.answer(503, b""))
        assert machine.run("install", "--index", f"{server.url}/", flag) == 0
        assert (machine.err, "Installed: " in machine.out) == ("", True)
    assert machine.run("install", "--index", "/no/such", flag) == 10
    assert "No such file" in machine.err


def test_a_first_start_that_takes_minutes_is_told(machine: Machine, release: Path) -> None:
    """Packages for other systems are counted and not listed; a program is told all."""
    change_index(release, "modern", capabilities={"8.6": "jit"})
    change_index(release, "legacy", platform="win-x64")
    assert machine.run("select", "--index", str(release)) == 0
    assert "the first start takes minutes" in machine.out
    assert ("1 for other systems" in machine.out, name_of("legacy") in machine.out) == (True, False)
    reasons = machine.answer("select", "--index", str(release))["reasons"]
    assert [one["package"] for one in reasons] == [name_of("legacy")]
    change_index(release, "legacy", platform="linux-x64")
    machine.env = {**machine.env, "ORTPACKS_FORCE_CC": "5.2"}
    assert machine.run("select", "--index", str(release)) == 0
    assert "the first start takes minutes" not in machine.out


def test_help_is_one_screen_for_each_command(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal has 80 columns and 24 rows, one for the prompt. Python 3.14 would colour the help."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert machine.run("--version") == 0
    assert "ortpacks 1.0.0 of no release, with Python 3." in machine.out
    for argv in (["--help"], ["-h"], []):
        assert machine.run(*argv) == 0
        assert all(f"\n  {name} " in machine.out for name in arguments.COMMANDS)
        assert 'eval "$(ortpacks env)"' in machine.out
    assert all(arguments.parsed([name, "--quiet"]).quiet for name in arguments.COMMANDS)
    for argv in ([], ["--reference"], *([name, "--help"] for name in arguments.COMMANDS)):
        assert machine.run(*argv) == 0
        lines = machine.out.splitlines()
        assert (len(lines) < 24, max(map(len, lines)) <= 80) == (True, True), machine.out
        assert "\x1b" not in machine.out
        assert not argv or "--reference" in machine.out or "exit codes:" in machine.out


def test_the_reference_names_every_exit_code_of_an_error_of_the_client(machine: Machine) -> None:
    assert machine.run("--reference") == 0
    kinds = (errors.ConfigError, errors.NothingToDoError, errors.ToolMissingError, errors.CheckFailedError,
             errors.IntegrityError, errors.NoCompatiblePackageError, errors.TransferError, errors.DiskError,
             errors.LoadError)  # fmt: skip
    assert {0, cli.INTERRUPTED, BROKEN_PIPE, *(kind.exit_code for kind in kinds)} == set(arguments.EXIT_CODES)
    assert all(f"\n{code:>3}  {meaning}\n" in machine.out for code, meaning in arguments.EXIT_CODES.items())


@pytest.mark.parametrize(("platform", "start"), [("win-x64", "$env:"), ("linux-x64", "export ")])
def test_env_speaks_the_platforms_shell(machine: Machine, release: Path, platform: str, start: str) -> None:
    assert machine.run("install", "--index", str(release)) == 0
    machine.platform = platform
    assert machine.run("env") == 0, machine.err
    assert all(line.startswith(start) for line in machine.out.splitlines())


MIB = 2**20


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (4800, "1 h 20 min")],
)
def test_durations_are_read_at_a_glance(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("done", "since", "seconds", "line"),
    [
        (60, 60, 30, " 60 % of 100.0 MiB, 2.0 MiB/s, 20 s left"),  # the other 40 MiB take 20 s
        (60, 10, 10, " 60 % of 100.0 MiB, 1.0 MiB/s, 40 s left"),  # 50 MiB were there before
        (100, 100, 50, "100 % of 100.0 MiB, 2.0 MiB/s in 50 s"),
        (1, 1, 1, "  1 % of 100.0 MiB"),  # no rate before it has settled
    ],
)
def test_rate_and_time_left_by_hand(done: int, since: int, seconds: int, line: str) -> None:
    assert progress_line(done * MIB, 100 * MIB, since * MIB, seconds) == line


def test_a_download_of_unknown_size_has_no_percentage_and_ends_its_line(tmp_path: Path) -> None:
    """A server that sends chunks gives no length, and an unsigned release no size of its client."""
    assert progress_line(60 * MIB, 0, 60 * MIB, 30) == "60.0 MiB, 2.0 MiB/s in 30 s"
    written: list[str] = []
    body = cast("HTTPResponse", addinfourl(io.BytesIO(b"x" * MIB), HTTPMessage(), "", 200))
    meter = Meter(written.append, lambda: 0.0, lambda: 80)
    web = Web(open=lambda url, headers: body, sleep=lambda seconds: None, progress=meter)
    fetch(WantedFile("http://mirror/ortpacks.pyz"), tmp_path / "part", web)
    assert written[0].strip() == "0.1 MiB", "the first 128 KiB"
    assert written[-1].strip(" \r") == "100 % of 1.0 MiB".ljust(79) + "\n"


def metered(*steps: tuple[float, int, int], columns: int = 80) -> list[str]:
    """Return what is written at these seconds, at which so many MiB are here of so many in all."""
    written, now = list[str](), [0.0]
    meter = Meter(written.append, lambda: now[0], lambda: columns)
    for now[0], done, size in steps:
        meter(done * MIB, size * MIB)
    return written


def test_a_line_five_times_a_second_at_most_and_always_the_last() -> None:
    written = metered(*((done / 100, done + 1, 100) for done in range(100)))
    assert len(written) == 6, "at 0.0, 0.2, 0.4, 0.6 and 0.8 s, and at the end"
    assert written[-1].startswith("\r100 %")
    assert written[-1].endswith("\n")


def test_an_answer_fits_the_terminal_and_a_script_s_is_as_it_is(machine: Machine) -> None:
    machine.run("doctor", "--said", "GPU is lost")
    piped = machine.out
    machine.columns = 60
    machine.run("doctor", "--said", "GPU is lost")
    assert machine.out.split() == piped.split()
    assert "power, heat, a bad slot" in piped
    assert "power, heat, a bad\n    slot" in machine.out
    machine.run("doctor", "--said", "GPU is lost", "--json")
    assert len(machine.out.splitlines()) == len(json.dumps(json.loads(machine.out), indent=2).splitlines())


@pytest.mark.parametrize("columns", [0, 20, 300])
def test_a_line_is_as_wide_as_the_terminal(columns: int) -> None:
    """A wider line would wrap, and each update would start a new line."""
    (line,) = metered((0.0, 1, 3000), columns=columns)
    assert len(line) == len("\r") + max(columns - 1, 1)
    assert "\r  0 % of 2.93 GiB".startswith(line.rstrip())


def test_the_next_file_begins_anew() -> None:
    assert "1.0 MiB/s, 9 s left" in metered((0.0, 10, 10), (1000.0, 1, 20), (1010.0, 11, 20))[-1]


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
def test_a_home_that_may_not_be_looked_at(pyz: Path, tmp_path: Path, command: list[str]) -> None:
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


@pytest.mark.parametrize("name", ["Jos\N{LATIN SMALL LETTER E WITH ACUTE}", "\udce9", "pre fix's"])
def test_a_path_keeps_its_bytes_whatever_the_encoding_is(pyz: Path, tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path / name)
    assert machine.run("install", "--index", str(write_release(tmp_path / "release"))) == 0, machine.err
    lib = os.fsencode(machine.lib)
    assert os.fsencode(machine.answer("env")["variables"]["LD_LIBRARY_PATH"]) == lib
    for encoding in ("ascii", "cp1252", "utf-8"):
        env = {**GPU, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"}
        said = run([pyz, "env", "--prefix", machine.prefix], env).stdout
        line: list[str | bytes] = ["sh", "-c", said + b'\nprintf %s "$LD_LIBRARY_PATH"']
        told = subprocess.run(line, env={"LD_LIBRARY_PATH": "/mine"}, capture_output=True, check=True)
        assert told.stdout == lib + b":/mine"


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
    with pytest.raises(errors.ValidationError, match="plain ASCII"):
        lines({"X": value}, shell, platform)


@pytest.mark.parametrize("words", ["--help", "detect", "verify --json", "install --index release"])
@pytest.mark.parametrize("streams", [">/dev/full", ">&-"])
def test_an_unwritable_answer_is_said(pyz: Path, tmp_path: Path, words: str, streams: str) -> None:
    index = str(write_release(tmp_path / "release"))
    command = words.replace("release", index).split()
    env = {**GPU, "XDG_DATA_HOME": str(tmp_path)}
    done = run([pyz, *command], env, streams=streams)
    assert (done.returncode, b"Traceback" in done.stderr) == (11, False), done.stderr
    assert b"ortpacks: the answer cannot be written: " in done.stderr
    assert "install" not in command or run([pyz, "verify"], env).returncode == 0, "what was installed stays"


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "<&-", "<&- 2>&-"])
def test_nobody_to_be_told_is_no_failure(pyz: Path, tmp_path: Path, streams: str) -> None:
    index = write_release(tmp_path / "release")
    data = {**GPU, "XDG_DATA_HOME": str(tmp_path)}
    done = run([pyz, "install", "--index", index], data, streams=streams)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert run([pyz, "select"], data, streams=streams).returncode == 2


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
def test_a_full_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A container's limit of processes counts threads too."""
    index = write_release(tmp_path / "release")
    machine = Machine(tmp_path / "home")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=error))
        assert machine.run("install", "--index", str(index)) == 11
    assert "no more memory or threads" in machine.err
    assert machine.litter() == []
    assert machine.run("install", "--index", str(index)) == 0, machine.err


def test_what_is_said_has_no_login() -> None:
    stderr = io.StringIO()
    Output(None, stderr).say("from https://user:s3cret@host/x?sig=s3cret or https://USER:PASSWORD@HOST")
    assert stderr.getvalue() == "from https://…@host/x?sig=… or https://USER:PASSWORD@HOST\n"
