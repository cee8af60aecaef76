"""The kind of the system and the kernel's view of its GPUs are read from files.

The files are those of cards on the PCI bus, kernel modules and device files, and the driver's version in
``/proc`` and ``/sys``.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Iterator, List, Mapping, NamedTuple, Optional

from builder.client.doctor.observations import (
    ABSENT,
    FORBIDDEN,
    REFUSED,
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

_GROUPS = {
    "kubepods": "kubepods",
    "/kubelet/pods/": "kubernetes",
    "libpod": "podman",
    "containers/storage": "podman",
    **{name: name for name in ("docker", "containerd", "lxc")},
}
"""Kinds of containers by a part of the name of a control group, or of what a container's file is mounted
from."""

_MOUNTED = ("/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log")
"""The places where engines mount files of their own. Their roots name the engine, on its host they do not."""

_IN_POD = "run/secrets/kubernetes.io"

_LXC_DEVICES = ("dev/.lxc", "dev/lxd/sock", "dev/incus/sock")

_TOLD, _KIND = re.compile(r"(?:^|\0)container=([\w-]+)"), re.compile(r"(?!wsl)[a-z][\w-]{0,31}")
"""The kind of container in its first process's environment (systemd.io/CONTAINER_INTERFACE), and its form."""

_HYPERVISORS = re.compile(
    r"(?i)qemu|kvm|vmware|virtualbox|innotek|xen|virtual machine|amazon ec2|google compute|openstack|bochs"
    r"|parallels|nutanix|rhev|droplet|alibaba cloud|bhyve|cloud hypervisor"
)
"""Words of firmware in virtual machines (``/sys/class/dmi/id``): systemd's ``virt.c`` has them."""

_VGPU = re.compile(r"^Model:\s*((?:GRID|NVIDIA) .*-\d+[QABC])\s*$", re.MULTILINE)
"""The model of a vGPU in ``/proc/driver/nvidia/gpus/*/information``: card, memory in GB, series."""


class _Mount(NamedTuple):
    root: str
    point: str
    options: str
    kind: str
    source: str


