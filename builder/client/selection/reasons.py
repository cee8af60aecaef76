"""Rules for whether a package may run on a GPU and a system.

Each returns the reason against it in one sentence, or ``None`` where there is none.
"""

from __future__ import annotations

import json
import pkgutil
import re
from typing import Dict, Iterable, Optional, Sequence, Tuple

from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.compatibility import JIT, NATIVE, NONE, PARTIAL, implied
from builder.facts.gpu.devices import Device, above_ceiling, below_floor
from builder.formats.index import IndexPackage
from builder.formats.manifest import Driver
from builder.formats.missing_kernels import consequence_of, runs_nothing
from builder.formats.package_names import COREML, CPU, CUDA, DIRECTML, MUSL

_CUDA = re.compile(r"-cuda(\d{1,3})\.")

RUNS = (NATIVE, JIT)
"""The kinds of support with which a package runs, best first."""

TITLES: Dict[str, str] = {CPU: "CPU", DIRECTML: "DirectML", COREML: "CoreML"}
"""The providers that need no NVIDIA GPU, with their names in messages."""


def refusal(
    package: IndexPackage, device: Device, platform: str, glibc: Optional[str] = None
) -> Optional[str]:
    """Return why the package must not run on this GPU of this system; ``None`` where it may."""
    return system_refusal(package, platform, glibc) or gpu_refusal(package, device)


def system_refusal(package: IndexPackage, platform: str, glibc: Optional[str]) -> Optional[str]:
    """Return why the package does not run on this system: its platform or C library; else ``None``."""
    if package.platform != platform:
        return f"it is for {package.platform}, this machine is {platform}"
    return glibc_refusal(package, glibc)


def gpu_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Return why the package does not run on this GPU or with its driver; ``None`` where it does."""
    if package.provider != CUDA:
        return f"its provider is {TITLES.get(package.provider, package.provider)}, not CUDA"
    if device.capability is None:
        return f"the compute capability of {device.name} is not known; set ORTPACKS_FORCE_CC to state it"
    return code_refusal(package, device) or driver_refusal(package, device)


def gpus_refusal(package: IndexPackage, devices: Iterable[Device]) -> str:
    """Return why the package runs on none of these GPUs, with each different reason once."""
    refusals = dict.fromkeys(filter(None, (gpu_refusal(package, device) for device in devices)))
    return "; ".join(refusals) or "no NVIDIA GPU was found"


def cuda_of(package: IndexPackage) -> int:
    """Return the major version of CUDA in a package's name; 0 where it has none."""
    match = _CUDA.search(package.name)
    return int(match[1]) if match else 0


def runs_too(package: IndexPackage, chosen: IndexPackage) -> str:
    """Return why, of two packages of equal worth, ``chosen`` was taken: by CUDA, by size, then by name."""
    if cuda_of(package) < cuda_of(chosen):
        return f"it runs too, {chosen.name} is for CUDA {cuda_of(chosen)}, which this driver runs"
    why = "is smaller" if chosen.size < package.size else "goes first by its name"
    return f"it runs too, {chosen.name} {why}"


def lacking(package: IndexPackage) -> int:
    """Return 0 for a package that runs every operator, 1 where kernels are missing, 2 where all are."""
    missing = package.onnxruntime.cannot_run
    return bool(missing) + runs_nothing(missing)


def limits(package: IndexPackage, devices: Sequence[Device] = ()) -> Tuple[str, ...]:
    """Return a line for each limit of operators, with its remedy; empty for a package with all kernels.

    ``devices``: the GPUs that it will run on; empty for all.
    """
    consequence = consequence_of(package.onnxruntime.cannot_run, package.onnxruntime.host)
    lines = [f"{package.name}: {consequence.means} {consequence.do}"] if consequence else []
    known = [device.capability for device in devices if device.capability]
    lines += [
        f"{package.name}: below compute capability {missing.below} these operators do not run: "
        f"{', '.join(missing.operators)}. Their nodes are left to the CPU, or the session fails and names "
        "them."
        for missing in package.onnxruntime.cannot_run_below
        if not known or min(known) < Capability.parse(missing.below)
    ]
    return tuple(lines)


def support_of(package: IndexPackage, device: Device) -> str:
    """Return the support that the package's ``capabilities`` state or imply for this GPU."""
    stated = package.capabilities.get(str(device.capability))
    if stated is not None or device.capability is None:
        return stated or NONE
    known = {Capability.parse(name): support for name, support in package.capabilities.items()}
    return implied(known, device.capability)


def code_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Return why the package's code does not run on this GPU; ``None`` where it does."""
    support = support_of(package, device)
    if support in RUNS:
        return None
    if support == PARTIAL:
        return f"only some of its kernels run on compute capability {device.capability}"
    return f"it holds no code for compute capability {device.capability} ({device.name})"


def driver_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    """Return why the package does not run with this GPU's driver; ``None`` where it does.

    An unknown driver version is no reason.
    """
    if device.driver is None or package.driver is None:
        return None
    try:
        return _outside(device.driver, package.driver)
    except ValueError as error:
        return f"its driver window cannot be compared with this driver: {error}"


def _outside(driver: str, window: Driver) -> Optional[str]:
    if below_floor(driver, window.floor):
        return f"driver {driver} is too old: it needs {window.floor} or newer"
    if window.ceiling is not None and above_ceiling(driver, window.ceiling):
        return f"driver {driver} is too new: branch {window.ceiling} is the last it runs with"
    return None


_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})+")

_TABLES = json.loads(pkgutil.get_data(__name__, "reasons.json") or b"")

_KNOWN_BY: Dict[str, str] = _TABLES["glibc"]
"""A well-known system for each glibc version. Source: the distributions' package lists."""


def glibc_refusal(package: IndexPackage, glibc: Optional[str]) -> Optional[str]:
    """Return why the package does not load with this glibc; ``None`` where it does or that is unknown.

    ``glibc`` is the system's version, ``MUSL``, or ``None`` where it is unknown.
    """
    if glibc == MUSL and package.platform.startswith("linux"):
        return "it is built for glibc, and this system's C library is musl"
    needed, here = numbers(package.glibc), numbers(glibc)
    if needed is None or here is None or here >= needed:
        return None
    return f"it needs glibc {package.glibc}, this system has {glibc}{_of(glibc)}"


def numbers(version: Optional[str]) -> Optional[Tuple[int, ...]]:
    """Return the parts of a version; ``None`` for any other text."""
    match = _VERSION.match(version or "")
    return tuple(int(part) for part in match[0].split(".")) if match else None


def _of(glibc: Optional[str]) -> str:
    system = _KNOWN_BY.get(str(glibc))
    return f" ({system}'s)" if system else ""
