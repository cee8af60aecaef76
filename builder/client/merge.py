"""CUDA's devices, with what NVML knows of them and CUDA did not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Sequence, Tuple

from builder.client.child import NAMELESS
from builder.core.device import Device


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
