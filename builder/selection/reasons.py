"""Why a package must not run on a GPU: one sentence each, ``None`` where nothing is in the way.

Whether a package loads with a system's C library.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Optional, Tuple

from builder.formats.index import IndexPackage
from builder.formats.manifest import Driver
from builder.formats.missing_kernels import runs_nothing, shortcoming
from builder.formats.package_names import COREML, CPU, CUDA, DIRECTML
from builder.gpu.architectures import Capability
from builder.gpu.compatibility import JIT, NATIVE, NONE, implied
from builder.gpu.devices import Device, above_ceiling, below_floor

PARTIAL = "partial"

_CUDA = re.compile(r"-cuda(\d{1,3})\.")

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
    """Why this package does not run on this system, whatever its GPUs: its platform or its C library."""
    if package.platform != platform:
        return f"it is for {package.platform}, this machine is {platform}"
    return glibc_refusal(package, glibc)


def gpu_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Why this package's code does not run on this GPU, or not with its driver."""
    if package.provider != CUDA:
        return f"its provider is {TITLES.get(package.provider, package.provider)}, not CUDA"
    if device.capability is None:
        return f"the compute capability of {device.name} is not known; set ORTPACKS_FORCE_CC to state it"
    return code_refusal(package, device) or driver_refusal(package, device)


def gpus_refusal(package: IndexPackage, devices: Iterable[Device]) -> str:
    """Why the package runs on none of these GPUs: each different reason once."""
    found = dict.fromkeys(reason for device in devices for reason in [gpu_refusal(package, device)] if reason)
    return "; ".join(found) or "no NVIDIA GPU was found"


def cuda_of(package: IndexPackage) -> int:
    """The major version of a package's CUDA, which its name tells; 0 without."""
    found = _CUDA.search(package.name)
    return int(found[1]) if found else 0


def runs_too(package: IndexPackage, chosen: IndexPackage) -> str:
    """Why of two packages that would serve alike the other one was chosen: by CUDA, by size, then by name."""
    if cuda_of(package) < cuda_of(chosen):
        return f"it runs too, {chosen.name} is for CUDA {cuda_of(chosen)}, which this driver runs"
    why = "is smaller" if chosen.size < package.size else "goes first by its name"
    return f"it runs too, {chosen.name} {why}"


def lacking(package: IndexPackage) -> int:
    """0 for a package that runs every operator, 1 for one that lacks kernels, 2 for one that has none."""
    missing = package.onnxruntime.cannot_run
    return bool(missing) + runs_nothing(missing)


def limits(package: IndexPackage) -> Tuple[str, ...]:
    """What does not work with this package, and what to do: one line, or none."""
    found = shortcoming(package.onnxruntime.cannot_run, package.onnxruntime.host)
    return (f"{package.name}: {found.means} {found.do}",) if found else ()


def support_of(package: IndexPackage, device: Device) -> str:
    """What the package's map says of this GPU, or implies of one that it does not name."""
    stated = package.capabilities.get(str(device.capability))
    if stated is not None or device.capability is None:
        return stated or NONE
    known = {Capability.parse(name): support for name, support in package.capabilities.items()}
    return implied(known, device.capability)


def code_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Why the code in it does not run on this GPU."""
    support = support_of(package, device)
    if support in RUNS:
        return None
    if support == PARTIAL:
        return f"only some of its kernels run on compute capability {device.capability}"
    return f"it holds no code for compute capability {device.capability} ({device.name})"


def driver_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Why the package does not run with this GPU's driver. A driver that is not known is no reason."""
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


MUSL = ""
"""The glibc of a Linux system without one, where ``None`` stands for a version that is not known."""

_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})+")

_KNOWN_BY = {
    "2.17": "CentOS 7",
    "2.23": "Ubuntu 16.04",
    "2.24": "Debian 9",
    "2.26": "Amazon Linux 2",
    "2.27": "Ubuntu 18.04",
    "2.28": "Debian 10",
    "2.31": "Ubuntu 20.04",
    "2.34": "RHEL 9",
    "2.35": "Ubuntu 22.04",
    "2.36": "Debian 12",
    "2.39": "Ubuntu 24.04",
    "2.41": "Debian 13",
}
"""A system of this glibc that people know by name. Source: the distributions' package lists."""


def glibc_refusal(package: IndexPackage, glibc: Optional[str]) -> Optional[str]:
    """Why the package does not load with this glibc; ``None`` when it does, or when ``glibc`` is not known.

    ``glibc``: the system's version, ``MUSL``, or ``None``.
    """
    if glibc == MUSL and package.platform.startswith("linux"):
        return "it is built for glibc, and this system's C library is musl"
    needed, found = _numbers(package.glibc), _numbers(glibc)
    if needed is None or found is None or found >= needed:
        return None
    return f"it needs glibc {package.glibc}, this system has {glibc}{_of(glibc)}"


def _numbers(version: Optional[str]) -> Optional[Tuple[int, ...]]:
    match = _VERSION.match(version or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def _of(glibc: Optional[str]) -> str:
    system = _KNOWN_BY.get(str(glibc))
    return f" ({system}'s)" if system else ""
