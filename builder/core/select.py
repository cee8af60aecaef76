"""Which package this machine should run, by what is in the packages' bytes; and which model it can hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from builder.core.device import Device, above_ceiling, below_floor
from builder.core.index import LAYOUTS, Index, IndexPackage
from builder.core.naming import ARCHIVE_SUFFIXES, form_of
from builder.core.variant import ModelRule

NATIVE = "native"
JIT = "jit"
_RUNS = (NATIVE, JIT)


@dataclass(frozen=True)
class Rejection:
    """A package that was not chosen and why, in one sentence."""

    package: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """What to run. ``package`` is ``None`` for the CPU."""

    package: Optional[IndexPackage]
    device: Optional[Device]
    """The GPU the package was chosen for."""
    support: Optional[str]
    """``native`` or ``jit``; ``None`` for the CPU."""
    reasons: Tuple[Rejection, ...]
    summary: str
    """One or two sentences: what was chosen and why; for the CPU also what would change it."""
    others: Tuple[Device, ...] = ()
    """The machine's other GPUs."""
    visible: Optional[str] = None
    """``CUDA_VISIBLE_DEVICES`` that leaves only GPUs this package runs on, the chosen one first; ``None``
    where there is one GPU."""


def select(devices: Sequence[Device], index: Index, platform: str) -> Choice:
    """The best package for the GPU with the most memory that any package serves; else the CPU.

    Native code before JIT, then the smaller archive, then the name. A package whose map says ``partial`` or
    ``none``, or whose driver window leaves this driver out, is never chosen. A package that is there in
    several layouts or kinds of archive stands here once: ``offers`` has them all.
    """
    index = replace(index, packages=distinct(index.packages))
    for device in sorted(devices, key=_by_memory):
        fitting = sorted(
            (package for package in index.packages if refusal(package, device, platform) is None),
            key=lambda package: _preference(package, device),
        )
        if fitting:
            return _choice(fitting, device, devices, index, platform)
    return _cpu(devices, index, platform)


def distinct(packages: Iterable[IndexPackage]) -> Tuple[IndexPackage, ...]:
    """Each package once, in the index's order: full before thin, zstd before gzip."""
    first: Dict[Tuple[object, ...], IndexPackage] = {}
    for package in packages:
        known = first.setdefault(_identity(package), package)
        if _shape_rank(package) < _shape_rank(known):
            first[_identity(package)] = package
    return tuple(first.values())


def offers(packages: Iterable[IndexPackage], chosen: IndexPackage) -> Tuple[IndexPackage, ...]:
    """Everything that installs what ``chosen`` installs: its layouts and kinds of archive, best first."""
    same = (package for package in packages if _identity(package) == _identity(chosen))
    return tuple(sorted(same, key=_shape_rank))


def refusal(package: IndexPackage, device: Device, platform: str) -> Optional[str]:
    """Why this package must not run on this GPU; ``None`` when it may."""
    if package.platform != platform:
        return f"it is for {package.platform}, this machine is {platform}"
    if device.capability is None:
        return f"the compute capability of {device.name} is not known; set ORTPACKS_FORCE_CC to state it"
    return _code_refusal(package, device) or _driver_refusal(package, device)


def recommend(
    models: Iterable[ModelRule], vram_mib: Optional[int], cores: int, ram_gib: int
) -> Optional[ModelRule]:
    """The first line whose floors are met; ``vram_mib`` is ``None`` without a GPU or where it is unknown."""
    for rule in models:
        memory_fits = rule.device != "gpu" or (vram_mib is not None and vram_mib >= rule.vram_mib)
        if memory_fits and cores >= rule.cores and ram_gib >= rule.ram_gib:
            return rule
    return None


def support_of(package: IndexPackage, device: Device) -> str:
    """What the package's map says of this GPU; ``none`` for a capability it does not name."""
    return package.capabilities.get(str(device.capability), "none")


def _code_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    support = support_of(package, device)
    if support in _RUNS:
        return None
    if support == "partial":
        return f"only some of its kernels run on compute capability {device.capability}"
    return f"it holds no code for compute capability {device.capability} ({device.name})"


