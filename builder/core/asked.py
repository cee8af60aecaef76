"""The GPUs a user names: ``--device 0``, ``--device GPU-4f0c``, ``--device 0,2``."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from builder.core.device import Device
from builder.errors import ValidationError


def only(devices: Sequence[Device], wanted: str) -> Tuple[Device, ...]:
    """Those of ``devices`` that ``wanted`` names, in its order: numbers and UUIDs, separated by commas.

    A UUID (``GPU-…``, ``MIG-…``) may be cut short as long as it means one GPU. Raises ``ValidationError``,
    which names what there is.
    """
    return tuple(dict.fromkeys(_named(devices, part.strip()) for part in wanted.split(",")))


def _named(devices: Sequence[Device], name: str) -> Device:
    found = _matching(devices, name)
    if len(found) == 1:
        return found[0]
    problem = f"means {len(found)} GPUs" if found else "is no GPU of this machine"
    raise ValidationError(f"--device {name or '(empty)'} {problem}. {_inventory(found or devices)}")


def _matching(devices: Sequence[Device], name: str) -> List[Device]:
    if name.isdecimal():
        return [device for device in devices if str(device.index) == name]
    lowered = name.lower()
    exact = [device for device in devices if lowered and device.uuid.lower() == lowered]
    return exact or [device for device in devices if lowered and device.uuid.lower().startswith(lowered)]


def _inventory(devices: Sequence[Device]) -> str:
    if not devices:
        return "No NVIDIA GPU was found; `detect` shows what each probe said."
    known = "; ".join(f"{device.index}: {device.uuid or 'no UUID'}, {device.name}" for device in devices)
    return f"By number or UUID: {known}."
