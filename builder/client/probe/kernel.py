"""What the kernel's files say of the NVIDIA driver: its version alone.

The kernel's side of a GPU: cards on the PCI bus, modules, device files. Read from files alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Iterator, Optional

from builder.client.probe.child import Probe
from builder.findings.observed import ABSENT, FORBIDDEN, THERE, Card, Kernel, Outcome

VERSION = Path("proc/driver/nvidia/version")

MODULE = Path("sys/module/nvidia/version")
"""It is there where a container hides ``/proc/driver``."""

_NUMBER = re.compile(r"(?:^|\s)(\d{3}\.\d+(?:\.\d+)?)(?:\s|$)")


def probe(path: Path) -> Probe:
    """The version in the first line.

    ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.07  …``, which is longer for the open module, or
    the number alone.
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


Allowed = Callable[[Path], bool]
"""Whether this user may do something with a path."""

_NVIDIA = 0x10DE

_DISPLAY = 0x03
"""PCI base class: VGA (0300) and 3D controllers (0302), which is what a card without an output is."""

_LIBCUDA = re.compile(r"libcuda\.so\.(\d{3}\.\d+(?:\.\d+)?)")

_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")


def may_use(path: Path) -> bool:
    """The real one, for a device file."""
    return os.access(path, os.R_OK | os.W_OK)


def look_at_kernel(root: Path, may_use: Allowed) -> Kernel:
    """What is under ``root``; nothing of it on a system that is not Linux."""
    return Kernel(
        cards=tuple(_cards(root / "sys/bus/pci/devices")),
        loaded=(root / "sys/module/nvidia").is_dir() or (root / "proc/driver/nvidia/version").is_file(),
        control=_control(root / "dev/nvidiactl", may_use),
        dxg=(root / "dev/dxg").exists(),
        dxgdmal=any((root / "usr/lib/wsl/drivers").glob("*/libnvdxgdmal.so.1")),
    )


def driver_on_disk(root: Path) -> Optional[str]:
    """The driver's version by its library's name, for a driver that is installed and not loaded."""
    names = (path.name for folder in _LIBRARIES for path in sorted((root / folder).glob("libcuda.so.*")))
    return next((match[1] for match in map(_LIBCUDA.fullmatch, names) if match), None)


def _cards(devices: Path) -> Iterator[Card]:
    for folder in sorted(devices.glob("*")):
        vendor, kind, device = (_number(folder / name) for name in ("vendor", "class", "device"))
        if vendor == _NVIDIA and kind is not None and kind >> 16 == _DISPLAY and device is not None:
            link = folder / "driver"
            yield Card(folder.name, device, link.resolve().name if link.exists() else None)


def _number(path: Path) -> Optional[int]:
    """``0x10de``; ``None`` where it cannot be read."""
    try:
        return int(path.read_text(encoding="ascii").strip(), 16)
    except (OSError, ValueError):
        return None


def _control(path: Path, may_use: Allowed) -> str:
    if not path.exists():
        return ABSENT
    return THERE if may_use(path) else FORBIDDEN
