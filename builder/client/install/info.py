"""The two files an application reads: what is installed, and what was found out about the machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Dict, List, Optional

from builder.client.probe.detect import Detection
from builder.formats.index import IndexPackage
from builder.formats.manifest import Manifest
from builder.formats.package_names import COREML, DIRECTML
from builder.gpu.devices import Device
from builder.selection.choice import PackageChoice

_PROVIDER = "libonnxruntime_providers_cuda.so"


@dataclass(frozen=True)
class ModelVerdict:
    """Which model the machine can hold, and whether that was tried."""

    model: Optional[str]
    device: Optional[str]
    """``gpu`` or ``cpu``: where the model goes."""
    vram_mib: Optional[int]
    """GPU memory a model may take."""
    tested: bool = False
    """Whether the model was opened."""


def package_info(
    choice: PackageChoice, package: IndexPackage, manifest: Manifest, libs: Path, now: datetime
) -> Dict[str, object]:
    """``gpu-package-info.json``; docs/client.md explains each key."""
    device = choice.device
    capability = device.capability if device else None
    return {
        "format": 1,
        "name": package.name,
        "variant": package.variant,
        "provider": package.provider,
        "layout": package.layout,
        "architectures": _architectures(manifest),
        "smVersion": capability.number if capability else None,
        "computeCap": str(capability) if capability else None,
        "gpuName": device.name if device else None,
        "support": choice.support,
        "cudaVisibleDevices": choice.visible,
        "version": package.onnxruntime.version,
        "libsPath": str(libs),
        "installedAt": now.isoformat(timespec="seconds"),
        "sha256": package.sha256,
    }


def gpu_info(
    choice: PackageChoice, found: Detection, verdict: ModelVerdict, now: datetime
) -> Dict[str, object]:
    """``gpu-info.json``; docs/client.md explains each key."""
    device = choice.device or _largest(found)
    memory = device.memory_mib if device else None
    on_gpu = verdict.device == "gpu"
    return {
        "format": 1,
        "hasGPU": bool(found.devices),
        "gpuName": device.name if device else None,
        "vramMB": memory,
        "vramGB": round(memory / 1024, 1) if memory is not None else None,
        "cudaVersion": found.cuda,
        "driverVersion": found.driver,
        "package": choice.package.name if choice.package else None,
        "recommendedModel": verdict.model,
        "tested": verdict.tested,
        "vramVerified": verdict.tested and on_gpu,
        "fallbackToCpu": not (choice.on_gpu or _other_gpu(choice)),
        "reason": choice.summary,
        "checkedAt": now.isoformat(timespec="seconds"),
    }


def _other_gpu(choice: PackageChoice) -> bool:
    """Whether the package uses whatever GPU the system offers."""
    return choice.package is not None and choice.package.provider in {DIRECTML, COREML}


def _largest(found: Detection) -> Optional[Device]:
    return max(found.devices, key=lambda device: device.memory_mib or 0, default=None)


def _architectures(manifest: Manifest) -> List[str]:
    """Native code found in the CUDA provider, as ``sm_75``."""
    provider: Optional[List[str]] = next(
        ([f"sm_{sm}" for sm in item.sass] for item in manifest.coverage if item.path.endswith(_PROVIDER)),
        None,
    )
    return provider or []
