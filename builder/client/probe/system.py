"""The kind of the system and the kernel's view of its GPUs are read from files.

The files are those of cards on the PCI bus, kernel modules and device files, and the driver's version in
``/proc`` and ``/sys``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Iterator, Mapping, Optional

from builder.client.doctor.observations import (
    ABSENT,
    FORBIDDEN,
    THERE,
    Kernel,
    Outcome,
    PciCard,
    Probe,
    System,
)
from builder.formats.package_names import MUSL

_MARKS = (
    ("run/.containerenv", "podman"),
    (".dockerenv", "docker"),
    (".singularity.d", "apptainer"),
)

_GROUPS = ("kubepods", "docker", "libpod", "containerd", "lxc")


def read_system(system: str, root: Path, env: Mapping[str, str], libc: str) -> System:
    """Return the system under ``root``.

    ``system`` is as in ``sys.platform``; ``libc`` is the C library's name and version.
    """
    linux = system == "linux"
    return System(
        os=system,
        wsl=linux and _is_wsl(root),
        container=_container(root, env) if linux else None,
        jetson=_jetson(root) if linux else None,
        glibc=_glibc(root, libc) if linux else None,
        nvidia_visible=env.get("NVIDIA_VISIBLE_DEVICES"),
        nvidia_capabilities=env.get("NVIDIA_DRIVER_CAPABILITIES"),
    )


def c_library() -> str:
    """Return the C library's name and version, ``glibc 2.36``; empty where it is not glibc."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def _is_wsl(root: Path) -> bool:
    release = _text(root / "proc/sys/kernel/osrelease")
    return (root / "dev/dxg").exists() or "microsoft" in release.lower()


def _container(root: Path, env: Mapping[str, str]) -> Optional[str]:
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    marked = next((name for mark, name in _MARKS if (root / mark).exists()), None)
    groups = _text(root / "proc/1/cgroup")
    return marked or env.get("container") or next((name for name in _GROUPS if name in groups), None)


def _jetson(root: Path) -> Optional[str]:
    model = _text(root / "proc/device-tree/model").strip("\0 \n")
    if not (root / "etc/nv_tegra_release").exists() and "jetson" not in model.lower():
        return None
    return model or "Tegra"


def _glibc(root: Path, libc: str) -> Optional[str]:
    name, _, version = libc.partition(" ")
    if name == "glibc" and version:
        return version
    return MUSL if any(root.glob("lib/ld-musl-*")) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


VERSION = Path("proc/driver/nvidia/version")

MODULE = Path("sys/module/nvidia/version")
"""A file with the driver's version that exists where a container hides ``/proc/driver``."""

_NUMBER = re.compile(r"(?:^|\s)(\d{3}\.\d+(?:\.\d+)?)(?:\s|$)")


def probe_version(path: Path) -> Probe:
    """Return the driver's version in the first line of a file.

    The line is ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.07  …``, a longer one for the open
    module, or the number alone.
    """
    name = str(path)
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError as error:
        return Probe(name, Outcome.MISSING, error.strerror or str(error))
    match = _NUMBER.search(first)
    if match is None:
        return Probe(name, Outcome.FAILED, f"no version in {first!r}")
    return Probe(name, Outcome.FOUND, f"driver {match[1]}", driver=match[1])


_NVIDIA = 0x10DE

_DISPLAY = 0x03
"""PCI base class of VGA (0300) and 3D controllers (0302); a card without an output is one of the latter."""

_LIBCUDA = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)")

_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")


def read_kernel(root: Path) -> Kernel:
    """Return the kernel's view of the GPUs of a Linux system under ``root``."""
    return Kernel(
        cards=tuple(_cards(root / "sys/bus/pci/devices")),
        loaded=(root / "sys/module/nvidia").is_dir() or (root / VERSION).is_file(),
        control=_control(root / "dev/nvidiactl"),
        dxg=(root / "dev/dxg").exists(),
        dxgdmal=any((root / "usr/lib/wsl/drivers").glob("*/libnvdxgdmal.so.1")),
    )


def driver_on_disk(root: Path) -> Optional[str]:
    """Return the driver's version in the name of libcuda, for an installed driver that is not loaded.

    ``None`` where no such library is found.
    """
    names = (path.name for folder in _LIBRARIES for path in sorted((root / folder).glob("libcuda.so.*")))
    return next((match[1] for match in map(_LIBCUDA.fullmatch, names) if match), None)


def _cards(devices: Path) -> Iterator[PciCard]:
    for folder in sorted(devices.glob("*")):
        vendor, kind, device = (_number(folder / name) for name in ("vendor", "class", "device"))
        if vendor == _NVIDIA and kind is not None and kind >> 16 == _DISPLAY and device is not None:
            link = folder / "driver"
            yield PciCard(folder.name, device, link.resolve().name if link.exists() else None)


def _number(path: Path) -> Optional[int]:
    """Return the hexadecimal number in a file, ``0x10de``; ``None`` where it cannot be read."""
    try:
        return int(path.read_text(encoding="ascii").strip(), 16)
    except (OSError, ValueError):
        return None


def _control(path: Path) -> str:
    if not path.exists():
        return ABSENT
    return THERE if os.access(path, os.R_OK | os.W_OK) else FORBIDDEN
