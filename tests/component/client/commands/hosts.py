"""Files of a machine below a root of its own, and this machine's host library."""

from __future__ import annotations

import os
from importlib.metadata import files
from pathlib import Path


def put(path: Path, content: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def pci(root: Path, address: str, vendor: str, kind: str, device: str, driver: str | None = None) -> None:
    """Write a PCI device in the form of sysfs (kernel ABI document sysfs-bus-pci)."""
    folder = root / "sys/bus/pci/devices" / address
    for name, value in (("vendor", vendor), ("class", kind), ("device", device)):
        put(folder / name, f"{value}\n".encode())
    if driver:
        target = root / "sys/bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(os.path.relpath(target, folder))


def real_host() -> Path:
    """Return the path of the stock CPU wheel's host library."""
    (found,) = [
        path
        for path in files("onnxruntime") or ()
        if path.name.startswith("libonnxruntime.so.") or path.name == "libonnxruntime.so"
    ]
    return Path(str(found.locate()))
