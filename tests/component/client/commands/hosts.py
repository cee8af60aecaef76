"""Files of a machine below a root of its own, and this machine's host library."""

import json
import os
from importlib.metadata import files
from pathlib import Path

from tests.doubles.release import HOST, digest


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


def replace_host(folder: Path, content: bytes) -> None:
    """Replace the installed package's host library, and its size and hash in the manifest.

    This stands for a machine that changed after the install; only packages that match their manifest are run.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["files"]:
        if entry["path"] == HOST:
            entry.update(digest(content))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / HOST).write_bytes(content)


def real_host() -> Path:
    """Return the path of the stock CPU wheel's host library."""
    paths = files("onnxruntime") or ()
    (library,) = [path for path in paths if path.name.startswith("libonnxruntime.so")]
    return Path(str(library.locate()))
