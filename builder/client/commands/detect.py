"""The answer of ``detect``: this machine.

GPUs, packages and choices as lines for a person and values for a program.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Dict, List

from builder.client.probe.detect import Detection, detect
from builder.client.world import Answer, Options, World, head
from builder.findings.observed import Outcome
from builder.formats.index import IndexPackage
from builder.gpu.devices import Device
from builder.selection.choice import Choice


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


def explained(choice: Choice, found: Detection) -> List[str]:
    """What was chosen, why nothing else, and what the user has to know besides."""
    lines = [choice.summary]
    lines += [f"  not {rejection.package}: {rejection.reason}" for rejection in choice.reasons]
    if not choice.on_gpu and not found.devices:
        lines += [
            f"  {probe.name}: {probe.detail}" for probe in found.probes if probe.outcome is not Outcome.FOUND
        ]
    lines += [f"  also here: {spelled(device)}" for device in choice.others if choice.on_gpu]
    lines += [f"  {note}" for note in choice.notes]
    return lines + ([f"  set CUDA_VISIBLE_DEVICES={choice.visible}"] if choice.visible else [])


def choice_value(choice: Choice) -> Dict[str, object]:
    """A choice for ``--json``."""
    return {
        "package": package_value(choice.package) if choice.package else None,
        "support": choice.support,
        "device": device_value(choice.device) if choice.device else None,
        "others": [device_value(device) for device in choice.others],
        "reasons": [{"package": item.package, "reason": item.reason} for item in choice.reasons],
        "summary": choice.summary,
        "notes": list(choice.notes),
        "cuda_visible_devices": choice.visible,
    }


def package_value(package: IndexPackage) -> Dict[str, object]:
    """A package of an index for ``--json``."""
    return {
        "name": package.name,
        "variant": package.variant,
        "provider": package.provider,
        "layout": package.layout,
        "file": package.file,
        "size": package.size,
        "sha256": package.sha256,
        "cannot_run": [asdict(missing) for missing in package.onnxruntime.cannot_run],
    }


def device_value(device: Device) -> Dict[str, object]:
    """A GPU for ``--json``."""
    return {
        "index": device.index,
        "uuid": device.uuid or None,
        "name": device.name,
        "capability": str(device.capability) if device.capability else None,
        "memory_mib": device.memory_mib,
        "driver": device.driver,
    }


def spelled(device: Device) -> str:
    """A GPU in a line."""
    return f"GPU {device.index}: {device}" + (f" {device.uuid}" if device.uuid else "")
