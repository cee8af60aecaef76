"""GPUs, driver and memory that the user states in environment variables; they overrule every probe.

``CUDA_VISIBLE_DEVICES`` for the probes that do not respect it themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional, Sequence, Tuple

from builder.errors import ConfigError
from builder.findings.observed import Outcome, Probe
from builder.gpu.architectures import Capability
from builder.gpu.devices import Device, parse_driver

NAME = "environment"

CAPABILITIES = "ORTPACKS_FORCE_CC"

DRIVER = "ORTPACKS_FORCE_DRIVER"

MEMORY = "ORTPACKS_FORCE_MEMORY"

_MOST_DIGITS = 9
"""The most digits of a size in MiB; nothing has a petabyte."""


def probe(env: Mapping[str, str]) -> Probe:
    """The GPUs of ``ORTPACKS_FORCE_CC``: ``MISSING`` where it is not set. ``ConfigError`` when malformed."""
    text = env.get(CAPABILITIES)
    if text is None:
        return Probe(NAME, Outcome.MISSING, f"{CAPABILITIES} is not set")
    if text.strip() == "none":
        return Probe(NAME, Outcome.NONE, f"{CAPABILITIES}=none")
    try:
        capabilities = [Capability.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(
            f"{CAPABILITIES}={text!r}: {error}. Write capabilities like 8.6 or 8.6,5.2, or none."
        ) from error
    devices = tuple(_device(index, capability) for index, capability in enumerate(capabilities))
    return Probe(NAME, Outcome.FOUND, f"{CAPABILITIES}={text}", devices)


def driver(env: Mapping[str, str]) -> Optional[str]:
    """The driver's version of ``ORTPACKS_FORCE_DRIVER``. ``ConfigError`` when it is none."""
    text = env.get(DRIVER)
    if text is None:
        return None
    try:
        parse_driver(text)
    except ValueError as error:
        raise ConfigError(f"{DRIVER}: {error}") from error
    return text.strip()


def memory(env: Mapping[str, str]) -> Tuple[int, ...]:
    """MiB of ``ORTPACKS_FORCE_MEMORY``: one for all GPUs, or one for each. ``ConfigError`` when malformed."""
    text = env.get(MEMORY)
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= _MOST_DIGITS and int(part) > 0 for part in parts):
        raise ConfigError(f"{MEMORY}={text!r} is not memory in MiB. Write it like 8192 or 8192,4096.")
    return tuple(int(part) for part in parts)


def with_memory(devices: Sequence[Device], sizes: Sequence[int]) -> Tuple[Device, ...]:
    """``devices`` with the stated sizes, in their order. ``ConfigError`` when there are not as many."""
    if not sizes or not devices:
        return tuple(devices)
    each = tuple(sizes) * len(devices) if len(sizes) == 1 else tuple(sizes)
    if len(each) != len(devices):
        raise ConfigError(
            f"{MEMORY} states {len(sizes)} GPUs, there are {len(devices)}. Write one size, or one for each."
        )
    return tuple(replace(device, memory_mib=size) for device, size in zip(devices, each))


def _device(index: int, capability: Capability) -> Device:
    name = f"GPU stated by {CAPABILITIES}"
    return Device(index=index, uuid="", name=name, capability=capability, memory_mib=None, driver=None)


VARIABLE = "CUDA_VISIBLE_DEVICES"


def visible(devices: Sequence[Device], env: Mapping[str, str]) -> Tuple[Device, ...]:
    """CUDA's own rule: in the order named, up to the first that fits no GPU. MIG names keep all.

    A number is the probe's own, by PCI address: CUDA counts so with ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` only.
    """
    wanted = env.get(VARIABLE)
    if wanted is None or wanted.startswith("MIG-"):
        return tuple(devices)
    shown = []
    for name in wanted.split(","):
        match = [device for device in devices if _named(device, name.strip())]
        if len(match) != 1:
            break
        shown += match
    return tuple(shown)


def filtered(probe: Probe, env: Mapping[str, str]) -> Probe:
    """``probe``, which says so where the variable hides all that it lists."""
    if not probe.devices or visible(probe.devices, env):
        return probe
    return replace(probe, outcome=Outcome.NONE, detail=f"{VARIABLE} hides every GPU of {len(probe.devices)}")


def _named(device: Device, name: str) -> bool:
    return str(device.index) == name or (name.startswith("GPU-") and device.uuid.startswith(name))
