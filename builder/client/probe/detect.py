"""Finds the NVIDIA GPUs of this machine, and keeps what each way of asking said.

Order: what the user states, NVML and libcuda at the same time, nvidia-smi, the kernel's files. The devices
that count are those CUDA lists; where it fails, the physical ones that ``CUDA_VISIBLE_DEVICES`` leaves.

CUDA's devices, with what NVML knows of them and CUDA did not say.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from builder.client.probe import native, smi, stated, system
from builder.client.probe.processes import Ask
from builder.client.probe.stated import filtered, visible
from builder.findings.observed import NAMELESS, Outcome, Probe, System
from builder.gpu.devices import Device

_NATIVE = (native.NVML, native.LIBCUDA)


@dataclass(frozen=True)
class Surroundings:
    """Everything ``detect`` looks at, so that a test can stand in for the machine."""

    env: Mapping[str, str]
    ask: Ask
    python: str
    """The interpreter that the native libraries are asked with."""
    driver_file: Path = "/" / system.VERSION
    cuda_libraries: Tuple[str, ...] = native.cuda_places(sys.platform)
    smi_programs: Tuple[str, ...] = smi.PROGRAMS
    nvml_libraries: Tuple[str, ...] = native.nvml_places(sys.platform)
    os: str = sys.platform
    root: Path = Path("/")
    """Where every other file of the system is looked for."""
    libc: str = field(default_factory=system.c_library)
    """What the C library says of itself: ``glibc 2.36``."""


@dataclass(frozen=True)
class Detection:
    """The GPUs found, and every probe's answer in the order asked."""

    devices: Tuple[Device, ...]
    driver: Optional[str]
    probes: Tuple[Probe, ...]
    system: System = field(default_factory=System)
    cuda: Optional[str] = None
    """The newest CUDA that the driver serves, ``12.9``."""


def detect(around: Surroundings) -> Detection:
    """All GPUs; none with every probe's reason. ``ConfigError`` for a malformed ``ORTPACKS_FORCE_*``."""
    forced_driver, sizes = stated.driver(around.env), stated.memory(around.env)
    probes = _ask_in_turn(around)
    devices = stated.with_memory(_devices(probes, around.env), sizes)
    driver = forced_driver or _first([probe.driver for probe in probes])
    if driver is None and devices:
        driver = smi.driver_version(around.ask, around.smi_programs)
    return Detection(
        devices=tuple(replace(device, driver=driver) for device in devices),
        driver=driver,
        probes=tuple(filtered(probe, around.env) for probe in probes),
        system=system.look(around.os, around.root, around.env, around.libc),
        cuda=_first([probe.cuda for probe in probes]),
    )


def _ask_in_turn(around: Surroundings) -> List[Probe]:
    first = stated.probe(around.env)
    if first.outcome is not Outcome.MISSING:
        return [first, *_kernel_files(around)]
    if around.os == "darwin":
        why = "there is no NVIDIA driver for macOS"
        return [first, *(Probe(name, Outcome.SKIPPED, why) for name in (*_NATIVE, smi.NAME))]
    answers = _at_once(
        lambda: native.probe_nvml(around.ask, around.python, around.nvml_libraries),
        lambda: native.probe_cuda(around.ask, around.python, around.cuda_libraries),
    )
    return [first, *answers, _nvidia_smi(around, answers), *_kernel_files(around)]


def _at_once(beside: Callable[[], Probe], here: Callable[[], Probe]) -> List[Probe]:
    """Both answers. The second is asked in this thread, which an interrupt reaches."""
    answers: List[Probe] = []
    thread = Thread(target=lambda: answers.append(beside()), daemon=True)
    thread.start()
    second = here()
    thread.join()
    return [*answers, second]


def _nvidia_smi(around: Surroundings, answers: List[Probe]) -> Probe:
    asked = [probe.name for probe in answers if probe.devices]
    if asked:
        return Probe(smi.NAME, Outcome.SKIPPED, f"{' and '.join(asked)} listed the GPUs")
    return smi.probe(around.ask, around.smi_programs)


def _kernel_files(around: Surroundings) -> List[Probe]:
    if around.os != "linux":
        return []
    return [system.probe_version(path) for path in (around.driver_file, around.root / system.MODULE)]


def _devices(probes: List[Probe], env: Mapping[str, str]) -> Tuple[Device, ...]:
    """The devices that the user states, else CUDA's, else the physical ones that are left visible."""
    listed = {probe.name: probe.devices for probe in probes}
    physical = listed.get(native.NVML) or listed.get(smi.NAME) or ()
    theirs = listed.get(native.LIBCUDA, ())
    return listed[stated.NAME] or completed(theirs, physical) or visible(physical, env)


def _first(values: List[Optional[str]]) -> Optional[str]:
    return next((value for value in values if value), None)


def completed(devices: Sequence[Device], physical: Sequence[Device]) -> Tuple[Device, ...]:
    """``devices`` in CUDA's order. A MIG instance gets the name that ``CUDA_VISIBLE_DEVICES`` takes."""
    cards = {card.uuid: card for card in physical if card.uuid}
    instances = {name: card for card in physical for name in card.mig or ()}
    return tuple(_complete(device, cards, instances) for device in devices)


def _complete(device: Device, cards: Dict[str, Device], instances: Dict[str, Device]) -> Device:
    slice_name = device.uuid.replace("GPU-", "MIG-", 1)
    if slice_name in instances:
        card = instances[slice_name]
        return replace(device, uuid=slice_name, capability=device.capability or card.capability)
    if device.uuid not in cards:
        return device
    card = cards[device.uuid]
    return replace(
        device,
        name=card.name if device.name == NAMELESS else device.name,
        capability=device.capability or card.capability,
        memory_mib=card.memory_mib if device.memory_mib is None else device.memory_mib,
        mig=card.mig,
    )
