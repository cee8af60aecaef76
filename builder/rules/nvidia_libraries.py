"""Which GPUs NVIDIA's pinned libraries hold no code for: finding C013, before anything is compiled.

A package runs where its worst library runs, so a set that one of them does not serve would fail A003 at the
end of its build. ``./run lock`` reads the libraries of each wheel that it pins as ``check`` does, and writes
down what they lack beside this module; ``tests/integration`` reads them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support, promised_by
from builder.findings.finding import Code, Finding, Severity
from builder.gpu.architectures import Arch, Capability
from builder.gpu.table import DEVICES, GPUS
from builder.onnxruntime.versions import sm_names

DATA = "builder/rules/nvidia_libraries.json"
"""Of the project, by its root; ``./run lock`` writes it."""

MISSING: Mapping[str, tuple[Capability, ...]] = {
    wheel: tuple(map(Capability.parse, devices))
    for wheel, devices in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}
"""By wheel, the capabilities that a library in it does not run on. Of another version nothing is known."""


def missing_in(coverages: Sequence[LibraryCoverage]) -> tuple[Capability, ...]:
    """The capabilities that one of a wheel's libraries does not run on, natively or by JIT."""
    runnable = [coverage for coverage in coverages if coverage.runnable]
    lost = (Support.PARTIAL, Support.NONE)
    return tuple(device for device in DEVICES if any(one.support[device] in lost for one in runnable))


def dumps(missing: Mapping[str, Sequence[Capability]]) -> str:
    """The text of ``DATA``."""
    found = {wheel: list(map(str, devices)) for wheel, devices in sorted(missing.items())}
    return json.dumps(found, indent=2) + "\n"


def hold_libraries(path: str, sm: Sequence[Arch], wheels: Iterable[str]) -> Iterator[Finding]:
    """C013 for the architectures of the set at key ``path`` that a pinned wheel holds nothing for."""
    lacking = {wheel: _unserved(sm, MISSING.get(wheel, ())) for wheel in wheels}
    found = sorted({arch for arches in lacking.values() for arch in arches})
    if not found:
        return
    by = ", ".join(wheel for wheel, arches in lacking.items() if arches)
    kept = [arch for arch in sm if arch not in found]
    numbers = " ".join(map(str, kept))
    yield Finding(
        code=Code.C013,
        path=path,
        message=f"no code for {_cards(found)} in {by} (read from their bytes): what is compiled for it would "
        "never run"
        + (". Jetson modules are ARM machines, packages are for x86-64" if _are_modules(found) else ""),
        wanted=f"the set {numbers}" if kept else "a set of cards: docs/variants.md names them all",
        got=sm_names(found),
    )


def hold_read(wheels: Iterable[str]) -> Iterator[Finding]:
    """C014 for each pinned wheel whose libraries were not read: what they lack shows after the compile."""
    for wheel in wheels:
        if wheel not in MISSING:
            yield Finding(
                code=Code.C014,
                path=wheel,
                message="which GPUs its libraries serve is not known before the package is checked",
                wanted="./run lock, which pins and reads it",
                severity=Severity.WARNING,
            )


def _unserved(sm: Sequence[Arch], missing: Sequence[Capability]) -> list[Arch]:
    return [arch for arch in sm if any(device in missing for device in promised_by(arch))]


def _cards(arches: Sequence[Arch]) -> str:
    devices = [device for arch in arches for device in promised_by(arch)]
    cards = {model.device: model.cards for model in GPUS}
    return ", ".join(f"{device} ({cards[device]})" for device in dict.fromkeys(devices))


def _are_modules(arches: Sequence[Arch]) -> bool:
    devices = {device for arch in arches for device in promised_by(arch)}
    return all(model.module for model in GPUS if model.device in devices)
