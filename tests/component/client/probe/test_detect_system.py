"""Tests of detect's description of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.client.doctor.observations import System
from builder.client.probe.system import c_library, read_system
from builder.formats.package_names import MUSL


def seen(root: Path, libc: str = "glibc 2.36", **env: str) -> System:
    return read_system("linux", root, env, libc)


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_plain_machine_has_nothing_special(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", "6.1.0-37-amd64\n")
    put(tmp_path, "proc/1/cgroup", "0::/init.scope\n")
    assert seen(tmp_path) == System(os="linux", glibc="2.36")


@pytest.mark.parametrize(
    ("name", "text"),
    [("proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n"), ("dev/dxg", "")],
)
def test_wsl_is_known_by_its_kernel_or_its_gpu_device(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path, name, text)
    assert seen(tmp_path).wsl


@pytest.mark.parametrize(
    ("name", "text", "container"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", 'engine="podman-4.3.1"\n', "podman"),
        (".singularity.d", "", "apptainer"),
        ("proc/1/cgroup", "12:devices:/docker/0123456789abcdef\n", "docker"),
        ("proc/1/cgroup", "1:name=systemd:/kubepods/besteffort/pod12\n", "kubepods"),
        ("proc/1/cgroup", "0::/\n", None),
    ],
)
def test_a_container_is_known_by_what_its_maker_leaves(
    tmp_path: Path, name: str, text: str, container: str | None
) -> None:
    put(tmp_path, name, text)
    assert seen(tmp_path).container == container


@pytest.mark.parametrize(
    ("env", "container"),
    [({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"), ({"container": "lxc"}, "lxc")],
)
def test_a_container_is_known_by_its_environment(tmp_path: Path, env: dict[str, str], container: str) -> None:
    assert seen(tmp_path, **env).container == container


def test_a_jetson_is_known_by_its_model_or_its_release(tmp_path: Path) -> None:
    put(tmp_path, "proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    assert seen(tmp_path).jetson == "NVIDIA Jetson AGX Orin Developer Kit"
    put(tmp_path, "proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0")
    assert seen(tmp_path).jetson is None
    put(tmp_path, "etc/nv_tegra_release", "# R32 (release), REVISION: 7.1\n")
    (tmp_path / "proc/device-tree/model").unlink()
    assert seen(tmp_path).jetson == "Tegra"


def test_musl_is_another_answer_than_a_c_library_that_is_not_known(tmp_path: Path) -> None:
    assert seen(tmp_path, libc="").glibc is None
    put(tmp_path, "lib/ld-musl-x86_64.so.1")
    assert seen(tmp_path, libc="").glibc == MUSL


def test_what_a_container_was_given_of_the_driver_is_kept(tmp_path: Path) -> None:
    found = seen(tmp_path, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
    assert (found.nvidia_visible, found.nvidia_capabilities) == ("all", "compute,utility")


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_linux_files_are_not_looked_for_elsewhere(tmp_path: Path, system: str) -> None:
    put(tmp_path, ".dockerenv")
    put(tmp_path, "dev/dxg")
    assert read_system(system, tmp_path, {}, "") == System(os=system)


def test_this_c_library_says_its_version_as_ldd_does() -> None:
    name, _, version = c_library().partition(" ")
    assert name in {"glibc", ""}
    assert version.replace(".", "").isdecimal() or not name