def _driver_refusal(package: IndexPackage, device: Device) -> Optional[str]:
    if device.driver is None:
        return None
    if below_floor(device.driver, package.driver.floor):
        return f"driver {device.driver} is too old: it needs {package.driver.floor} or newer"
    if package.driver.ceiling is not None and above_ceiling(device.driver, package.driver.ceiling):
        return f"driver {device.driver} is too new: branch {package.driver.ceiling} is the last it runs with"
    return None


def _identity(package: IndexPackage) -> Tuple[object, ...]:
    """What is the same in every layout and kind of archive of one package."""
    return (package.variant, package.platform, package.onnxruntime)


def _shape_rank(package: IndexPackage) -> Tuple[int, int]:
    return (LAYOUTS.index(package.layout), ARCHIVE_SUFFIXES.index(form_of(package.file).value))


def _by_memory(device: Device) -> Tuple[int, int]:
    return (-(device.memory_mib or 0), device.index)


def _preference(package: IndexPackage, device: Device) -> Tuple[int, int, str]:
    return (_RUNS.index(support_of(package, device)), package.size, package.name)


def _choice(
    fitting: Sequence[IndexPackage], device: Device, devices: Sequence[Device], index: Index, platform: str
) -> Choice:
    package = fitting[0]
    support = support_of(package, device)
    how = "has native code for" if support == NATIVE else "runs by just-in-time compilation on"
    unknown = "" if device.driver else " The driver's version is not known and was not checked."
    return Choice(
        package=package,
        device=device,
        support=support,
        reasons=tuple(_rejections(index.packages, package, device, platform)),
        summary=f"{package.name} {how} {device.name} (compute capability {device.capability}).{unknown}",
        others=tuple(other for other in devices if other is not device),
        visible=_visible(package, device, devices, platform),
    )


def _rejections(
    packages: Iterable[IndexPackage], chosen: IndexPackage, device: Device, platform: str
) -> Iterable[Rejection]:
    for package in packages:
        if package is chosen:
            continue
        reason = refusal(package, device, platform)
        yield Rejection(package.name, reason or _why_less(package, chosen, device))


def _why_less(package: IndexPackage, chosen: IndexPackage, device: Device) -> str:
    if support_of(package, device) != support_of(chosen, device):
        return f"it runs by just-in-time compilation only, {chosen.name} has native code"
    return f"it runs too, {chosen.name} is smaller"


def _visible(
    package: IndexPackage, device: Device, devices: Sequence[Device], platform: str
) -> Optional[str]:
    served = [other for other in devices if other is not device and refusal(package, other, platform) is None]
    names = [item.uuid for item in (device, *served)]
    return ",".join(names) if len(devices) > 1 and all(names) else None


def _cpu(devices: Sequence[Device], index: Index, platform: str) -> Choice:
    reasons = [
        Rejection(package.name, reason)
        for device in devices
        for package in index.packages
        for reason in [refusal(package, device, platform)]
        if reason is not None
    ]
    return Choice(
        package=None,
        device=None,
        support=None,
        reasons=tuple(reasons),
        summary=_why_cpu(devices, index, platform),
        others=tuple(devices),
    )


def _why_cpu(devices: Sequence[Device], index: Index, platform: str) -> str:
    if not devices:
        return (
            "CPU: no NVIDIA GPU was found. If there is one, its driver is missing or hidden from this "
            "process; `detect` shows what each probe said."
        )
    if all(package.platform != platform for package in index.packages):
        return f"CPU: this release has no GPU package for {platform}."
    cards = "; ".join(str(device) for device in devices)
    ways = _ways_out(devices, index, platform)
    return " ".join([f"CPU: no package of this release runs on {cards}.", *ways])


def _ways_out(devices: Iterable[Device], index: Index, platform: str) -> List[str]:
    """What would change it: another driver, where only its version is in the way."""
    ways = [
        f"With another driver {package.name} would run: {reason}."
        for device in devices
        for package in index.packages
        if package.platform == platform and device.capability and _code_refusal(package, device) is None
        for reason in [_driver_refusal(package, device)]
        if reason is not None
    ]
    return ways or ["A package that is built for this compute capability would change that."]
