"""Tests of the output of ``env``, which is also read by the programs it is written for, where they exist."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.client.commands.environment import library_path, lines
from tests.doubles.machine import Machine
from tests.doubles.release import write_release


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "home")
    index = write_release(tmp_path / "release")
    assert machine.run("install", "--index", str(index)) == 0, machine.err
    return machine


def test_an_index_that_is_none_is_nothing_to_env(machine: Machine) -> None:
    machine.env = {**machine.env, "ORTPACKS_INDEX": "http://["}
    assert machine.run("env") == 0, machine.err
    assert machine.run("list") == 2
    assert "http://[: not a URL" in machine.err
    assert machine.run("list", "--installed") == 0, machine.err


def test_systemd_quoting_is_that_of_its_manual() -> None:
    """systemd.syntax(7): C escapes inside double quotes; systemd.unit(5): ``%%`` is a per cent sign."""
    said = lines({"ORT_DYLIB_PATH": 'a "b" c\\d 100%'}, "systemd", "linux-x64")
    assert said[1] == r'Environment="ORT_DYLIB_PATH=a \"b\" c\\d 100%%"'


def test_systemd_itself_reads_it(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / "app.service"
    values = {"ORT_DYLIB_PATH": "/opt/a b/lib/libonnxruntime.so.1", "LD_LIBRARY_PATH": "/opt/a b/lib"}
    unit.write_text("\n".join([*lines(values, "systemd", "linux-x64"), "ExecStart=/bin/true", ""]))
    done = subprocess.run([verify, "verify", unit], capture_output=True, text=True, check=False)
    assert "Environment" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("shell", "platform", "said"),
    [
        ("cmd", "win-x64", 'set "PATH=C:\\a 100%%;%PATH%"'),
        ("powershell", "win-x64", "$env:PATH = 'C:\\a 100%' + $(if ($env:PATH) {';' + $env:PATH})"),
        ("fish", "linux-x64", "set -gx PATH 'C:\\\\a 100%'"),
        ("sh", "macos-arm64", "export PATH='C:\\a 100%'"),
    ],
)
def test_lists_keep_what_is_set_by_the_platform_s_separator(shell: str, platform: str, said: str) -> None:
    assert lines({"PATH": "C:\\a 100%"}, shell, platform) == [said]
    names = {"linux-x64": "LD_LIBRARY_PATH", "win-x64": "PATH", "macos-arm64": "DYLD_LIBRARY_PATH"}
    assert library_path(platform) == names[platform]


def test_a_package_that_runs_by_jit_gets_a_large_cache(machine: Machine) -> None:
    """4 GiB is the largest value that the driver accepts (CUDA C Programming Guide, environment variables).

    JSON has the package's folder alone: a program puts it before the value that it finds.
    """
    machine.env = {**machine.env, "LD_LIBRARY_PATH": "/mine"}
    path = machine.prefix / "current" / "gpu-package-info.json"
    info = json.loads(path.read_text())
    assert "CUDA_CACHE_MAXSIZE" not in machine.answer("env")["variables"]
    path.write_text(json.dumps({**info, "support": "jit", "cudaVisibleDevices": "GPU-1"}))
    variables = machine.answer("env")["variables"]
    assert variables["LD_LIBRARY_PATH"] == str(machine.lib)
    assert (variables["CUDA_CACHE_MAXSIZE"], variables["CUDA_VISIBLE_DEVICES"]) == ("4294967296", "GPU-1")
