"""The answer of ``detect``: this machine."""

from __future__ import annotations

from dataclasses import asdict

from builder.client.detect import detect
from builder.client.spelling import device_value, spelled
from builder.client.world import Answer, Options, World, head


def answer_detect(world: World, options: Options) -> Answer:  # noqa: ARG001 every command has this shape
    """The GPUs and what each probe said."""
    found = detect(world.around)
    devices = [spelled(device) for device in found.devices] or ["no NVIDIA GPU"]
    probes = [f"  {probe.name}: {probe.outcome.value}: {probe.detail}" for probe in found.probes]
    value = {
        **head("detect"),
        "platform": world.platform,
        "driver": found.driver,
        "cuda": found.cuda,
        "system": asdict(found.system),
        "devices": [device_value(device) for device in found.devices],
        "probes": [
            {
                "name": probe.name,
                "outcome": probe.outcome.value,
                "detail": probe.detail,
                "code": probe.code,
                "error": probe.error,
            }
            for probe in found.probes
        ],
    }
    return Answer(value, (*devices, f"driver {found.driver or 'unknown'}", "probes:", *probes))
