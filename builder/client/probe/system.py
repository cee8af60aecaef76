"""What kind of system this is: facts that decide which driver, package or advice fits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional

MUSL = ""
"""``System.glibc`` of a system with musl: nothing that is linked with glibc loads there."""

_MARKS = (
    ("run/.containerenv", "podman"),
    (".dockerenv", "docker"),
    (".singularity.d", "apptainer"),
)

_GROUPS = ("kubepods", "docker", "libpod", "containerd", "lxc")


@dataclass(frozen=True)
class System:
    """The machine around the GPUs."""

    os: str = ""
    """As ``sys.platform``: ``linux``, ``win32``, ``darwin``."""
    wsl: bool = False
    container: Optional[str] = None
    """What made the container: ``docker``, ``podman``, ``kubernetes`` …; ``None`` outside of one."""
    jetson: Optional[str] = None
    """The board's model, where it is a Jetson or another Tegra."""
    glibc: Optional[str] = None
    """``2.36``; ``""`` with musl; ``None`` where it is unknown, and where there is none."""
    nvidia_visible: Optional[str] = None
    """``NVIDIA_VISIBLE_DEVICES``: the GPUs that a container was given."""
    nvidia_capabilities: Optional[str] = None
    """``NVIDIA_DRIVER_CAPABILITIES``: the parts of the driver that a container was given."""


def look(system: str, root: Path, env: Mapping[str, str], libc: str) -> System:
    """The system under ``root``; ``libc`` is what the C library says of itself."""
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
    """``glibc 2.36``; empty where the C library is another one."""
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
