"""Tests of detect's description of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.client.doctor.observations import System
from builder.client.probe.system import c_library, read_system
from builder.formats.package_names import MUSL

GROUP, MODEL = "proc/1/cgroup", "proc/device-tree/model"

SYSTEMS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, object]]] = {
    "a plain machine": ({"proc/sys/kernel/osrelease": "6.1.0-37-amd64\n", GROUP: "0::/init.scope\n"}, {}, {}),
    "WSL's kernel": (
        {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"},
        {},
        {"wsl": True},
    ),
    "WSL's GPU": ({"dev/dxg": ""}, {}, {"wsl": True}),
    "Docker": ({".dockerenv": ""}, {}, {"container": "docker"}),
    "Podman": ({"run/.containerenv": 'engine="podman-4.3.1"\n'}, {}, {"container": "podman"}),
    "Apptainer": ({".singularity.d": ""}, {}, {"container": "apptainer"}),
    "Docker's group": ({GROUP: "12:devices:/docker/0123456789abcdef\n"}, {}, {"container": "docker"}),
    "a pod's group": ({GROUP: "1:name=systemd:/kubepods/besteffort/pod12\n"}, {}, {"container": "kubepods"}),
    "no group": ({GROUP: "0::/\n"}, {}, {}),
    "Kubernetes": ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {"container": "kubernetes"}),
    "LXC": ({}, {"container": "lxc"}, {"container": "lxc"}),
    "a Jetson": ({MODEL: "NVIDIA Jetson AGX Orin\0"}, {}, {"jetson": "NVIDIA Jetson AGX Orin"}),
    "another board": ({MODEL: "Raspberry Pi 5 Model B Rev 1.0\0"}, {}, {}),
    "a Tegra": ({"etc/nv_tegra_release": "# R32 (release), REVISION: 7.1\n"}, {}, {"jetson": "Tegra"}),
    "what a container was given": (
        {},
        {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        {"nvidia_visible": "all", "nvidia_capabilities": "compute,utility"},
    ),
}
"""Files and variables, and what they tell."""


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_known_by_its_files_and_variables(tmp_path: Path, name: str) -> None:
    files, env, seen = SYSTEMS[name]
    put(tmp_path, files)
    wanted = System(os="linux", glibc="2.36", **seen)  # type: ignore[arg-type]
    assert read_system("linux", tmp_path, env, "glibc 2.36") == wanted


def test_musl_is_another_answer_than_a_c_library_that_is_not_known(tmp_path: Path) -> None:
    assert read_system("linux", tmp_path, {}, "").glibc is None
    put(tmp_path, {"lib/ld-musl-x86_64.so.1": ""})
    assert read_system("linux", tmp_path, {}, "").glibc == MUSL


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_linux_files_are_not_looked_for_elsewhere(tmp_path: Path, system: str) -> None:
    put(tmp_path, {".dockerenv": "", "dev/dxg": ""})
    assert read_system(system, tmp_path, {}, "") == System(os=system)


def test_this_c_library_says_its_version_as_ldd_does() -> None:
    name, _, version = c_library().partition(" ")
    assert name in {"glibc", ""}
    assert version.replace(".", "").isdecimal() or not name
