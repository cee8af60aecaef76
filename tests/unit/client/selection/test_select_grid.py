"""Tests of selection for every capability, driver and set of packages, and for any machines and indices.

The expected values are computed on sets of (package, capability, driver), independently of the code's method.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from builder.client.selection.select import PackageChoice, select
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage
from builder.formats.manifest import Driver
from tests.unit.client.selection.select_cases import (
    CAPABILITIES,
    LATEST,
    LEGACY,
    MODERN,
    gpu,
    package,
    plain,
    release,
)

DRIVERS = (
    *("470.256.02", "525.60", "525.60.12", "525.60.13", "570.25", "570.26"),
    *("580", "580.65.05", "580.65.06", "590", "590.44.01"),
)
"""Driver versions: both sides of every limit, and branches without more numbers."""

PTX_ONLY = package("ptx", "", jit=" ".join(CAPABILITIES[2:]), size=50, floor="570.26")

NEWEST = package("newest", "7.5 8.0 8.6 8.9 9.0 10.0 12.0", jit="11.0", size=250, floor="580.65.06")

CPU = plain("cpu")

BEST_FIRST = (PTX_ONLY, LEGACY, LATEST, NEWEST, MODERN)
"""Packages by size, smallest first, ordered by hand."""

ALL = (*BEST_FIRST, CPU)

WINDOWS = {
    "ptx": ("570.26", None),
    "legacy": ("525.60.13", 580),
    "latest": ("525.60.13", None),
    "newest": ("580.65.06", None),
    "modern": ("525.60.13", None),
}

IN_WINDOW = {
    (name, driver)
    for (name, (floor, ceiling)), driver in itertools.product(WINDOWS.items(), DRIVERS)
    if Version(driver) >= Version(floor) and (ceiling is None or Version(driver).major <= ceiling)
}

MARKED = {
    (item.name, capability, word)
    for item in BEST_FIRST
    for capability, word in item.capabilities.items()
    if word in {"native", "jit"}
}


def expected(names: Iterable[str], capability: str, driver: str) -> tuple[str, str] | None:
    """Return the expected package and support: the first package in the window that is native,
    else by JIT."""
    inside = [
        item.name for item in BEST_FIRST if item.name in set(names) and (item.name, driver) in IN_WINDOW
    ]
    ways = [
        (name, word) for word in ("native", "jit") for name in inside if (name, capability, word) in MARKED
    ]
    return ways[0] if ways else None


def test_no_choice_in_the_grid_breaks_a_rule() -> None:
    subsets = [s for size in range(len(ALL) + 1) for s in itertools.combinations(ALL, size)]
    assert (len(CAPABILITIES), len(DRIVERS), len(subsets)) == (22, 11, 64)
    on_gpu = 0
    for subset in subsets:
        index, names = release(*subset), [item.name for item in subset]
        for capability, driver in itertools.product(CAPABILITIES, DRIVERS):
            choice = select([gpu(capability, driver)], index, "linux-x64")
            wanted = expected(names, capability, driver)
            where = (names, capability, driver)
            assert len(choice.reasons) == len(subset) - (choice.package is not None), where
            if wanted is None:
                assert choice.package is (CPU if CPU in subset else None), where
                assert (choice.device, choice.support) == (None, None), where
            else:
                assert choice.package is not None, where
                assert (choice.package.name, choice.support) == wanted, where
                on_gpu += 1
    assert on_gpu > len(subsets) * 30, "both outcomes are met"


WORDS = st.sampled_from(["native", "jit", "partial", "none"])

SOME = ("3.5", "5.2", "8.6", "8.7", "12.0")

GLIBCS = st.sampled_from([None, None, "", "2.17", "2.31", "2.34", "2.39", "rolling"])

PLATFORMS = st.sampled_from([*["linux-x64"] * 6, "linux-arm64", "win-x64", "win-x64", "macos-arm64"])

WINDOW = st.builds(
    Driver,
    floor=st.sampled_from([*["525.60.13"] * 4, "550.54.14", "570.26", "580.65.06", "soon"]),
    ceiling=st.sampled_from([None, None, None, "570", "580"]),
)


SEEN = (None, *["570.26"] * 4, "470.256.02", "550.54.14", "580.95.05", "590.1", "odd")


@st.composite
def packages(draw: st.DrawFn) -> tuple[IndexPackage, ...]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 4)) == 0:
            made = plain(draw(st.sampled_from(["cpu", "directml", "coreml", "cpu", "odd"])), draw(PLATFORMS))
        else:
            marks = {capability: draw(WORDS) for capability in draw(st.permutations(SOME))[:4]}
            made = replace(
                package("p", "", size=draw(st.integers(1, 3)), platform=draw(PLATFORMS)),
                capabilities=marks,
                driver=draw(WINDOW),
            )
        name = f"{made.name}{number}"
        wanted = draw(st.sampled_from([None, "2.17", "2.34"]))
        found.append(replace(made, name=name, variant=name, file=f"{name}.tar.zst", glibc=wanted))
    return tuple(found)


@st.composite
def machines(draw: st.DrawFn) -> tuple[Device, ...]:
    return tuple(
        Device(
            index=number,
            uuid=draw(st.sampled_from([f"GPU-{number}", f"GPU-{number}", f"MIG-{number}", ""])),
            name=draw(st.sampled_from(["card", "other card"])),
            capability=draw(st.sampled_from([None, *map(Capability.parse, SOME)])),
            memory_mib=draw(st.sampled_from([None, 0, 4096, 8192, 8192, 24576])),
            driver=draw(st.sampled_from(SEEN)),
        )
        for number in range(draw(st.integers(0, 5)))
    )


def word_for(item: IndexPackage, device: Device, platform: str, glibc: str | None) -> str | None:
    """Return how a package runs on a device, or ``None``; this repeats the rules with other types."""
    word = item.capabilities.get(str(device.capability)) if device.capability else None
    lawful = (
        item.provider == "cuda"
        and item.platform == platform
        and word in {"native", "jit"}
        and loads_with(item, glibc)
        and drives(device.driver, item.driver)
    )
    return word if lawful else None


def loads_with(item: IndexPackage, glibc: str | None) -> bool:
    if glibc == "":
        return not item.platform.startswith("linux")
    return item.glibc is None or glibc in {None, "rolling"} or Version(str(glibc)) >= Version(item.glibc)


def drives(driver: str | None, window: Driver | None) -> bool:
    if driver is None or window is None:
        return True
    if window.floor == "soon" or driver == "odd":
        return False
    found = Version(driver)
    return found >= Version(window.floor) and (window.ceiling is None or found.major <= int(window.ceiling))


def scored(
    item: IndexPackage, devices: Sequence[Device], platform: str, glibc: str | None
) -> tuple[int, int, int, int]:
    totals = {"native": [0, 0], "jit": [0, 0]}
    for device in devices:
        word = word_for(item, device, platform, glibc)
        if word is not None:
            totals[word][0] += device.memory_mib or 0
            totals[word][1] += 1
    return (*totals["native"], *totals["jit"])  # type: ignore[return-value]


def hold(
    choice: PackageChoice, devices: Sequence[Device], index: Index, platform: str, glibc: str | None
) -> None:
    """Check the rules that hold for every choice."""
    assert len(choice.reasons) == len(index.packages) - (choice.package is not None)
    assert all(item.reason and "\n" not in item.reason for item in choice.reasons)
    scores = {item.name: scored(item, devices, platform, glibc) for item in index.packages}
    if choice.device is None:
        assert not any(map(any, scores.values())), "a package would have run"
        assert choice.package == instead(index, platform, glibc)
        assert (choice.support, choice.visible, choice.notes) == (None, None, ())
        return
    assert choice.package is not None
    ways = {device: word_for(choice.package, device, platform, glibc) for device in devices}
    served = [device for device in devices if ways[device]]
    assert scores[choice.package.name] == max(scores.values())
    assert choice.support == ways[choice.device]
    assert (choice.device.memory_mib or 0) == max(device.memory_mib or 0 for device in served)
    assert len(choice.others) == len(devices) - 1
    hold_line(choice, served, devices)


PROVIDERS = {"linux": ["cpu"], "win": ["directml", "cpu"], "macos": ["coreml", "cpu"]}


def instead(index: Index, platform: str, glibc: str | None) -> IndexPackage | None:
    """Return the package for a machine without a GPU: the first provider with a package, then the
    first name."""
    system = platform.split("-", maxsplit=1)[0]
    loads = [item for item in index.packages if item.platform == platform and loads_with(item, glibc)]
    for provider in PROVIDERS[system]:
        found = sorted(item.name for item in loads if item.provider == provider)  # all have the same size
        if found:
            return next(item for item in loads if item.name == found[0])
    return None


def hold_line(choice: PackageChoice, served: Sequence[Device], devices: Sequence[Device]) -> None:
    if len(served) == len(devices):
        assert (choice.visible, choice.notes) == (None, ())
    elif all(device.uuid for device in served):
        assert choice.visible is not None
        assert choice.device is not None
        named = choice.visible.split(",")
        assert set(named) == {device.uuid for device in served}
        assert (len(set(named)), named[0], choice.notes) == (len(named), choice.device.uuid, ())
    else:
        assert choice.visible is None
        assert len(choice.notes) == 1


@settings(max_examples=250, deadline=None, derandomize=True)
@given(machines(), packages(), PLATFORMS, GLIBCS, st.randoms(use_true_random=False))
def test_any_machine_and_index_give_a_lawful_choice_whatever_their_order(
    devices: tuple[Device, ...],
    listed: tuple[IndexPackage, ...],
    platform: str,
    glibc: str | None,
    chance: random.Random,
) -> None:
    index = release(*listed)
    choice = select(devices, index, platform, glibc)
    hold(choice, devices, index, platform, glibc)
    mixed_devices, mixed_packages = list(devices), list(listed)
    chance.shuffle(mixed_devices)
    chance.shuffle(mixed_packages)
    assert select(mixed_devices, release(*mixed_packages), platform, glibc) == choice


def test_twelve_packages_and_eight_gpus_take_less_than_20_ms() -> None:
    many = [
        replace(item, name=f"{item.name}-{n}", variant=f"{item.variant}-{n}") for n in (1, 2) for item in ALL
    ]
    devices = [gpu(capability, index=n, uuid=f"GPU-{n}") for n, capability in enumerate(CAPABILITIES[2:10])]
    assert (len(many), len(devices)) == (12, 8)
    index, seconds = release(*many), []
    for _ in range(15):
        start = time.process_time()
        select(devices, index, "linux-x64", "2.36")
        seconds.append(time.process_time() - start)
    assert statistics.median(seconds) < 0.020
