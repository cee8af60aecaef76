"""Tests of doctor in recorded places: trees of /proc, /sys and /dev in ``tests/data/places``, and what the
driver's libraries answer there. Each tree names the public source of what is in it."""

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.client.commands.doctor import answer_doctor
from builder.client.install.prefix import Prefix
from builder.client.probe.processes import ProcessAnswer
from builder.client.probe.system import read_kernel, read_system
from tests.doubles.gpus import machine
from tests.doubles.machine import Machine
from tests.support import ROOT
from tests.support.messages import Told

PLACES = sorted((ROOT / "tests/data/places").glob("*.json"))


def grow(root: Path, recorded: dict[str, Any]) -> None:
    """Write the tree of a place. A path with a colon is a PCI address."""
    for name, text in recorded["files"].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in recorded["links"].items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / target).touch()
        (root / name).symlink_to(os.path.relpath(root / target, (root / name).parent))


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.stem)
def test_the_first_advice_fits_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Told, path: Path
) -> None:
    recorded = json.loads(path.read_text())
    root = tmp_path / "root"
    grow(root, recorded)
    denied = {
        **dict.fromkeys(map(root.joinpath, recorded["refused"]), errno.EPERM),
        **dict.fromkeys(map(root.joinpath, recorded["forbidden"]), errno.EACCES),
    }
    real, may = os.open, os.access

    def opened(path: Path, *arguments: int, **more: int) -> int:
        if path in denied:
            raise OSError(denied[path], os.strerror(denied[path]))
        return real(path, *arguments, **more)

    def ask(argv: Sequence[str], seconds: float) -> ProcessAnswer:
        for name, key in (("NVML", "nvml"), ("libcuda", "cuda")):
            if name in argv:
                return ProcessAnswer(0, json.dumps(recorded[key]), "")
        raise FileNotFoundError(argv[0])

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "access", lambda path, mode: path not in denied and may(path, mode))
    home = Machine(tmp_path / "home", platform="linux-x64")
    around = replace(machine(root, env=recorded["env"]), ask=ask)
    context = replace(home.context(), surroundings=lambda: around)
    answer = answer_doctor(context, Prefix(home.prefix))
    assert answer.value["place"] == recorded["place"]
    findings = answer.value["findings"]
    assert isinstance(findings, list)
    assert findings[0]["code"] == recorded["code"], [finding["code"] for finding in findings]
    assert recorded["do"] in findings[0]["do"]
    told("\n".join(answer.lines[:3]))


READ = (
    *("proc/self/mountinfo", "proc/self/cgroup", "proc/1/cgroup", "proc/1/environ", "proc/cpuinfo"),
    *("proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0/information", "run/systemd/container"),
    *("sys/bus/pci/devices/0/vendor", "sys/class/dmi/id/sys_vendor", "proc/sys/kernel/osrelease"),
)


@pytest.mark.parametrize("odd", [bytes(range(256)) * 9, b"", b" - \n" * 9, b"9" * (9 << 20), None])
def test_an_odd_tree_is_a_machine_of_which_little_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: bytes | None
) -> None:
    """Binary, empty, cut and huge files, folders in their places (``None``), and a folder without search."""
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if odd is None else (tmp_path / name).write_bytes(odd)
    may = Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name in ("kubernetes.io", ".lxc", "nvidiactl"):
            raise PermissionError(errno.EACCES, "no search", str(path))
        return may(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    assert read_system("linux", tmp_path, {}, "glibc 2.36").place in ("bare", "vm")
    assert (read_kernel(tmp_path).cards, read_kernel(tmp_path).open_module) == ((), None)


def test_every_place_has_an_advice_of_its_own() -> None:
    recorded = [json.loads(path.read_text()) for path in PLACES]
    assert {one["place"] for one in recorded} >= {
        *("bare", "vm", "vgpu", "docker", "apptainer", "kubernetes", "lxc", "sandbox", "wsl", "wsl-container")
    }
    assert all(one["source"] for one in recorded)
