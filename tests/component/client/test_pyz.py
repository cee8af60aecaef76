"""Tests of the one file: two builds are equal, it runs without site-packages, and its JSON fits
the schema."""

import ast
import json
import os
import pty
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from builder.client.arguments import COMMANDS
from builder.io.archive.client_zipapp import build_client
from tests.doubles.machine import Machine
from tests.doubles.release import write_release
from tests.support import ROOT
from tests.support.schemas import schema
from tests.support.tables import table


def test_the_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    again = build_client(ROOT, tmp_path / "ortpacks.pyz", None)
    assert again.read_bytes() == pyz.read_bytes()
    assert again.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert os.access(again, os.X_OK)
    assert [path.name for path in tmp_path.iterdir()] == ["ortpacks.pyz"]


def test_it_holds_what_it_imports_and_nothing_of_the_builder(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()
        assert archive.testzip() is None, "its checksums are wrong"
    assert pyz.stat().st_size <= 300_000
    assert names == sorted(names)
    assert {"__main__.py", "builder/errors.py", "builder/client/probe/driver_calls.py"} <= set(names)
    assert not [name for name in names if "stages" in name or "adapters" in name or "fatbin" in name]


@pytest.mark.parametrize(
    ("module", "verb"), [("shutil", "detect"), ("gzip", "verify"), ("tarfile", "verify")]
)
def test_a_python_without_all_of_its_standard_library_is_told(pyz: Path, module: str, verb: str) -> None:
    """Debian's python3-minimal has no shutil; a module that only a verb imports may be missing too."""
    run = "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    program = f"import runpy, sys; sys.modules[{module!r}] = None; {run}"
    argv = [sys.executable, "-I", "-S", "-c", program, str(pyz), verb]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"ortpacks: this Python lacks the module {module} of its standard library. "
        "Install python3; python3-minimal is not enough.\n"
    )


@pytest.mark.parametrize(("code", "argv", "words"), table("client/refused.txt"))
def test_a_failure_is_told(machine: Machine, release: Path, code: str, argv: str, words: str) -> None:
    places = {"RELEASE": str(release), "LONG": "x" * 300, "EMPTY": ""}
    given = [places.get(word, word.replace("\\n", "\n")) for word in argv.split()]
    assert machine.run(*given, "--json") == int(code), machine.err
    answer = json.loads(machine.out)
    schema("client").validate(answer)
    command = given[0] if given and given[0] in COMMANDS else ""
    assert (answer["command"], answer["error"]["code"]) == (command, int(code))
    assert words in answer["error"]["message"]
    assert answer["error"]["message"] in machine.err


def test_a_reader_that_goes_away_is_no_traceback(pyz: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-I", "-S", str(pyz), "detect"]
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 3), (b"\n", 0), (b"\x04", 3)])
def test_it_asks_at_a_terminal(pyz: Path, tmp_path: Path, typed: bytes, code: int) -> None:
    index = write_release(tmp_path / "release")
    keyboard, terminal = pty.openpty()
    env = {"PATH": "/usr/bin:/bin", "ORTPACKS_FORCE_CC": "8.6", "XDG_DATA_HOME": str(tmp_path / "data")}
    argv: list[str | Path] = [sys.executable, "-I", "-S", pyz, "install", "--index", index]
    os.write(keyboard, typed)
    try:
        done = subprocess.run(argv, stdin=terminal, env=env, capture_output=True, text=True, check=False)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == code, done.stderr
    assert "Install ortpacks-modern" in done.stderr
    assert "] ortpacks:" not in done.stderr or typed == b"n\n", "Ctrl-D ends no line by itself"
    assert (tmp_path / "data" / "ortpacks" / "current").exists() == (code == 0)


def test_its_sources_are_python_3_9(pyz: Path) -> None:
    """Every module must parse with the grammar of 3.9, whatever Python runs the tests."""
    with zipfile.ZipFile(pyz) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                ast.parse(archive.read(name), name, feature_version=(3, 9))


@pytest.mark.parametrize(
    ("command", "code", "unwanted"),
    [
        ("detect", 0, ("selection", "index", "manifest")),
        ("env", 3, ("selection", "probe", "http_client", "ssl")),
        ("select", 2, ("unpack", "decompression", "tarfile")),
        ("verify", 3, ("selection", "detect", "http_client")),
    ],
)
def test_each_imports_what_it_needs(pyz: Path, command: str, code: int, unwanted: tuple[str, ...]) -> None:
    argv = [sys.executable, "-I", "-S", "-X", "importtime", str(pyz), command]
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "ORTPACKS_FORCE_CC": "8.6"}
    done = subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, check=False)
    imported = {word for line in done.stderr.splitlines() for word in line.split()[-1].split(".")}
    assert done.returncode == code, done.stderr
    assert "cli" in imported
    assert not imported.intersection(unwanted)
