"""Why a package must not run on a GPU: one sentence each, ``None`` where nothing is in the way."""

from __future__ import annotations

from typing import Dict, Iterable, Optional, Tuple

from builder.core.device import Device, above_ceiling, below_floor
from builder.core.glibc import glibc_refusal
from builder.core.index import IndexPackage
from builder.core.manifest import Driver
from builder.core.missing_kernels import runs_nothing, shortcoming
from builder.core.providers import COREML, CPU, CUDA, DIRECTML

NATIVE = "native"
JIT = "jit"
PARTIAL = "partial"
NONE = "none"
RUNS = (NATIVE, JIT)
"""Best first."""

TITLES: Dict[str, str] = {CPU: "CPU", DIRECTML: "DirectML", COREML: "CoreML"}
"""The providers that need no NVIDIA GPU, as they are written."""


def refusal(
    package: IndexPackage, device: Device, platform: str, glibc: Optional[str] = None
) -> Optional[str]:
    """Why this package must not run on this GPU of this system; ``None`` when it may."""
    return system_refusal(package, platform, glibc) or gpu_refusal(package, device)


def system_refusal(package: IndexPackage, platform: str, glibc: Optional[str]) -> Optional[str]:
    """What of it has nothing to do with a GPU."""
    if package.platform != platform:
        return f"it is for {package.platform}, this machine is {platform}"
    return glibc_refusal(package, glibc)


def gpu_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """What of it is a matter of the package's code and the GPU's driver."""
    if package.provider != CUDA:
        return f"its provider is {TITLES.get(package.provider, package.provider)}, not CUDA"
    if device.capability is None:
        return f"the compute capability of {device.name} is not known; set ORTPACKS_FORCE_CC to state it"
    return code_refusal(package, device) or driver_refusal(package, device)


def gpus_refusal(package: IndexPackage, devices: Iterable[Device]) -> str:
    """Why it runs on none of these GPUs: each different reason once."""
    found = dict.fromkeys(reason for device in devices for reason in [gpu_refusal(package, device)] if reason)
    return "; ".join(found) or "no NVIDIA GPU was found"


def lacking(package: IndexPackage) -> int:
    """0 for a package that runs every operator, 1 for one that lacks kernels, 2 for one that has none."""
    missing = package.onnxruntime.cannot_run
    return bool(missing) + runs_nothing(missing)


def limits(package: IndexPackage) -> Tuple[str, ...]:
    """What does not work with this package, and what to do: one line, or none."""
    found = shortcoming(package.onnxruntime.cannot_run, package.onnxruntime.host)
    return (f"{package.name}: {found.means} {found.do}",) if found else ()


def support_of(package: IndexPackage, device: Device) -> str:
    """What the package's map says of this GPU; ``none`` for a capability it does not name."""
    return package.capabilities.get(str(device.capability), NONE)


def code_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Why the code in it does not run on this GPU."""
    support = support_of(package, device)
    if support in RUNS:
        return None
    if support == PARTIAL:
        return f"only some of its kernels run on compute capability {device.capability}"
    return f"it holds no code for compute capability {device.capability} ({device.name})"


def driver_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Why it does not run with this GPU's driver. A driver that is not known is no reason."""
    if device.driver is None or package.driver is None:
        return None
    try:
        return _outside(device.driver, package.driver)
    except ValueError as error:
        return f"its driver window cannot be held against this driver: {error}"


def _outside(driver: str, window: Driver) -> Optional[str]:
    if below_floor(driver, window.floor):
        return f"driver {driver} is too old: it needs {window.floor} or newer"
    if window.ceiling is not None and above_ceiling(driver, window.ceiling):
        return f"driver {driver} is too new: branch {window.ceiling} is the last it runs with"
    return None
