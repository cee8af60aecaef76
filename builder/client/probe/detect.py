"""The NVIDIA GPUs of this machine are detected by several probes, whose answers are all kept.

Environment variables with which the user states GPUs come first and overrule every probe. Then NVML and
libcuda run at the same time, then nvidia-smi, then the kernel's files are read. The result has the devices
that CUDA lists, completed by NVML's values; where CUDA fails, the physical devices that
``CUDA_VISIBLE_DEVICES`` leaves visible.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from builder.client.doctor.observations import NAMELESS, Detection, Outcome, Probe
from builder.client.probe import native, smi, system
from builder.client.probe.processes import Ask, Work
from builder.errors import ConfigError
from builder.facts.gpu.architectures import capabilities
from builder.facts.gpu.devices import Device, parse_driver

_NATIVE = (native.NVML, native.LIBCUDA)

_STATED = "environment"
"""The name of the probe that reads the stated GPUs."""

FORCED_CAPABILITIES = "ORTPACKS_FORCE_CC"

FORCED_DRIVER = "ORTPACKS_FORCE_DRIVER"

FORCED_MEMORY = "ORTPACKS_FORCE_MEMORY"

_MOST_DIGITS = 9
"""The most digits of a size in MiB: no GPU has a petabyte."""

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Surroundings:
    """Everything that ``detect`` examines. Tests pass another one."""

    env: Mapping[str, str]
    ask: Ask
    work: Work
    """Starts a program without a time limit: pip."""
    python: str
    """The interpreter that loads the native libraries in a child process."""
    cuda_libraries: Tuple[str, ...] = native.cuda_places(sys.platform)
    smi_programs: Tuple[str, ...] = smi.PROGRAMS
    nvml_libraries: Tuple[str, ...] = native.nvml_places(sys.platform)
    os: str = sys.platform
    root: Path = Path("/")
    """The folder under which every file of the system is read."""
    libc: str = field(default_factory=system.c_library)
    """The C library's name and version, as it gives them: ``glibc 2.36``."""


def detect(around: Surroundings) -> Detection:
    """Return the detected GPUs; where there is none, the probes give the reasons.

    Raises ``ConfigError`` for a malformed ``ORTPACKS_FORCE_…``.
    """
    forced_driver, sizes = _stated_driver(around.env), _stated_memory(around.env)
    probes = _ask_in_turn(around)
    devices = _with_memory(_devices(probes, around.env), sizes)
    driver = forced_driver or _first([probe.driver for probe in probes])
    if driver is None and devices:
        driver = smi.driver_version(around.ask, around.smi_programs)
    return Detection(
        devices=tuple(replace(device, driver=driver) for device in devices),
        driver=driver,
        replies={probe.name: _filtered(probe, around.env) for probe in probes},
        system=system.read_system(around.os, around.root, around.env, around.libc),
        cuda=_first([probe.cuda for probe in probes]),
    )


def _ask_in_turn(around: Surroundings) -> List[Probe]:
    first = _stated(around.env)
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


def _at_once(first: Callable[[], Probe], second: Callable[[], Probe]) -> List[Probe]:
    """Run both functions at the same time and return both probes.

    ``second`` runs in this thread, because an interrupt reaches only the main thread.
    """
    answers: List[Probe] = []
    thread = Thread(target=lambda: answers.append(first()), daemon=True)
    thread.start()
    answer = second()
    thread.join()
    return [*answers, answer]


def _nvidia_smi(around: Surroundings, answers: List[Probe]) -> Probe:
    listing = [probe.name for probe in answers if probe.devices]
    if listing:
        return Probe(smi.NAME, Outcome.SKIPPED, f"{' and '.join(listing)} listed the GPUs")
    return smi.probe(around.ask, around.smi_programs)


def _kernel_files(around: Surroundings) -> List[Probe]:
    if around.os != "linux":
        return []
    return [system.probe_version(around.root / path) for path in (system.VERSION, system.MODULE)]


def _devices(probes: List[Probe], env: Mapping[str, str]) -> Tuple[Device, ...]:
    """Return the devices that the user states, else CUDA's, else the visible physical devices."""
    listed = {probe.name: probe.devices for probe in probes}
    physical = listed.get(native.NVML) or listed.get(smi.NAME) or ()
    theirs = listed.get(native.LIBCUDA, ())
    return listed[_STATED] or completed(theirs, physical) or _visible(physical, env)


def _first(values: List[Optional[str]]) -> Optional[str]:
    return next((value for value in values if value), None)


def completed(devices: Sequence[Device], physical: Sequence[Device]) -> Tuple[Device, ...]:
    """Return ``devices`` in their order, with the values of ``physical`` that CUDA does not give.

    A MIG instance gets the name that ``CUDA_VISIBLE_DEVICES`` takes.
    """
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
        free_mib=card.free_mib,
    )