def read_system(system: str, root: Path, env: Mapping[str, str], libc: str) -> System:
    """Return the system under ``root``.

    ``system`` is as in ``sys.platform``; ``libc`` is the C library's name and version.
    """
    linux = system == "linux"
    mounts = _mounts(root) if linux else []
    container = _container(root, env, mounts) if linux else None
    return System(
        os=system,
        wsl=linux and _is_wsl(root),
        container=container,
        jetson=_jetson(root) if linux else None,
        glibc=_glibc(root, libc) if linux else None,
        sandbox=_sandbox(root, mounts) if linux and not container else None,
        virtual=linux and _is_virtual(root),
        vgpu=_vgpu(root) if linux else None,
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
    return _there(root / "dev/dxg") or "microsoft" in release.lower()


def _container(root: Path, env: Mapping[str, str], mounts: List[_Mount]) -> Optional[str]:
    """Return the kind of the innermost container around this process; ``None`` outside of one."""
    if "KUBERNETES_SERVICE_HOST" in env or _there(root / _IN_POD):
        return "kubernetes"
    marked = next((name for mark, name in _MARKS if _there(root / mark)), None)
    engines = " ".join(f"{mount.root} {mount.options}" for mount in mounts if mount.point in _MOUNTED)
    groups = _text(root / "proc/1/cgroup")
    told = [_text(root / "run/systemd/container").strip(), *_TOLD.findall(_text(root / "proc/1/environ"))]
    named = next(filter(_KIND.fullmatch, (*told, env.get("container", ""))), None)
    by_name = next((kind for part, kind in _GROUPS.items() if part in engines or part in groups), None)
    if by_name in ("kubernetes", "kubepods"):
        return by_name
    if any(_there(root / path) for path in _LXC_DEVICES) or any(
        mount.kind == "fuse.lxcfs" and mount.point.startswith("/proc/") for mount in mounts
    ):
        by_name = by_name or "lxc"
    return marked or named or by_name


def _mounts(root: Path) -> List[_Mount]:
    """Return the mounts of this process. The fields of a line are those of proc_pid_mountinfo(5)."""
    mounts = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split(maxsplit=2)
        if len(left) > 5 and len(right) > 2:  # noqa: PLR2004 the numbers of fields in that page
            mounts.append(_Mount(left[3], left[4], f"{left[5]},{right[2]}", right[0], right[1]))
    return mounts


_UNIT = re.compile(r"/([^/\n]+\.service)\s*$", re.MULTILINE)


def _sandbox(root: Path, mounts: List[_Mount]) -> Optional[str]:
    """Return the systemd unit around this process, where devices are kept from it.

    ``PrivateDevices=`` gives a unit a ``/dev`` of its own, a tmpfs; ``DevicePolicy=`` refuses to open a file
    that is there. Source: systemd.exec(5), systemd.resource-control(5).
    """
    unit = _UNIT.search(_text(root / "proc/self/cgroup"))
    own_dev = any(mount.point == "/dev" and mount.kind == "tmpfs" for mount in mounts)
    refused = _control(root / "dev/nvidiactl") == REFUSED
    return (unit[1] if unit else "of this process") if own_dev or (unit and refused) else None


def _is_virtual(root: Path) -> bool:
    """Return whether a hypervisor is below this system, by the processor's flags, else by the firmware."""
    flags = re.search(r"^flags\s*:(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    if flags:
        return "hypervisor" in flags[1].split()
    firmware = " ".join(_text(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name"))
    return bool(_HYPERVISORS.search(firmware)) or _there(root / "sys/hypervisor/type")


def _vgpu(root: Path) -> Optional[str]:
    texts = (_text(path) for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")))
    return next((match[1] for match in map(_VGPU.search, texts) if match), None)


def _jetson(root: Path) -> Optional[str]:
    model = _text(root / "proc/device-tree/model").strip("\0 \n")
    if not _there(root / "etc/nv_tegra_release") and "jetson" not in model.lower():
        return None
    return model or "Tegra"


def _glibc(root: Path, libc: str) -> Optional[str]:
    name, _, version = libc.partition(" ")
    if name == "glibc" and version:
        return version
    return MUSL if any(root.glob("lib/ld-musl-*")) else None


_MOST_BYTES = 1 << 22
"""Read of a file at most: mounts of thousands of containers are less."""


def _there(path: Path) -> bool:
    """Return whether ``path`` exists; what is in a folder that may not be searched does not."""
    try:
        return path.exists()
    except OSError:
        return False


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
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

_OPEN, _PROPRIETARY = "Open Kernel Module", "Kernel Module"
"""The words of the two flavours in ``/proc/driver/nvidia/version``."""

_OWN_CAPS = ("nvidia-cap1", "nvidia-cap2")
"""The device files that make and watch MIG instances (``/proc/driver/nvidia/capabilities/mig``)."""

LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")


def read_kernel(root: Path) -> Kernel:
    """Return the kernel's view of the GPUs of a Linux system under ``root``."""
    proc = root / "proc/driver/nvidia"
    version, caps = _text(root / VERSION), (path.name for path in (root / "dev/nvidia-caps").glob("*"))
    return Kernel(
        cards=tuple(_cards(root / "sys/bus/pci/devices")),
        loaded=_there(root / "sys/module/nvidia") or _there(root / VERSION),
        control=_control(root / "dev/nvidiactl"),
        open_module=_OPEN in version if _PROPRIETARY in version else None,
        instances=len(list(proc.glob("capabilities/gpu*/mig/gi*/ci*"))),
        instance_files=any(name not in _OWN_CAPS for name in caps),
        linux_libcuda=_linux_libcuda(root),
        dxg=_there(root / "dev/dxg"),
        dxgdmal=any((root / "usr/lib/wsl/drivers").glob("*/libnvdxgdmal.so.1")),
    )


def driver_on_disk(root: Path) -> Optional[str]:
    """Return the driver's version in the name of libcuda, for an installed driver that is not loaded.

    ``None`` where no such library is found.
    """
    path = _linux_libcuda(root)
    return path.rpartition("libcuda.so.")[2] if path else None


def _linux_libcuda(root: Path) -> Optional[str]:
    """Return the path of a Linux driver's libcuda; Windows' for WSL has no version of a driver's form."""
    paths = (path for folder in LIBRARIES for path in sorted((root / folder).glob("libcuda.so.*")))
    return next((str(path) for path in paths if _LIBCUDA.fullmatch(path.name)), None)


def _cards(devices: Path) -> Iterator[PciCard]:
    for folder in sorted(devices.glob("*")):
        vendor, kind, device = (_number(folder / name) for name in ("vendor", "class", "device"))
        if vendor == _NVIDIA and kind is not None and kind >> 16 == _DISPLAY and device is not None:
            link = folder / "driver"
            yield PciCard(folder.name, device, link.resolve().name if _there(link) else None)


def _number(path: Path) -> Optional[int]:
    """Return the hexadecimal number in a file, ``0x10de``; ``None`` where it cannot be read."""
    try:
        return int(path.read_text(encoding="ascii").strip(), 16)
    except (OSError, ValueError):
        return None


def _control(path: Path) -> str:
    """Return whether the driver's device file may be opened; opening it changes nothing."""
    if not _there(path):
        return ABSENT
    try:
        os.close(os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))
    except OSError as error:
        if error.errno == errno.EPERM:
            return REFUSED
    return THERE if os.access(path, os.R_OK | os.W_OK) else FORBIDDEN
