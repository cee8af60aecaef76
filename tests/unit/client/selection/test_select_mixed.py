"""Tests of machines with several GPUs, and of GPUs that the user names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.client.selection.select import only, select
from builder.errors import ValidationError
from tests.unit.client.selection.select_cases import INDEX, LATEST, LEGACY, MODERN, gpu, package, release

OLD = gpu("5.2", memory=4096, index=0, uuid="GPU-old")

NEW = gpu("8.6", memory=24576, index=1, uuid="GPU-new")

TWIN = gpu("8.0", memory=16384, index=2, uuid="GPU-twin")


def test_the_package_for_the_most_memory_and_the_rest_is_hidden() -> None:
    choice = select([OLD, NEW, TWIN], INDEX, "linux-x64")
    assert (choice.package, choice.device) == (MODERN, NEW)
    assert choice.others == (OLD, TWIN)
    assert choice.visible == "GPU-new,GPU-twin"
    assert "It runs on 2 of 3 GPUs here." in choice.summary
    assert choice.notes == ()


def test_two_middling_cards_outweigh_a_large_one() -> None:
    large = gpu("12.0", memory=24576, index=0, uuid="GPU-5090")
    pair = [gpu("8.6", memory=16384, index=number, uuid=f"GPU-{number}") for number in (1, 2)]
    choice = select([large, *pair], INDEX, "linux-x64")
    assert (choice.package, choice.device, choice.visible) == (MODERN, pair[0], "GPU-1,GPU-2")
    reasons = {item.package: item.reason for item in choice.reasons}
    # 2 x 16384 = 32768 MiB.
    assert reasons["latest"] == (
        "it runs natively on 1 GPU with 24,576 MiB, modern on 2 GPUs with 32,768 MiB"
    )


def test_a_large_card_that_nothing_serves_does_not_take_the_small_one_down() -> None:
    kepler = gpu("3.5", memory=24576, index=0, uuid="GPU-k80")
    pascal = gpu("6.1", memory=4096, index=1, uuid="GPU-p4")
    choice = select([kepler, pascal], INDEX, "linux-x64")
    assert (choice.package, choice.device, choice.visible) == (LEGACY, pascal, "GPU-p4")


def test_nothing_is_hidden_where_every_card_is_served() -> None:
    choice = select([NEW, TWIN], INDEX, "linux-x64")
    assert (choice.package, choice.device, choice.visible, choice.notes) == (MODERN, NEW, None, ())


def test_native_memory_counts_before_memory_by_jit() -> None:
    by_jit = package("jit", "", jit="8.0 8.6")
    native = package("native", "8.0")
    choice = select([NEW, TWIN], release(by_jit, native), "linux-x64")
    assert (choice.package, choice.device, choice.support) == (native, TWIN, "native")


def test_of_as_much_native_memory_the_one_that_runs_more_by_jit() -> None:
    alone = package("alone", "8.0", size=1)
    both = package("both", "8.0", jit="8.6", size=2)
    choice = select([NEW, TWIN], release(alone, both), "linux-x64")
    assert (choice.package, choice.device, choice.support) == (both, NEW, "jit")
    assert [item.reason for item in choice.reasons] == [
        "it runs too, both adds 1 GPU with 24,576 MiB by just-in-time compilation"
    ]


def test_memory_that_is_not_known_counts_as_none_but_its_gpu_counts() -> None:
    unknown = [gpu("12.0", memory=None, index=number, uuid=f"GPU-{number}") for number in (0, 1)]
    one = gpu("8.6", memory=None, index=2, uuid="GPU-2")
    small = gpu("8.6", memory=1, index=3, uuid="GPU-3")
    assert select([one, *unknown], INDEX, "linux-x64").package is LATEST
    assert select([small, *unknown], INDEX, "linux-x64").package is MODERN
    other = replace(one, index=4, uuid="GPU-4")
    assert select([one, other, unknown[0]], INDEX, "linux-x64").package is MODERN, "2 GPUs, though larger"


def test_by_jit_too_memory_decides_before_the_number_of_gpus_and_that_before_the_size() -> None:
    eight = [gpu("8.0", memory=8192, index=number, uuid=f"GPU-{number}") for number in (0, 1)]
    large = gpu("8.6", memory=24576, index=2, uuid="GPU-2")
    two, one = package("two", "", jit="8.0", size=1), package("one", "", jit="8.6", size=2)
    assert select([*eight, large], release(two, one), "linux-x64").package is one
    unknown = [replace(device, memory_mib=None) for device in (*eight, large)]
    two, one = replace(two, size=2), replace(one, size=1)
    assert select(unknown, release(two, one), "linux-x64").package is two


def test_without_a_uuid_no_line_is_given_but_what_to_do() -> None:
    stated = [gpu("8.6", index=0, uuid=""), gpu("5.2", index=1, uuid="")]
    choice = select(stated, release(MODERN), "linux-x64")
    assert choice.visible is None
    assert len(choice.notes) == 1
    assert choice.notes[0].startswith("Hide GPU 1 (card 1) from the application with CUDA_VISIBLE_DEVICES.")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in choice.notes[0]


def test_a_hidden_card_needs_no_uuid() -> None:
    stated = [gpu("8.6", index=0, uuid="GPU-a"), gpu("5.2", index=1, uuid="")]
    choice = select(stated, release(MODERN), "linux-x64")
    assert (choice.visible, choice.notes) == ("GPU-a", ())


def test_the_same_uuid_stands_once_in_the_line() -> None:
    """CUDA sees no GPU at all when one is named twice."""
    twice = [gpu("8.6", index=0), gpu("8.6", index=1), gpu("5.2", index=2, uuid="GPU-b")]
    assert select(twice, release(MODERN), "linux-x64").visible == "GPU-a"


def test_cards_that_were_not_asked_for_are_hidden() -> None:
    choice = select([TWIN], INDEX, "linux-x64", hidden=[OLD, NEW])
    assert (choice.device, choice.visible, choice.others) == (TWIN, "GPU-twin", (OLD, NEW))
    alone = select([OLD], release(MODERN), "linux-x64", hidden=[TWIN, NEW])
    assert (alone.package, alone.others) == (None, (OLD, NEW, TWIN))


MACHINE = (
    gpu("8.0", index=0, uuid="GPU-4f0c1111-aaaa"),
    gpu("8.0", index=1, uuid="GPU-4f0c2222-bbbb"),
    gpu("9.0", index=2, uuid="MIG-7be0"),
    gpu("5.2", index=10, uuid=""),
)


@pytest.mark.parametrize(
    ("wanted", "indices"),
    [
        ("0", [0]),
        ("10", [10]),
        ("2,0", [2, 0]),
        (" 1 , 1 ", [1]),
        ("GPU-4f0c1", [0]),
        ("gpu-4F0C2222-BBBB", [1]),
        ("MIG", [2]),
        ("MIG-7be0,0", [2, 0]),
    ],
)
def test_gpus_are_named_by_number_or_by_the_beginning_of_a_uuid(wanted: str, indices: list[int]) -> None:
    assert [device.index for device in only(MACHINE, wanted)] == indices


def test_a_whole_uuid_wins_over_a_longer_one_that_begins_alike() -> None:
    machine = (gpu("8.0", index=0, uuid="GPU-4f"), gpu("8.0", index=1, uuid="GPU-4f0c"))
    assert only(machine, "GPU-4f") == machine[:1]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("3", "--device 3 is no GPU of this machine"),
        ("-1", "--device -1 is no GPU of this machine"),
        ("", "--device (empty) is no GPU of this machine"),
        ("0,", "--device (empty) is no GPU of this machine"),
        ("4f0c1111", "--device 4f0c1111 is no GPU of this machine"),
        ("GPU-4f0c", "--device GPU-4f0c means 2 GPUs"),
        ("²", "--device ² is no GPU of this machine"),
    ],
)
def test_a_name_of_no_gpu_or_of_two_says_what_there_is(wanted: str, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        only(MACHINE, wanted)
    meant = "0: GPU-4f0c1111-aaaa, card 0; 1: GPU-4f0c2222-bbbb, card 1"
    others = "" if "means 2" in said else "; 2: MIG-7be0, card 2; 10: no UUID, card 10"
    assert str(refused.value) == f"{said}. By number or UUID: {meant}{others}."


def test_a_machine_without_gpus_says_that_it_has_none() -> None:
    with pytest.raises(ValidationError) as refused:
        only([], "0")
    assert str(refused.value) == (
        "--device 0 is no GPU of this machine. No NVIDIA GPU was found; `detect` shows what each probe said."
    )
