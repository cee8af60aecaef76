"""NVML and libcuda list the machine's GPUs, each in a child process.

NVML lists the physical GPUs, libcuda the devices that a program will see. A driver that hangs or crashes ends
only the child process of that library.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Callable, List, Mapping, Optional, Sequence, Tuple, cast

from builder.client.doctor.observations import NAMELESS, NO_DEVICE, Outcome, Probe
from builder.client.probe.processes import Ask, ProcessAnswer, child
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device, parse_driver
from builder.facts.gpu.table import capability_of_product

SECONDS = 10.0
"""Time limit in seconds. ``cuInit`` takes about a second per GPU where no program keeps the driver loaded."""

NVML = "NVML"

LIBCUDA = "libcuda"

_CHILD = "builder.client.probe.driver_calls"

_ELSEWHERE = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Folders of the driver's libraries where the loader does not find them: WSL2, a container of GKE, NixOS."""

_TEGRA = "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1"

_NVML_WINDOWS = ("nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll")
"""The names of NVML on Windows. Drivers before 2018 did not put the library into ``System32``."""


def nvml_places(os: str) -> Tuple[str, ...]:
    """Return the names under which NVML is loaded, in this order. ``os`` is as in ``sys.platform``."""
    return _NVML_WINDOWS if os == "win32" else _on_linux("libnvidia-ml.so.1")


def cuda_places(os: str) -> Tuple[str, ...]:
    """Return the names under which libcuda is loaded, in this order. ``os`` is as in ``sys.platform``."""
    return ("nvcuda.dll",) if os == "win32" else (*_on_linux("libcuda.so.1"), _TEGRA)


def _on_linux(name: str) -> Tuple[str, ...]:
    return (name, *(f"{folder}/{name}" for folder in _ELSEWHERE))


def probe_nvml(ask: Ask, python: str, libraries: Sequence[str]) -> Probe:
    """Return every GPU with its MIG instances, or the failed call with NVML's message and code."""
    return _probe(NVML, ask, child(python, _CHILD, NVML, *libraries), _read_nvml)


def probe_cuda(ask: Ask, python: str, libraries: Sequence[str]) -> Probe:
    """Return every device that CUDA lists, or the failed call with CUDA's name and number of the error.

    ``CUDA_ERROR_NO_DEVICE`` has the outcome ``NONE``.
    """
    probe = _probe(LIBCUDA, ask, child(python, _CHILD, LIBCUDA, *libraries), _read_cuda)
    return replace(probe, outcome=Outcome.NONE) if probe.code == NO_DEVICE else probe


def _probe(name: str, ask: Ask, argv: Sequence[str], read: Callable[[Mapping[str, object]], Probe]) -> Probe:
    """Run the child and return the probe that ``read`` makes of its answer, or one with its failure."""
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
    """Return a physical GPU of NVML's list.

    CUDA sees one instance of a GPU in MIG mode, so its memory is that of the largest instance. The free
    memory is unknown then, because it is not known here which instance a program will use.
    """
    memory = _optional_int(row["memory_mib"])
    if row["instances"] is None:
        return replace(_device(row, memory, None), free_mib=_optional_int(row["free_mib"]))
    instances = cast("List[Mapping[str, object]]", row["instances"])
    sizes = [_optional_int(instance["memory_mib"]) for instance in instances]
    names = tuple(str(instance["uuid"]) for instance in instances if instance["uuid"])
    return _device(row, max((size for size in sizes if size is not None), default=None), names)


def _device(row: Mapping[str, object], memory_mib: Optional[int], mig: Optional[Tuple[str, ...]]) -> Device:
    """Return the device in a row of the child's ``devices``; a ``null`` there is unknown."""
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
    return None if value is None else int(str(value))


def _cuda_version(number: object) -> Optional[str]:
    """Return ``12.9`` for 12090, CUDA's form of a version; ``None`` where the driver gives none."""
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
    """Return the child's line of JSON; a driver may print lines before and after it."""
    return next((line for line in stdout.splitlines() if line.startswith("{")), "")


def _broken(name: str, answer: ProcessAnswer) -> Probe:
    died = answer.killed_by
    last = answer.stderr.strip().splitlines()[-1:]
    how = f"killed by {died}" if died else f"exit {answer.code}"
    return Probe(name, Outcome.FAILED, " ".join(["the probe failed:", how, *last]), error=died)
