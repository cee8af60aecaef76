"""Tests of the client's messages: what it says before it acts, and during work that takes time."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from builder.client import arguments, cli
from builder.client.__main__ import BROKEN_PIPE
from builder.errors import (
    CheckFailedError,
    ConfigError,
    DiskError,
    IntegrityError,
    LoadError,
    NoCompatiblePackageError,
    NothingToDoError,
    ToolMissingError,
    TransferError,
)
from builder.formats.text import amount
from tests.doubles.machine import Machine
from tests.doubles.release import name_of, serving


def changed(release: Path, variant: str, **keys: object) -> None:
    """Change ``keys`` of a variant's package in the index."""
    index = json.loads((release / "index.json").read_text())
    for package in index["packages"]:
        package.update(keys if package["variant"] == variant else {})
    (release / "index.json").write_text(json.dumps(index))


def test_what_was_chosen_and_why_is_said_before_the_question_and_the_download(
    machine: Machine, release: Path
) -> None:
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
    changed(release, "modern", capabilities={"8.6": "jit"})
    assert machine.run("select", "--index", str(release)) == 0
    assert "the first start takes minutes" in machine.out
    machine.env = {**machine.env, "ORTPACKS_FORCE_CC": "5.2"}
    assert machine.run("select", "--index", str(release)) == 0
    assert "the first start takes minutes" not in machine.out


def test_packages_for_other_systems_are_counted_and_not_listed(machine: Machine, release: Path) -> None:
    changed(release, "legacy", platform="win-x64")
    assert machine.run("select", "--index", str(release)) == 0
    assert name_of("legacy") not in machine.out
    assert "1 for other systems" in machine.out
    reasons = machine.answer("select", "--index", str(release))["reasons"]
    assert [one["package"] for one in reasons] == [name_of("legacy")], "a program is told all"


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 MiB"), (5 * 2**20, "5 MiB"), (2**30, "1.0 GiB"), (3_300_000_000, "3.1 GiB")]
)
def test_sizes_are_read_at_a_glance(size: int, said: str) -> None:
    assert amount(size) == said


def test_a_prefix_that_may_not_be_written_suggests_another(
    machine: Machine, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert machine.run("install", "--index", str(release)) == 11
    assert os.strerror(errno.EACCES) in machine.err
    assert "with --prefix" in machine.err


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["-h"], []])
def test_the_program_tells_its_version_and_its_use(machine: Machine, argv: list[str]) -> None:
    assert machine.run(*argv) == 0
    wanted = ["ortpacks 1.0.0 of no release, with Python 3."] if argv == ["--version"] else [
        "ortpacks.pyz install", 'eval "$(python3 ortpacks.pyz env)"'
    ]  # fmt: skip
    assert all(words in machine.out for words in wanted)


def test_help_is_one_screen_and_each_command_says_the_rest(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal has 80 columns and 24 rows, one for the prompt. Python 3.14 would colour the help."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert machine.run("--help") == 0
    lines = machine.out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in arguments.COMMANDS)
    assert all(arguments.parsed([name, "--quiet"]).quiet for name in arguments.COMMANDS)
    for argv in (["--reference"], *([name, "--help"] for name in arguments.COMMANDS)):
        assert machine.run(*argv) == 0
        lines = machine.out.splitlines()
        assert (len(lines) < 24, max(map(len, lines)) <= 80) == (True, True), machine.out
        assert "\x1b" not in machine.out
        assert "--reference" in machine.out or "exit codes:" in machine.out


def test_the_reference_names_every_exit_code_of_an_error_of_the_client(machine: Machine) -> None:
    assert machine.run("--reference") == 0
    kinds = (ConfigError, NothingToDoError, ToolMissingError, CheckFailedError, IntegrityError,
             NoCompatiblePackageError, TransferError, DiskError, LoadError)  # fmt: skip
    assert {0, cli.INTERRUPTED, BROKEN_PIPE, *(kind.exit_code for kind in kinds)} == set(arguments.EXIT_CODES)
    assert all(f"\n{code:>3}  {meaning}\n" in machine.out for code, meaning in arguments.EXIT_CODES.items())


@pytest.mark.parametrize(("platform", "start"), [("win-x64", "$env:"), ("linux-x64", "export ")])
def test_env_speaks_the_platforms_shell(machine: Machine, release: Path, platform: str, start: str) -> None:
    assert machine.run("install", "--index", str(release)) == 0
    machine.platform = platform
    assert machine.run("env") == 0, machine.err
    assert all(line.startswith(start) for line in machine.out.splitlines())
