"""What NVML and libcuda say of the machine's GPUs, each asked in a process of its own.

NVML lists the physical GPUs, libcuda what a program will see. A driver that hangs or crashes takes down only
its own answer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Callable, List, Mapping, Optional, Sequence, Tuple, cast

from builder.client.probe.processes import Ask, ProcessAnswer, child
from builder.findings.observed import NAMELESS, Outcome, Probe
from builder.gpu.architectures import Capability
from builder.gpu.devices import Device, parse_driver
from builder.gpu.table import capability_of_product

SECONDS = 10.0
"""``cuInit`` takes about a second for each GPU where no program keeps the driver loaded."""

NVML = "NVML"

LIBCUDA = "libcuda"

NO_DEVICE = 100
"""``CUDA_ERROR_NO_DEVICE``."""

_CHILD = "builder.client.probe.driver_calls"

_NVML_LINUX = (
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
)

_NVML_WINDOWS = ("nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll")
"""Drivers before 2018 kept it out of ``System32``."""

_CUDA_LINUX = (
    "libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
)
"""Where it lies when the loader does not know it: WSL2, a container of GKE, NixOS, a Jetson."""


def nvml_places(os: str) -> Tuple[str, ...]:
    """The names of NVML to load, in this order, on ``sys.platform``."""
    return _NVML_WINDOWS if os == "win32" else _NVML_LINUX


def cuda_places(os: str) -> Tuple[str, ...]:
    """The names of libcuda to load, in this order, on ``sys.platform``."""
    return ("nvcuda.dll",) if os == "win32" else _CUDA_LINUX


def probe_nvml(ask: Ask, python: str, libraries: Sequence[str]) -> Probe:
    """Every GPU with its MIG instances, or the failed call with NVML's own words and number for it."""
    return _probe(NVML, ask, child(python, _CHILD, NVML, *libraries), _read_nvml)


def probe_cuda(ask: Ask, python: str, libraries: Sequence[str]) -> Probe:
    """Every device that CUDA lists, or the failed call with CUDA's own name and number for it."""
    found = _probe(LIBCUDA, ask, child(python, _CHILD, LIBCUDA, *libraries), _read_cuda)
    return replace(found, outcome=Outcome.NONE) if found.code == NO_DEVICE else found


def _probe(name: str, ask: Ask, argv: Sequence[str], read: Callable[[Mapping[str, object]], Probe]) -> Probe:
    """What ``read`` makes of the child's answer, or a probe that says how it failed."""
    try:
        child = ask(argv, SECONDS)
    except TimeoutError as error:
        return Probe(name, Outcome.TIMEOUT, str(error))
    except OSError as error:
        return Probe(name, Outcome.FAILED, f"{argv[0]} cannot be started: {error}")
    try:
        answer = json.loads(_object(child.stdout))
        return _refused(name, answer) or read(answer)
    except (ValueError, KeyError, TypeError):
        return _broken(name, child)


def _read_nvml(answer: Mapping[str, object]) -> Probe:
    rows = cast("List[Mapping[str, object]]", answer["devices"])
    devices = tuple(_physical(row) for row in rows)
    driver = _driver(answer["driver"])
    detail = f"driver {driver or 'of an unknown version'}, {len(devices)} listed"
    return Probe(NVML, _outcome(devices), detail, devices, driver, _cuda_version(answer["cuda"]))


def _read_cuda(answer: Mapping[str, object]) -> Probe:
    rows = cast("List[Mapping[str, object]]", answer["devices"])
    devices = tuple(_device(row, _optional_int(row["memory_mib"]), None) for row in rows)
    cuda = _cuda_version(answer["cuda"])
    detail = f"CUDA {cuda or 'of an unknown version'}, {len(devices)} listed"
    return Probe(LIBCUDA, _outcome(devices), detail, devices, cuda=cuda)


def _outcome(devices: Sequence[Device]) -> Outcome:
    return Outcome.FOUND if devices else Outcome.NONE


def _physical(row: Mapping[str, object]) -> Device:
    """CUDA sees one instance of a GPU in MIG mode: no more memory than the largest one's can be had.

    Which instance that is, is not known here, and so what is free of it is not either.
    """
    memory = _optional_int(row["memory_mib"])
    if row["instances"] is None:
        return replace(_device(row, memory, None), free_mib=_optional_int(row["free_mib"]))
    instances = cast("List[Mapping[str, object]]", row["instances"])
    sizes = [_optional_int(instance["memory_mib"]) for instance in instances]
    names = tuple(str(instance["uuid"]) for instance in instances if instance["uuid"])
    return _device(row, max((size for size in sizes if size is not None), default=None), names)


def _device(row: Mapping[str, object], memory_mib: Optional[int], mig: Optional[Tuple[str, ...]]) -> Device:
    """A row of the script's ``devices``; what it does not say is unknown."""
    capability, name = row["capability"], str(row["name"] or NAMELESS)
    return Device(
        index=int(str(row["index"])),
        uuid=str(row["uuid"] or ""),
        name=name,
        capability=Capability.parse(str(capability)) if capability else capability_of_product(name),
        memory_mib=memory_mib,
        driver=None,
        mig=mig,
    )


def _driver(version: object) -> Optional[str]:
    try:
        parse_driver(str(version))
    except ValueError:
        return None
    return str(version)


def _optional_int(value: object) -> Optional[int]:
    """``None`` stays ``None``; ``ValueError`` on what is no whole number."""
    return None if value is None else int(str(value))


def _cuda_version(number: object) -> Optional[str]:
    """``12.9`` for 12090, the way CUDA writes versions; ``None`` where the driver did not say."""
    whole = _optional_int(number)
    return None if whole is None else f"{whole // 1000}.{whole % 1000 // 10}"


def _refused(name: str, answer: Mapping[str, object]) -> Optional[Probe]:
    if "missing" in answer:
        return Probe(name, Outcome.MISSING, str(answer["missing"]))
    if "unloadable" in answer:
        return Probe(name, Outcome.FAILED, f"it is there and cannot be loaded: {answer['unloadable']}")
    if "error" not in answer:
        return None
    call, error, code = cast("Tuple[str, str, Optional[int]]", answer["error"])
    number = "" if code is None else f" ({code})"
    return Probe(
        name,
        Outcome.FAILED,
        f"{call}: {error}{number}",
        cuda=_cuda_version(answer.get("cuda")),
        code=_optional_int(code),
        error=str(error),
    )


def _object(stdout: str) -> str:
    """The script's line: drivers print too, and what C buffers comes after it."""
    return next((line for line in stdout.splitlines() if line.startswith("{")), "")


def _broken(name: str, answer: ProcessAnswer) -> Probe:
    """The probe of a child that crashed, or wrote what is no answer."""
    died = answer.killed_by
    last = answer.stderr.strip().splitlines()[-1:]
    how = f"killed by {died}" if died else f"exit {answer.code}"
    return Probe(name, Outcome.FAILED, " ".join(["the probe did not come through:", how, *last]), error=died)
