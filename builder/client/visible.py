"""``CUDA_VISIBLE_DEVICES`` for the probes that do not respect it themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Sequence, Tuple

from builder.client.probes import Outcome, Probe
from builder.core.device import Device

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
