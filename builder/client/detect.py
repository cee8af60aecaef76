"""Finds the NVIDIA GPUs of this machine, and keeps what each way of asking said.

Order: what the user states, libcuda (it sees what CUDA will see), nvidia-smi, the kernel module's file.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import List, Mapping, Optional, Tuple

from builder.client import smi
from builder.client.commands import Answer, Ask
from builder.client.probes import Outcome, Probe, Report, report
from builder.core.arch import Capability
from builder.core.device import Device, parse_driver
from builder.errors import ConfigError

CUDA_SECONDS = 5.0
CUDA_LIBRARIES = (
    ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")
)
_VERSION = re.compile(r"\s(\d{3}\.\d+(?:\.\d+)?)\s")
DRIVER_FILE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Surroundings:
    """Everything ``detect`` looks at, so that a test can stand in for the machine."""

    env: Mapping[str, str]
    ask: Ask
    python: str
    """The interpreter that the libcuda probe is run with."""
    driver_file: Path = DRIVER_FILE
    cuda_libraries: Tuple[str, ...] = CUDA_LIBRARIES
    smi_programs: Tuple[str, ...] = smi.PROGRAMS


@dataclass(frozen=True)
class Detection:
    """The GPUs found, and every probe's answer in the order asked."""

    devices: Tuple[Device, ...]
    driver: Optional[str]
    probes: Tuple[Probe, ...]


def detect(around: Surroundings) -> Detection:
    """All GPUs; none with every probe's reason. ``ConfigError`` for a malformed ``ORTPACKS_FORCE_*``."""
    forced_driver = _forced_driver(around.env)
    reports = _ask_in_turn(around)
    devices = next((item.devices for item in reports if item.devices), ())
    driver = forced_driver or next((item.driver for item in reports if item.driver), None)
    if driver is None and devices:
        driver = smi.driver_version(around.ask, around.smi_programs)
    return Detection(
        devices=tuple(replace(device, driver=driver) for device in devices),
        driver=driver,
        probes=tuple(item.probe for item in reports),
    )


def _ask_in_turn(around: Surroundings) -> List[Report]:
    reports = [_environment(around.env)]
    if reports[0].probe.outcome is not Outcome.MISSING:
        return reports
    reports.append(_libcuda(around))
    reports.append(_nvidia_smi(around, reports[1]))
    reports.append(_driver_file(around.driver_file))
    return reports


def _environment(env: Mapping[str, str]) -> Report:
    text = env.get("ORTPACKS_FORCE_CC")
    if text is None:
        return report("environment", Outcome.MISSING, "ORTPACKS_FORCE_CC is not set")
    if text.strip() == "none":
        return report("environment", Outcome.NONE, "ORTPACKS_FORCE_CC=none")
    try:
        capabilities = [Capability.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"ORTPACKS_FORCE_CC={text!r}: {error}. Write capabilities like 8.6 or 8.6,5.2, or none."
        ) from error
    devices = tuple(
        Device(
            index=index,
            uuid="",
            name="GPU stated by ORTPACKS_FORCE_CC",
            capability=capability,
            memory_mib=None,
            driver=None,
        )
        for index, capability in enumerate(capabilities)
    )
    return report("environment", Outcome.FOUND, f"ORTPACKS_FORCE_CC={text}", devices)


def _forced_driver(env: Mapping[str, str]) -> Optional[str]:
    text = env.get("ORTPACKS_FORCE_DRIVER")
    if text is None:
        return None
    try:
        parse_driver(text)
    except ValueError as error:
        raise ConfigError(f"ORTPACKS_FORCE_DRIVER: {error}") from error
    return text.strip()


def _libcuda(around: Surroundings) -> Report:
    """In a child process: ``cuInit`` may hang or crash, and it sees ``CUDA_VISIBLE_DEVICES`` and MIG."""
    script = pkgutil.get_data("builder.client", "cuda_probe.py") or b""
    argv = [around.python, "-I", "-S", "-c", script.decode(), *around.cuda_libraries]
    try:
        answer = around.ask(argv, CUDA_SECONDS)
    except TimeoutError as error:
        return report("libcuda", Outcome.TIMEOUT, str(error))
    except OSError as error:
        return report("libcuda", Outcome.FAILED, f"{around.python} cannot be started: {error}")
    return _read_libcuda(answer)


def _read_libcuda(answer: Answer) -> Report:
    try:
        said = json.loads(answer.stdout)
        if "missing" in said:
            return report("libcuda", Outcome.MISSING, said["missing"])
        if "error" in said:
            return report("libcuda", _error_outcome(said["error"]), said["error"])
        devices = tuple(_cuda_device(row) for row in said["devices"])
    except (ValueError, KeyError, TypeError):
        detail = " ".join([f"exit {answer.code}", *answer.stderr.strip().splitlines()[-1:]])
        return report("libcuda", Outcome.FAILED, f"the probe did not come through: {detail}")
    outcome = Outcome.FOUND if devices else Outcome.NONE
    return report("libcuda", outcome, f"CUDA {said['cuda'] // 1000}.{said['cuda'] % 1000 // 10}", devices)


def _error_outcome(error: str) -> Outcome:
    return Outcome.NONE if "CUDA_ERROR_NO_DEVICE" in error else Outcome.FAILED


def _cuda_device(row: Mapping[str, object]) -> Device:
    memory = row["memory_mib"]
    return Device(
        index=int(str(row["index"])),
        uuid=str(row["uuid"]),
        name=str(row["name"]),
        capability=Capability.parse(str(row["capability"])),
        memory_mib=int(str(memory)),
        driver=None,
    )


def _nvidia_smi(around: Surroundings, cuda: Report) -> Report:
    if cuda.devices:
        return report(smi.NAME, Outcome.SKIPPED, "libcuda listed the GPUs")
    return smi.probe(around.ask, around.env, around.smi_programs)


def _driver_file(path: Path) -> Report:
    """``NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.07  …``; the open module's line is longer."""
    name = str(path)
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError as error:
        return report(name, Outcome.MISSING, error.strerror or str(error))
    match = _VERSION.search(first)
    if match is None:
        return report(name, Outcome.FAILED, f"no version in {first!r}")
    return report(name, Outcome.FOUND, f"driver {match[1]}", driver=match[1])
