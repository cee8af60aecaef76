"""The devices that CUDA lists: what a program will see, ``CUDA_VISIBLE_DEVICES`` and MIG included."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Mapping, Sequence, Tuple, cast

from builder.client.probe.child import Library, Probe, ask_library, cuda_version, device_of, optional_int
from builder.client.probe.processes import Ask
from builder.findings.observed import Outcome

LIBRARY = Library(name="libcuda", script="builder.client.probe.cuda_probe", seconds=10.0)
"""``cuInit`` takes about a second for each GPU where no program keeps the driver loaded."""

NO_DEVICE = 100

_LINUX = (
    "libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
)
"""Where it lies when the loader does not know it: WSL2, a container of GKE, NixOS, a Jetson."""


def places(os: str) -> Tuple[str, ...]:
    """What to load, in this order, on ``sys.platform``."""
    return ("nvcuda.dll",) if os == "win32" else _LINUX


def probe(ask: Ask, python: str, libraries: Sequence[str]) -> Probe:
    """Every device, or the failed call with CUDA's own name and number for it."""
    found = ask_library(LIBRARY, ask, python, libraries, _read)
    return replace(found, outcome=Outcome.NONE) if found.code == NO_DEVICE else found


def _read(said: Mapping[str, object]) -> Probe:
    rows = cast("List[Mapping[str, object]]", said["devices"])
    devices = tuple(device_of(row, optional_int(row["memory_mib"]), None) for row in rows)
    cuda = cuda_version(said["cuda"])
    outcome = Outcome.FOUND if devices else Outcome.NONE
    detail = f"CUDA {cuda or 'of an unknown version'}, {len(devices)} listed"
    return Probe(LIBRARY.name, outcome, detail, devices, cuda=cuda)
