"""Rules for the GPUs that NVIDIA's pinned libraries hold no code for (C013, C014), before a build starts.

A package runs only where its worst library runs, so a set with a GPU that one library does not serve would
fail A003 at the end of the build. ``./run lock`` reads the libraries of each wheel that it pins, like
``check``, and writes the capabilities that they lack to ``DATA``; ``tests/integration`` reads the libraries
again and compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from builder.binary.coverage import LibraryCoverage, Support, promised_by
from builder.findings.finding import Code, Finding, Severity
from builder.formats.json_values import json_text
from builder.gpu.architectures import Arch, Capability
from builder.gpu.table import BY_CAPABILITY, DEVICES
from builder.onnxruntime.versions import sm_names

DATA = "builder/rules/nvidia_libraries.json"
"""The file of the capabilities that wheels lack, from the project's root; ``./run lock`` writes it."""

MISSING: Mapping[str, tuple[Capability, ...]] = {
    wheel: tuple(map(Capability.parse, devices))
    for wheel, devices in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}
"""The capabilities that a library of a wheel does not run on, by the wheel's ``NAME==VERSION[@PLATFORM]``."""


def missing_in(coverages: Sequence[LibraryCoverage]) -> tuple[Capability, ...]:
    """Return the capabilities that run one of a wheel's libraries neither natively nor by JIT."""
    runnable = [coverage for coverage in coverages if coverage.runnable]
    lost = (Support.PARTIAL, Support.NONE)
    return tuple(device for device in DEVICES if any(one.support[device] in lost for one in runnable))


def dumps(missing: Mapping[str, Sequence[Capability]]) -> str:
    """Return the JSON text of ``DATA``."""
    found = {wheel: list(map(str, devices)) for wheel, devices in sorted(missing.items())}
    return json_text(found)


def check_served(path: str, sm: Sequence[Arch], wheels: Iterable[str]) -> Iterator[Finding]:
    """Yield C013 for the architectures of ``sm`` that a pinned wheel holds no code for.

    ``path``: the key of the set in ``variants.yaml``. ``wheels``: pinned wheels, named as in ``MISSING``.
    """
    lacking = {wheel: _unserved_architectures(sm, MISSING.get(wheel, ())) for wheel in wheels}
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


def check_is_read(wheels: Iterable[str]) -> Iterator[Finding]:
    """Yield the warning C014 for each pinned wheel that ``MISSING`` does not name."""
    for wheel in wheels:
        if wheel not in MISSING:
            yield Finding(
                code=Code.C014,
                path=wheel,
                message="which GPUs its libraries serve is not known before the package is checked",
                wanted="./run lock, which pins and reads it",
                severity=Severity.WARNING,
            )


def _unserved_architectures(sm: Sequence[Arch], missing: Sequence[Capability]) -> list[Arch]:
    return [arch for arch in sm if any(device in missing for device in promised_by(arch))]


def _cards(arches: Sequence[Arch]) -> str:
    devices = [device for arch in arches for device in promised_by(arch)]
    return ", ".join(f"{device} ({BY_CAPABILITY[device].cards})" for device in dict.fromkeys(devices))


def _are_modules(arches: Sequence[Arch]) -> bool:
    devices = {device for arch in arches for device in promised_by(arch)}
    return all(BY_CAPABILITY[device].module for device in devices)
