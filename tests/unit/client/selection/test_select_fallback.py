"""Tests of the selected package where no package for NVIDIA GPUs runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builder.client.selection.reasons import refusal
from builder.client.selection.select import select
from builder.formats.index import IndexPackage
from tests.unit.client.selection.select_cases import INDEX, LEGACY, gpu, package, plain, release

CPU, CPU_WIN, CPU_MAC = plain("cpu"), plain("cpu", "win-x64"), plain("cpu", "macos-arm64")

DIRECTML, COREML = plain("directml", "win-x64", size=99), plain("coreml", "macos-arm64", size=99)

EVERYTHING = release(*INDEX.packages, CPU, CPU_WIN, CPU_MAC, DIRECTML, COREML)


@pytest.mark.parametrize(
    ("platform", "chosen", "beginning"),
    [
        ("linux-x64", CPU, "CPU: no NVIDIA GPU was found."),
        ("win-x64", DIRECTML, "DirectML: no NVIDIA GPU was found."),
        ("macos-arm64", COREML, "CoreML: there is no CUDA for macOS."),
    ],
)
def test_each_platform_has_its_own_way_without_an_nvidia_gpu(
    platform: str, chosen: IndexPackage, beginning: str
) -> None:
    choice = select([], EVERYTHING, platform)
    assert (choice.package, choice.device, choice.support, choice.visible) == (chosen, None, None, None)
    assert not choice.on_gpu
    assert choice.summary.startswith(beginning)
    assert choice.summary.endswith(f"{chosen.name} is taken instead.")
    others = sorted(item.name for item in EVERYTHING.packages if item is not chosen)
    assert [item.package for item in choice.reasons] == others


@pytest.mark.parametrize(("platform", "chosen"), [("win-x64", CPU_WIN), ("macos-arm64", CPU_MAC)])
def test_the_cpu_stands_in_where_the_better_one_is_not_in_the_index(
    platform: str, chosen: IndexPackage
) -> None:
    choice = select([], release(CPU, CPU_WIN, CPU_MAC), platform)
    assert choice.package is chosen
    assert choice.summary.startswith("CPU: ")


def test_of_two_for_the_cpu_the_smaller_is_taken_and_of_equals_the_first_by_name() -> None:
    older = replace(CPU, name="a", variant="a", size=11)
    equal = replace(CPU, name="z", variant="z")
    choice = select([], release(equal, older, CPU), "linux-x64")
    assert choice.package is CPU
    assert [item.reason for item in choice.reasons] == [
        "it runs too, cpu-linux-x64 is smaller",
        "it runs too, cpu-linux-x64 goes first by its name",
    ]


def test_directml_goes_before_the_cpu_on_windows_and_the_cpu_is_told_so() -> None:
    reasons = {item.package: item.reason for item in select([], EVERYTHING, "win-x64").reasons}
    assert reasons["cpu-win-x64"] == (
        "it runs too, directml-win-x64 is for DirectML, which goes first on win-x64"
    )


def test_nothing_in_the_index_for_this_platform_is_no_package() -> None:
    choice = select([], EVERYTHING, "linux-arm64")
    assert (choice.package, choice.device, choice.visible) == (None, None, None)
    assert choice.summary == (
        "CPU: no NVIDIA GPU was found. If there is one, its driver is missing or hidden from this process; "
        "`detect` shows what each probe said."
    )


def test_a_gpu_with_too_old_a_driver_names_the_driver_that_would_serve_it() -> None:
    choice = select([gpu("5.2", "470.256.02")], EVERYTHING, "linux-x64")
    assert choice.package is CPU
    assert choice.summary == (
        "CPU: no package of this release runs on card 0 (compute capability 5.2, 8192 MiB). "
        "With another driver legacy would run: driver 470.256.02 is too old: it needs 525.60.13 or newer. "
        "cpu-linux-x64 is taken instead."
    )
    assert choice.others == (gpu("5.2", "470.256.02"),)


def test_driver_and_system_that_are_both_too_old_are_named_together() -> None:
    choice = select([gpu("5.2", "470.256.02")], release(LEGACY), "linux-x64", "2.28")
    assert choice.summary == (
        "CPU: no package of this release runs on card 0 (compute capability 5.2, 8192 MiB). "
        "With another system and another driver legacy would run: it needs glibc 2.34, this system has 2.28 "
        "(Debian 10's); driver 470.256.02 is too old: it needs 525.60.13 or newer."
    )


@pytest.mark.parametrize(
    ("glibc", "system"), [("2.17", "2.17 (CentOS 7's)"), ("2.33", "2.33"), ("2.31.1", "2.31.1")]
)
def test_a_system_is_named_where_people_know_its_glibc(glibc: str, system: str) -> None:
    said = f"it needs glibc 2.34, this system has {system}"
    assert refusal(LEGACY, gpu("5.2"), "linux-x64", glibc) == said


def test_a_gpu_no_package_has_code_for_needs_another_package() -> None:
    choice = select([gpu("3.5")], EVERYTHING, "linux-x64")
    assert choice.package is CPU
    assert choice.summary == (
        "CPU: no package of this release runs on card 0 (compute capability 3.5, 8192 MiB). "
        "A package that is built for such a compute capability would change that. "
        "cpu-linux-x64 is taken instead."
    )


def test_a_release_without_gpu_packages_for_the_platform_says_so() -> None:
    choice = select([gpu("8.6")], EVERYTHING, "win-x64")
    assert choice.package is DIRECTML
    assert choice.summary == (
        "DirectML: this release has no GPU package for win-x64; one would change that. "
        "directml-win-x64 is taken instead."
    )


def test_a_cpu_package_needs_its_glibc_too() -> None:
    new, old = plain("cpu", glibc="2.34"), plain("cpu", "linux-arm64", glibc="2.28")
    assert select([], release(new), "linux-x64", "2.31").package is None
    assert select([], release(old), "linux-arm64", "2.31").package is old


def test_what_belongs_to_another_system_is_never_taken() -> None:
    stray = plain("directml", "linux-x64")
    choice = select([], release(stray), "linux-x64")
    assert choice.package is None
    assert [item.reason for item in choice.reasons] == ["DirectML is not for linux-x64"]


def test_what_needs_no_gpu_is_never_said_to_run_on_one() -> None:
    marked = replace(CPU, capabilities={"8.6": "native"})
    choice = select([gpu("8.6")], release(marked), "linux-x64")
    assert (choice.package, choice.device, choice.support) == (marked, None, None)
    assert refusal(marked, gpu("8.6"), "linux-x64") == "its provider is CPU, not CUDA"


def test_identical_cards_are_named_once() -> None:
    cards = [gpu("3.5", index=0, uuid=f"GPU-{number}") for number in range(4)]
    choice = select(cards, release(package("p", "8.6")), "linux-x64")
    assert choice.summary.count("card 0") == 1
    assert choice.reasons[0].reason == "it holds no code for compute capability 3.5 (card 0)"
