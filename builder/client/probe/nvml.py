"""The physical GPUs that NVML lists, whatever ``CUDA_VISIBLE_DEVICES`` says."""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Tuple, cast

from builder.client.probe.child import Library, Probe, ask_library, cuda_version, device_of, optional_int
from builder.client.probe.processes import Ask
from builder.findings.observed import Outcome
from builder.gpu.devices import Device, parse_driver

LIBRARY = Library(name="NVML", script="builder.client.probe.nvml_probe", seconds=10.0)

_LINUX = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
)

_WINDOWS = ("nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll")
"""Drivers before 2018 kept it out of ``System32``."""


def places(os: str) -> Tuple[str, ...]:
    """What to load, in this order, on ``sys.platform``."""
    return _WINDOWS if os == "win32" else _LINUX


def probe(ask: Ask, python: str, libraries: Sequence[str]) -> Probe:
    """Every GPU with its MIG instances, or the failed call with NVML's own words and number for it."""
    return ask_library(LIBRARY, ask, python, libraries, _read)


def _read(said: Mapping[str, object]) -> Probe:
    rows = cast("List[Mapping[str, object]]", said["devices"])
    devices = tuple(_device(row) for row in rows)
    driver = _driver(said["driver"])
    return Probe(
        LIBRARY.name,
        Outcome.FOUND if devices else Outcome.NONE,
        f"driver {driver or 'of an unknown version'}, {len(devices)} listed",
        devices,
        driver,
        cuda_version(said["cuda"]),
    )


def _device(row: Mapping[str, object]) -> Device:
    """CUDA sees one instance of a GPU in MIG mode: no more memory than the largest one's can be had."""
    memory = optional_int(row["memory_mib"])
    if row["instances"] is None:
        return device_of(row, memory, None)
    instances = cast("List[Mapping[str, object]]", row["instances"])
    sizes = [optional_int(instance["memory_mib"]) for instance in instances]
    names = tuple(str(instance["uuid"]) for instance in instances if instance["uuid"])
    return device_of(row, max((size for size in sizes if size is not None), default=None), names)


def _driver(said: object) -> Optional[str]:
    try:
        parse_driver(str(said))
    except ValueError:
        return None
    return str(said)
