"""The command ``detect`` shows the GPUs of this machine. It imports no module that chooses packages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Dict, Optional

from builder.client.context import CommandAnswer, CommandContext
from builder.client.probe.detect import detect
from builder.facts.gpu.devices import Device, profile_of


def answer_detect(context: CommandContext) -> CommandAnswer:
    """Show the GPUs and the answer of each probe."""
    detection = detect(context.around)
    devices = [device_line(device) for device in detection.devices] or ["no NVIDIA GPU"]
    probes = [
        f"  {probe.name}: {probe.outcome.value}: {probe.detail}" for probe in detection.replies.values()
    ]
    value = {
        "platform": context.platform,
        "driver": detection.driver,
        "cuda": detection.cuda,
        "system": asdict(detection.system),
        "devices": [device_value(device) for device in detection.devices],
        "probes": [
            {
                "name": probe.name,
                "outcome": probe.outcome.value,
                "detail": probe.detail,
                "code": probe.code,
                "error": probe.error,
            }
            for probe in detection.replies.values()
        ],
    }
    return CommandAnswer(value, (*devices, f"driver {detection.driver or 'unknown'}", "probes:", *probes))


def device_value(device: Device) -> Dict[str, object]:
    """Return a GPU as a value for ``--json``."""
    return {
        "index": device.index,
        "uuid": device.uuid or None,
        "name": device.name,
        "capability": str(device.capability) if device.capability else None,
        "memory_mib": device.memory_mib,
        "free_mib": device.free_mib,
        "driver": device.driver,
        "profile": profile_value(device),
    }


def profile_value(device: Optional[Device]) -> Optional[Dict[str, object]]:
    """Return a GPU's session settings for ``--json``; ``None`` where its compute capability is unknown."""
    if device is None or device.capability is None:
        return None
    usable = device.memory_mib if device.free_mib is None else device.free_mib
    return profile_of(device.capability, usable).value()


def device_line(device: Device) -> str:
    """Return a GPU as a line of text."""
    free = f", {device.free_mib} MiB free" if device.free_mib is not None else ""
    return f"GPU {device.index}: {device}{free}" + (f" {device.uuid}" if device.uuid else "")
