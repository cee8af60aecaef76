"""The package for a machine without a GPU that a CUDA package runs on, with the reason and the remedy."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from builder.formats.index import IndexPackage
from builder.formats.package_names import COREML, CPU, CUDA, DIRECTML
from builder.gpu.devices import Device
from builder.selection.choice import PackageChoice, Rejection
from builder.selection.reasons import (
    TITLES,
    code_refusal,
    driver_refusal,
    glibc_refusal,
    gpus_refusal,
    runs_too,
    system_refusal,
)

_BY_SYSTEM: Dict[str, Tuple[str, ...]] = {"linux": (CPU,), "win": (DIRECTML, CPU), "macos": (COREML, CPU)}
"""Providers that need no NVIDIA GPU, best first, by the first part of a platform's name."""

_NO_GPU = (
    "no NVIDIA GPU was found. If there is one, its driver is missing or hidden from this process; `detect` "
    "shows what each probe said."
)

_NO_CUDA = "there is no CUDA for macOS."


def fall_back(
    devices: Sequence[Device], packages: Sequence[IndexPackage], platform: str, glibc: Optional[str]
) -> PackageChoice:
    """Return the choice of a package for this platform that needs no NVIDIA GPU.

    Its ``package`` is ``None`` where the release has none. ``devices`` and ``packages`` are in the order in
    which reasons name them.
    """
    fitting = [package for package in packages if _refusal(package, platform, glibc) is None]
    known = _providers(platform)
    chosen = min(fitting, key=lambda one: (known.index(one.provider), one.size, one.name), default=None)
    title = TITLES[chosen.provider if chosen else CPU]
    instead = [f"{chosen.name} is taken instead."] if chosen else []
    return PackageChoice(
        package=chosen,
        device=None,
        support=None,
        reasons=tuple(_rejections(packages, chosen, devices, platform, glibc)),
        summary=" ".join([f"{title}:", *_why(devices, packages, platform, glibc), *instead]),
    )


def _providers(platform: str) -> Tuple[str, ...]:
    return _BY_SYSTEM.get(platform.partition("-")[0], (CPU,))


def _refusal(package: IndexPackage, platform: str, glibc: Optional[str]) -> Optional[str]:
    if package.provider not in _providers(platform):
        title = TITLES.get(package.provider, package.provider)
        return system_refusal(package, platform, glibc) or f"{title} is not for {platform}"
    return system_refusal(package, platform, glibc)


def _rejections(
    packages: Iterable[IndexPackage],
    chosen: Optional[IndexPackage],
    devices: Sequence[Device],
    platform: str,
    glibc: Optional[str],
) -> Iterator[Rejection]:
    for package in packages:
        if package is chosen:
            continue
        if package.provider == CUDA:
            reason = system_refusal(package, platform, glibc) or gpus_refusal(package, devices)
        else:
            # Where any package would run, ``chosen`` is not None.
            reason = _refusal(package, platform, glibc) or _why_less(package, chosen or package)
        yield Rejection(package.name, reason)


def _why_less(package: IndexPackage, chosen: IndexPackage) -> str:
    if chosen.provider == package.provider:
        return runs_too(package, chosen)
    title = TITLES[chosen.provider]
    return f"it runs too, {chosen.name} is for {title}, which goes first on {package.platform}"


def _why(
    devices: Sequence[Device], packages: Sequence[IndexPackage], platform: str, glibc: Optional[str]
) -> List[str]:
    mine = [package for package in packages if package.provider == CUDA and package.platform == platform]
    if platform.startswith("macos"):
        return [_NO_CUDA]
    if not devices:
        return [_NO_GPU]
    if not mine:
        return [f"this release has no GPU package for {platform}; one would change that."]
    cards = "; ".join(dict.fromkeys(str(device) for device in devices))
    return [f"no package of this release runs on {cards}.", *_ways_out(devices, mine, glibc)]


def _ways_out(
    devices: Sequence[Device], packages: Iterable[IndexPackage], glibc: Optional[str]
) -> Iterable[str]:
    """Return sentences with changes that would make a package run: another driver or system, else code."""
    ways = list(filter(None, (_way(package, devices, glibc) for package in packages)))
    if ways:
        return ways
    if any(device.capability is None for device in devices):
        return ["Stating the compute capability with ORTPACKS_FORCE_CC would change that."]
    return ["A package that is built for such a compute capability would change that."]


def _way(package: IndexPackage, devices: Sequence[Device], glibc: Optional[str]) -> Optional[str]:
    runs = [device for device in devices if device.capability and code_refusal(package, device) is None]
    if not runs:
        return None
    drivers = filter(None, (driver_refusal(package, device) for device in runs))
    systems = filter(None, [glibc_refusal(package, glibc)])
    found = {**dict.fromkeys(systems, "another system"), **dict.fromkeys(drivers, "another driver")}
    means = " and ".join(dict.fromkeys(found.values()))
    return f"With {means} {package.name} would run: {'; '.join(found)}."
