"""Which GPUs NVIDIA's pinned libraries hold no code for: finding C013, before anything is compiled.

A package runs where its worst library runs, so a set that one of them does not serve fails A003 at the end of
its build. Each wheel's libraries were read as ``check`` reads them; ``tests/integration`` reads them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from builder.binary.coverage import promised_by
from builder.findings.finding import Code, Finding
from builder.gpu.architectures import Arch, Capability
from builder.gpu.table import GPUS
from builder.onnxruntime.versions import sm_names

MISSING: Mapping[str, tuple[Capability, ...]] = {
    wheel: tuple(map(Capability.parse, devices.split()))
    for wheel, devices in (
        ("nvidia-cublas-cu12==12.9.1.4", "5.3 6.2 7.2 8.7 11.0"),
        ("nvidia-cufft-cu12==11.4.1.4", ""),
        ("nvidia-curand-cu12==10.3.10.19", "5.3 6.2 7.2 8.7"),
        ("nvidia-cudnn-cu12==9.10.2.21", "5.3 6.2 7.2 8.7 11.0"),
    )
}
"""By wheel, the capabilities that a library in it does not run on. Of another version nothing is known."""


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


def _unserved(sm: Sequence[Arch], missing: Sequence[Capability]) -> list[Arch]:
    return [arch for arch in sm if any(device in missing for device in promised_by(arch))]


def _cards(arches: Sequence[Arch]) -> str:
    devices = [device for arch in arches for device in promised_by(arch)]
    cards = {model.device: model.cards for model in GPUS}
    return ", ".join(f"{device} ({cards[device]})" for device in dict.fromkeys(devices))


def _are_modules(arches: Sequence[Arch]) -> bool:
    devices = {device for arch in arches for device in promised_by(arch)}
    return all(model.module for model in GPUS if model.device in devices)
