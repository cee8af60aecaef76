"""What is new in a release for the people who install from it: one index compared with the one before."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from builder.core.arch import Capability
from builder.core.index import Index, IndexPackage
from builder.core.manifest import Driver

_NOTICEABLE = 0.01
"""Share of its bytes that an archive must change by to be told."""


def changes(old: Index, new: Index) -> Tuple[str, ...]:
    """A sentence each: packages that came and went, versions, GPUs, drivers, sizes, the model table."""
    before, after = _by_key(old), _by_key(new)
    told = [*_came_and_went(before, after)]
    for key in sorted(before.keys() & after.keys()):
        told += [f"{_title(key)}: {change}." for change in _package_changes(before[key], after[key])]
    if old.models != new.models:
        told.append("The table of model sizes has changed.")
    return tuple(told)


_Key = Tuple[str, str, str, str]


def _by_key(index: Index) -> Dict[_Key, IndexPackage]:
    """Packages by variant, platform, layout and kind of archive: what a user would take next."""
    return {_key(package): package for package in index.packages}


def _key(package: IndexPackage) -> _Key:
    kind = package.file[package.file.rindex(".tar") :]
    return (package.variant, package.platform, package.layout, kind)


def _title(key: _Key) -> str:
    variant, platform, layout, kind = key
    return f"{variant} ({platform}, {layout}, {kind})"


def _came_and_went(before: Dict[_Key, IndexPackage], after: Dict[_Key, IndexPackage]) -> Iterator[str]:
    for key in sorted(after.keys() - before.keys()):
        yield f"New: {_title(key)}."
    for key in sorted(before.keys() - after.keys()):
        yield f"Gone: {_title(key)}."


def _package_changes(old: IndexPackage, new: IndexPackage) -> Iterator[str]:
    if old.sha256 == new.sha256:
        return
    if old.onnxruntime.version != new.onnxruntime.version:
        yield f"ONNX Runtime {old.onnxruntime.version} → {new.onnxruntime.version}"
    if _how(old) != _how(new):
        yield f"ONNX Runtime is {_how(new)}; it was {_how(old)}"
    yield from _gpu_changes(old, new)
    if old.driver != new.driver:
        yield f"driver {_window(old.driver)} → {_window(new.driver)}"
    if abs(new.size - old.size) > _NOTICEABLE * old.size:
        yield f"{old.size / 1e6:.0f} MB → {new.size / 1e6:.0f} MB"


def _how(package: IndexPackage) -> str:
    ort = package.onnxruntime
    return "the official build" if ort.profile is None else f"compiled with the {ort.profile} profile"


def _gpu_changes(old: IndexPackage, new: IndexPackage) -> Iterator[str]:
    """Capabilities by what changed for them: ``none → native for 12.1``."""
    moved: Dict[Tuple[str, str], List[str]] = {}
    names: Sequence[str] = sorted({*old.capabilities, *new.capabilities}, key=Capability.parse)
    for name in names:
        pair = (old.capabilities.get(name, "none"), new.capabilities.get(name, "none"))
        if pair[0] != pair[1]:
            moved.setdefault(pair, []).append(name)
    for (was, now), capabilities in moved.items():
        yield f"{was} → {now} on compute capability {', '.join(capabilities)}"


def _window(driver: Optional[Driver]) -> str:
    if driver is None:
        return "any"
    return f"{driver.floor} or newer" + (f" up to branch {driver.ceiling}" if driver.ceiling else "")
