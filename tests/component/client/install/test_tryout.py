"""Tests of loading a package before it is used: one that does not load here does not replace the
one in use."""

from pathlib import Path

import pytest

from tests.doubles.library import APPEND_CUDA, library
from tests.doubles.machine import Machine
from tests.doubles.release import FILES, HOST, write_release

NO_CUFFT = (
    "Failed to load library libonnxruntime_providers_cuda.so with error: libcufft.so.11: cannot open shared "
    "object file: No such file or directory"
)


PROVIDER = "onnxruntime_providers_cuda.dll"


def script(folder: Path, text: str) -> str:
    """Write a program in the place of a Python and return its path."""
    (folder / "python").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "python").chmod(0o755)
    return str(folder / "python")


def release(folder: Path, host: bytes, version: str = "1.23.2") -> str:
    return str(write_release(folder, version=version, files={**FILES, HOST: host}))


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (library("1.23.2", needs_glibc="9.99"), "needs GLIBC_9.99 or newer. Update the system."),
        (b"<html>", "do not load on this machine"),
        (library("1.22.0"), "it is version 1.22.0, the manifest says 1.23.2"),
        (library("1.23.2", refuses=[APPEND_CUDA], why=NO_CUFFT), "package that has libcufft.so.11."),
        (library("1.23.2", crashes=[APPEND_CUDA]), "the process died of SIGILL"),
    ],
    ids=["newer glibc", "no library", "another version", "a library is missing", "it crashes"],
)
def test_what_fails_changes_nothing(machine: Machine, tmp_path: Path, host: bytes, words: str) -> None:
    old = release(tmp_path / "old", library("1.22.0"), "1.22.0")
    assert machine.run("install", "--index", old) == 0, machine.err
    before = (machine.prefix / "current").resolve()
    assert machine.run("install", "--index", release(tmp_path / "new", host)) == 12, machine.err
    assert words in machine.err
    assert "What was installed before is unchanged." in machine.err
    assert (machine.prefix / "current").resolve() == before
    assert list((machine.prefix / "versions").iterdir()) == [before]
    assert [path for path in machine.litter() if not path.endswith(".part")] == []
    assert machine.run("verify") == 0


def test_a_file_system_that_runs_nothing_is_told_of(machine: Machine, tmp_path: Path) -> None:
    """glibc's message on a file system that is mounted with ``noexec``."""
    said = '{"failed": "lib/libonnxruntime.so.1: failed to map segment from shared object"}'
    machine.python = script(tmp_path, f"echo '{said}'")
    assert machine.run("install", "--index", release(tmp_path / "release", FILES[HOST])) == 12
    assert "noexec: choose another place with --prefix." in machine.err


@pytest.mark.parametrize(
    "said",
    [
        # platform/windows/env.cc of 1.21.0; output of 1.23.2
        'LoadLibrary failed with error 126 "The specified module could not be found.',
        f'Error loading "C:\\lib\\{PROVIDER}" which depends on "cufft64_11.dll" which is missing. (Error 126',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_windows_loader_is_heard(machine: Machine, tmp_path: Path, said: str, encoding: str) -> None:
    log = f"\x1b[1;31m2026-11-24 [E:onnxruntime:ortpacks, provider_bridge_ort.cc:2002 x] {said}\n\x1b[m\n"
    (tmp_path / "log").write_bytes(log.encode(encoding))
    answer = '{"failed": "OrtSessionOptionsAppendExecutionProvider_Cuda: Failed to load shared library"}'
    machine.python = script(tmp_path, f"cat {tmp_path}/log >&2\necho '{answer}'")
    assert machine.run("install", "--index", release(tmp_path / "release", FILES[HOST])) == 12
    assert said.rstrip(".") in machine.err
    assert "Visual C++ Redistributable (x64)" in machine.err


def test_what_no_longer_loads_is_not_taken_for_installed(machine: Machine, tmp_path: Path) -> None:
    """The package is the same and the system has changed: a child process dies."""
    index = release(tmp_path / "release", FILES[HOST])
    assert machine.run("install", "--index", index) == 0
    assert "Its libraries load here: ONNX Runtime 1.23.2." in machine.out
    machine.python = script(tmp_path, "kill -SEGV $$")
    assert machine.run("install", "--index", index) == 12
    assert "the process died of SIGSEGV" in machine.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be started"),
        ("echo \"ModuleNotFoundError: No module named '_ctypes'\" >&2; exit 1", "has no ctypes"),
    ],
)
def test_an_untried_install_stands(machine: Machine, tmp_path: Path, text: str | None, words: str) -> None:
    machine.python = script(tmp_path, text) if text else str(tmp_path / "python")
    assert machine.run("install", "--index", release(tmp_path / "release", FILES[HOST])) == 0, machine.err
    assert f"Not tried out: {'this Python' if text else machine.python} {words}" in machine.out
    assert machine.run("verify") == 0
