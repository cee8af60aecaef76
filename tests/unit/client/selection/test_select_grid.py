"""Tests of selection for any machines and indices, by rules that are written anew with other types."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from builder.client.selection.select import PackageChoice, select
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage
from builder.formats.manifest import Driver
from tests.unit.client.selection.select_cases import package, plain, release

WORDS = st.sampled_from(["native", "jit", "partial", "none"])

SOME = ("3.5", "5.2", "8.6", "8.7", "12.0")

GLIBCS = st.sampled_from([None, None, "", "2.17", "2.31", "2.34", "2.39", "rolling"])

PLATFORMS = st.sampled_from([*["linux-x64"] * 6, "linux-arm64", "win-x64", "win-x64", "macos-arm64"])

WINDOW = st.builds(
    Driver,
    floor=st.sampled_from([*["525.60.13"] * 4, "550.54.14", "570.26", "580.65.06", "soon"]),
    ceiling=st.sampled_from([None, None, None, "570", "580"]),
)


SEEN = (
    *(None, "odd", "470.256.02", "525.60", "525.60.12", "525.60.13", "550.54.14", "570.25"),
    *(*["570.26"] * 4, "580", "580.65.05", "580.65.06", "580.95.05", "590", "590.1"),
)
"""Driver versions: both sides of every limit, and branches without more numbers."""


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
    best = [item for item in index.packages if scores[item.name] == max(scores.values())]
    assert choice.package == min(best, key=lambda item: (item.size, item.name))
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


@settings(max_examples=300, deadline=None, derandomize=True)
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
