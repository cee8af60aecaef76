"""Test of selection for any GPUs and packages, by rules that are written anew with other types.

Drivers, systems and packages that need no GPU are in the table of ``test_select``.
"""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from builder.client.selection.select import select
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import IndexPackage
from tests.unit.client.selection.select_cases import package, release

SOME = ("3.5", "5.2", "8.6", "8.7", "12.0")

SUPPORT = st.fixed_dictionaries(
    dict.fromkeys(SOME[1:], st.sampled_from(["native", "jit", "partial", "none"]))
)

PACKAGES = st.lists(st.tuples(st.integers(1, 3), SUPPORT), max_size=6)
"""Sizes of packages, and how each runs on GPUs."""


@st.composite
def machines(draw: st.DrawFn) -> list[Device]:
    return [
        Device(
            index=number,
            uuid=draw(st.sampled_from([f"GPU-{number}", f"GPU-{number}", f"MIG-{number}", ""])),
            name=draw(st.sampled_from(["card", "other card"])),
            capability=draw(st.sampled_from([None, *map(Capability.parse, SOME)])),
            memory_mib=draw(st.sampled_from([None, 0, 4096, 8192, 8192, 24576])),
            driver="570.133.07",
        )
        for number in range(draw(st.integers(0, 5)))
    ]


def scored(item: IndexPackage, devices: list[Device]) -> list[int]:
    """Return the memory and the number of the GPUs that run native code, and of those that run PTX."""
    score = [0, 0, 0, 0]
    for device in devices:
        word = item.capabilities.get(str(device.capability))
        if word in {"native", "jit"}:
            first = 0 if word == "native" else 2
            score[first] += device.memory_mib or 0
            score[first + 1] += 1
    return score


@settings(max_examples=300, deadline=None, derandomize=True)
@given(machines(), PACKAGES, st.randoms(use_true_random=False))
def test_any_machine_and_index_give_a_lawful_choice_whatever_their_order(
    devices: list[Device], listed: list[tuple[int, dict[str, str]]], chance: random.Random
) -> None:
    packages = [
        replace(package(f"p{number}", "", size=size), capabilities=support)
        for number, (size, support) in enumerate(listed)
    ]
    choice = select(devices, release(*packages), "linux-x64")
    mixed_devices, mixed_packages = list(devices), list(packages)
    chance.shuffle(mixed_devices)
    chance.shuffle(mixed_packages)
    assert select(mixed_devices, release(*mixed_packages), "linux-x64") == choice
    scores = [scored(item, devices) for item in packages]
    if choice.device is None:
        assert not any(map(any, scores)), "a package would have run"
        return
    best = [item for item, score in zip(packages, scores, strict=True) if score == max(scores)]
    assert choice.package == min(best, key=lambda item: (item.size, item.name))
    assert len(choice.reasons) == len(packages) - 1
    served = [device for device in devices if any(scored(choice.package, [device]))]
    assert choice.device in served
    assert (choice.device.memory_mib or 0) == max(device.memory_mib or 0 for device in served)
    assert choice.support == choice.package.capabilities[str(choice.device.capability)]
    if len(served) < len(devices) and all(device.uuid for device in served):
        first, *others = str(choice.visible).split(",")
        assert first == choice.device.uuid
        assert sorted([first, *others]) == sorted(device.uuid for device in served)
        assert choice.notes == ()
    else:
        assert (choice.visible, len(choice.notes)) == (None, len(served) < len(devices))