def _stated(env: Mapping[str, str]) -> Probe:
    """Return the GPUs of ``ORTPACKS_FORCE_CC`` as a probe; ``MISSING`` where the variable is not set.

    Raises ``ConfigError`` where the variable is malformed.
    """
    text = env.get(FORCED_CAPABILITIES)
    if not text:
        return Probe(_STATED, Outcome.MISSING, f"{FORCED_CAPABILITIES} is not set")
    if text.strip() == "none":
        return Probe(_STATED, Outcome.NONE, f"{FORCED_CAPABILITIES}=none")
    try:
        stated = capabilities(text)
    except ValueError as error:
        raise ConfigError(
            f"{FORCED_CAPABILITIES}={text!r}: {error}. Write capabilities like 8.6 or 8.6,5.2, or none."
        ) from error
    name = f"GPU stated by {FORCED_CAPABILITIES}"
    devices = tuple(
        Device(index, uuid="", name=name, capability=capability, memory_mib=None, driver=None)
        for index, capability in enumerate(stated)
    )
    return Probe(_STATED, Outcome.FOUND, f"{FORCED_CAPABILITIES}={text}", devices)


def _stated_driver(env: Mapping[str, str]) -> Optional[str]:
    """Return the driver version of ``ORTPACKS_FORCE_DRIVER``; ``None`` where the variable is not set.

    Raises ``ConfigError`` where the value is no version.
    """
    text = env.get(FORCED_DRIVER)
    if not text:
        return None
    try:
        parse_driver(text)
    except ValueError as error:
        raise ConfigError(f"{FORCED_DRIVER}: {error}") from error
    return text.strip()


def _stated_memory(env: Mapping[str, str]) -> Tuple[int, ...]:
    """Return the sizes in MiB of ``ORTPACKS_FORCE_MEMORY``; empty where the variable is not set.

    One size is for all GPUs, else there is one for each. Raises ``ConfigError`` where the variable is
    malformed.
    """
    text = env.get(FORCED_MEMORY)
    if not text:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= _MOST_DIGITS and int(part) > 0 for part in parts):
        raise ConfigError(f"{FORCED_MEMORY}={text!r} is not memory in MiB. Write it like 8192 or 8192,4096.")
    return tuple(int(part) for part in parts)


def _with_memory(devices: Sequence[Device], sizes: Sequence[int]) -> Tuple[Device, ...]:
    """Return ``devices`` with the stated sizes; how much of the memory is free is then unknown.

    Raises ``ConfigError`` where the numbers of sizes and devices differ.
    """
    if not sizes or not devices:
        return tuple(devices)
    each = tuple(sizes) * len(devices) if len(sizes) == 1 else tuple(sizes)
    if len(each) != len(devices):
        raise ConfigError(
            f"{FORCED_MEMORY} states {len(sizes)} GPUs, there are {len(devices)}.",
            advice="Write one size, or one for each.",
        )
    return tuple(replace(device, memory_mib=size, free_mib=None) for device, size in zip(devices, each))


def _visible(devices: Sequence[Device], env: Mapping[str, str]) -> Tuple[Device, ...]:
    """Return the devices that ``CUDA_VISIBLE_DEVICES`` leaves visible, by CUDA's own rule.

    The devices come in the order named, up to the first name that fits no GPU; there is none where a GPU is
    named twice. Where the first name is a MIG instance's, all are returned. A number is the probe's index,
    which follows PCI addresses; CUDA's numbers do so only with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    """
    wanted = env.get(VARIABLE)
    if wanted is None:
        return tuple(devices)
    if wanted.startswith("MIG-"):
        return tuple(devices) if _may_be_instance(wanted.partition(",")[0].strip(), devices) else ()
    shown: List[Device] = []
    for name in wanted.split(","):
        match = [device for device in devices if _named(device, name.strip())]
        if len(match) != 1:
            break
        if match[0] in shown:
            return ()
        shown += match
    return tuple(shown)


def _may_be_instance(name: str, devices: Sequence[Device]) -> bool:
    """Return whether a name, ``MIG-…``, is an instance's; true where the instances' names are not known.

    Those are not known in the older form, ``MIG-GPU-…/1/0``, nor from nvidia-smi. An instance gets another
    name when it is made again, and none outlives a restart of the machine.
    """
    unknown = name.startswith("MIG-GPU-") or any(device.mig == () for device in devices)
    return unknown or any(instance.startswith(name) for device in devices for instance in device.mig or ())


def _filtered(probe: Probe, env: Mapping[str, str]) -> Probe:
    """Return ``probe``, with outcome ``NONE`` where ``CUDA_VISIBLE_DEVICES`` hides all of its devices.

    Those are physical: libcuda lists what is visible, under other numbers, and what is stated counts.
    """
    if probe.name not in {native.NVML, smi.NAME} or not probe.devices or _visible(probe.devices, env):
        return probe
    return replace(probe, outcome=Outcome.NONE, detail=f"{VARIABLE} hides every GPU of {len(probe.devices)}")


def _named(device: Device, name: str) -> bool:
    return str(device.index) == name or (name.startswith("GPU-") and device.uuid.startswith(name))
