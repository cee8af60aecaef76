"""Rules that choose the package for a machine, the GPUs that a user names, and a model for a machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple

from builder.errors import ValidationError
from builder.formats.index import Index, distinct
from builder.formats.manifest import ModelRule
from builder.formats.missing_kernels import counted
from builder.formats.package_names import CUDA
from builder.gpu.devices import Device
from builder.selection.choice import PackageChoice, Rejection
from builder.selection.fallback import fall_back
from builder.selection.reasons import (
    TITLES,
    gpus_refusal,
    lacking,
    limits,
    runs_too,
    support_of,
    system_refusal,
)
from builder.selection.shares import Served, by_number, hiding_advice, served_by, total_mib, visible_devices


def select(
    devices: Sequence[Device],
    index: Index,
    platform: str,
    glibc: Optional[str] = None,
    hidden: Sequence[Device] = (),
) -> PackageChoice:
    """Return the package that serves the GPUs best (see ``selection.shares``), else one that needs no GPU.

    A package is never chosen if its ``capabilities`` state ``partial`` or ``none``, if the driver is outside
    its range, or if it needs a newer glibc. The order of ``devices`` and of the index's packages does not
    matter. A package in several layouts or forms of archive counts once: ``offers`` returns all of its
    entries.

    ``glibc`` is the system's version, ``""`` for musl, ``None`` where it is unknown. ``hidden`` are further
    GPUs of the machine that must not be used; ``visible`` leaves them out.
    """
    devices, present = by_number(devices), by_number((*devices, *hidden))
    packages = sorted(distinct(index.packages), key=lambda package: (package.name, package.file))
    candidates = [served_by(package, devices, platform, glibc) for package in packages]
    best = min((one for one in candidates if one.devices), key=lambda one: one.rank, default=None)
    if best is None:
        return replace(fall_back(devices, packages, platform, glibc), others=present)
    return PackageChoice(
        package=best.package,
        device=best.devices[0],
        support=support_of(best.package, best.devices[0]),
        reasons=tuple(_rejections(candidates, best, devices, platform, glibc)),
        summary=_summary(best, devices),
        others=tuple(device for device in present if device is not best.devices[0]),
        visible=visible_devices(best.devices, present),
        notes=(*limits(best.package), *hiding_advice(best.devices, present)),
    )


def _summary(best: Served, devices: Sequence[Device]) -> str:
    device, name = best.devices[0], best.package.name
    how = "has native code for" if device in best.native else "runs by just-in-time compilation on"
    sentences = [f"{name} {how} {device.name} (compute capability {device.capability})."]
    if len(devices) > 1:
        sentences.append(f"It runs on {len(best.devices)} of {len(devices)} GPUs here.")
    if any(one.driver is None for one in best.devices):
        sentences.append("The driver's version is not known and was not checked.")
    return " ".join(sentences)


def _rejections(
    candidates: Iterable[Served],
    best: Served,
    devices: Sequence[Device],
    platform: str,
    glibc: Optional[str],
) -> Iterator[Rejection]:
    for one in candidates:
        if one is best:
            continue
        reason = system_refusal(one.package, platform, glibc) or _why_not(one, best, devices)
        yield Rejection(one.package.name, reason)


def _why_not(one: Served, best: Served, devices: Sequence[Device]) -> str:
    if one.package.provider != CUDA:
        title = TITLES.get(one.package.provider, one.package.provider)
        return f"its provider is {title}, {best.package.name} uses the GPU"
    if not one.devices:
        return gpus_refusal(one.package, devices)
    return _why_less(one, best)


def _why_less(one: Served, best: Served) -> str:
    name = best.package.name
    if lacking(one.package) > lacking(best.package):
        missing = counted(one.package.onnxruntime.cannot_run)
        return f"it has no CUDA kernels for operators that {name} runs ({missing})"
    if one.worth == best.worth:
        return runs_too(one.package, best.package)
    if not one.native and best.native:
        return f"it runs by just-in-time compilation only, {name} has native code"
    if one.worth[:2] != best.worth[:2]:
        return f"it runs natively on {_in_words(one.native)}, {name} on {_in_words(best.native)}"
    if not one.jit:
        return f"it runs too, {name} adds {_in_words(best.jit)} by just-in-time compilation"
    return f"it runs by just-in-time compilation on {_in_words(one.jit)}, {name} on {_in_words(best.jit)}"


def _in_words(devices: Sequence[Device]) -> str:
    count = len(devices)
    return f"{count} GPU{'' if count == 1 else 's'} with {total_mib(devices):,} MiB"


def only(devices: Sequence[Device], wanted: str) -> Tuple[Device, ...]:
    """Return the devices that ``wanted`` names, in its order: indices and UUIDs, separated by commas.

    A UUID (``GPU-…``, ``MIG-…``) may be shortened as long as it matches one GPU. Raises ``ValidationError``
    with a list of the GPUs.
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


_UNIFIED = ("macos-arm64",)

_SHARE_PERCENT = 35
"""The percentage of unified memory that a model may take. The rest is for the system and the application."""


def usable_vram(platform: str, ram_mib: int, vram_mib: Optional[int]) -> Optional[int]:
    """Return the MiB of GPU memory that a model may take; ``None`` where they are unknown.

    On a platform with unified memory it is a percentage of ``ram_mib``. Elsewhere it is ``vram_mib``, the
    memory of the chosen GPU, ``None`` without a GPU or where it is unknown.
    """
    return ram_mib * _SHARE_PERCENT // 100 if platform in _UNIFIED else vram_mib


def recommend(
    models: Iterable[ModelRule], vram_mib: Optional[int], cores: int, ram_gib: int
) -> Optional[ModelRule]:
    """Return the first line whose minimums are met; ``None`` where none is.

    ``vram_mib`` is ``None`` without a GPU or where its memory is unknown.
    """
    for rule in models:
        memory_fits = rule.device != "gpu" or (vram_mib is not None and vram_mib >= rule.vram_mib)
        if memory_fits and cores >= rule.cores and ram_gib >= rule.ram_gib:
            return rule
    return None
