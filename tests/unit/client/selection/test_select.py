"""Tests of the package that is selected for one GPU, and of the reasons for rejecting the others."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from builder.client.selection.reasons import refusal
from builder.client.selection.select import select
from builder.facts.gpu.devices import Device
from builder.formats.index import IndexPackage, offers
from builder.formats.manifest import Driver
from builder.formats.missing_kernels import MissingKernels
from tests.unit.client.selection.select_cases import (
    CAPABILITIES,
    INDEX,
    LEGACY,
    MODERN,
    NOT_MICROSOFTS,
    gpu,
    package,
    plain,
    release,
)


@pytest.mark.parametrize(
    ("capability", "chosen", "support"),
    [
        ("5.2", "legacy", "native"),  # Quadro M2200
        ("8.6", "modern", "native"),  # RTX A1000
        ("8.9", "latest", "native"),  # both are native: the smaller one
        ("9.0", "latest", "native"),  # native before JIT
        ("12.0", "latest", "native"),  # RTX PRO 6000
        ("12.1", "latest", "jit"),  # GB10
        ("10.3", "latest", "jit"),  # B300
        ("8.7", None, None),  # Orin: partial is not enough
        ("5.3", None, None),  # Jetson Nano: it has no legacy code, although neighbouring capabilities do
        ("7.2", None, None),  # Xavier
        ("3.5", None, None),  # Kepler
    ],
)
def test_each_card_gets_what_runs_on_it(capability: str, chosen: str | None, support: str | None) -> None:
    choice = select([gpu(capability)], INDEX, "linux-x64")
    assert (choice.package.name if choice.package else None, choice.support) == (chosen, support)
    assert choice.on_gpu == (chosen is not None)


def test_of_two_native_ones_the_smaller_whatever_its_name() -> None:
    small, large = package("z", "8.6", size=1), package("a", "8.6", size=2)
    choice = select([gpu("8.6")], release(large, small), "linux-x64")
    assert choice.package is small
    assert [item.reason for item in choice.reasons] == ["it runs too, z is smaller"]


def test_of_two_as_large_as_each_other_the_first_by_name() -> None:
    first, second = package("a", "8.6"), package("b", "8.6")
    choice = select([gpu("8.6")], release(second, first), "linux-x64")
    assert choice.package is first
    assert [item.reason for item in choice.reasons] == ["it runs too, a goes first by its name"]


def test_native_comes_before_jit_whatever_the_size() -> None:
    small, large = package("a", "", jit="8.6", size=1), package("z", "8.6", size=2)
    choice = select([gpu("8.6")], release(small, large), "linux-x64")
    assert choice.package is large
    assert [item.reason for item in choice.reasons] == [
        "it runs by just-in-time compilation only, z has native code"
    ]


def test_a_driver_newer_than_the_last_branch_is_named_with_that() -> None:
    choice = select([gpu("5.2", "590.44.01")], INDEX, "linux-x64")
    assert choice.package is None
    assert "driver 590.44.01 is too new: branch 580 is the last" in choice.summary


def test_wsl_tells_a_driver_for_windows_of_the_last_branch_for_pascal() -> None:
    """On Windows, 581.80 is branch 580: nvidia-smi there reports 580.105.07 as its own version."""
    assert select([gpu("6.1", "581.80")], INDEX, "linux-x64").package == LEGACY
    assert select([gpu("6.1", "591.44")], INDEX, "linux-x64").package != LEGACY


def test_an_unknown_driver_is_no_obstacle_but_said() -> None:
    choice = select([gpu("8.6", None)], INDEX, "linux-x64")
    assert choice.package is MODERN
    assert "was not checked" in choice.summary


def test_a_driver_or_a_window_that_cannot_be_read_refuses_the_package() -> None:
    odd = replace(package("odd", "8.6"), driver=Driver(floor="soon", ceiling=None))
    assert select([gpu("8.6")], release(odd), "linux-x64").package is None
    assert select([gpu("8.6", "unknown")], INDEX, "linux-x64").package is None
    assert "'soon' is not a driver version" in (refusal(odd, gpu("8.6"), "linux-x64") or "")


def test_an_unknown_capability_is_never_guessed() -> None:
    choice = select([gpu(None)], INDEX, "linux-x64")
    assert choice.package is None
    assert all("ORTPACKS_FORCE_CC" in item.reason for item in choice.reasons)
    assert "ORTPACKS_FORCE_CC would change that" in choice.summary


def test_every_package_that_was_not_chosen_has_its_reason() -> None:
    choice = select([gpu("9.0")], INDEX, "linux-x64")
    reasons = {item.package: item.reason for item in choice.reasons}
    assert reasons.keys() == {"legacy", "modern"}
    assert "no code for compute capability 9.0" in reasons["legacy"]
    assert "just-in-time" in reasons["modern"]


def test_a_package_without_a_gpu_is_told_that_one_is_used() -> None:
    choice = select([gpu("8.6")], release(MODERN, plain("cpu")), "linux-x64")
    assert choice.package is MODERN
    assert [item.reason for item in choice.reasons] == ["its provider is CPU, modern uses the GPU"]


def test_platform_decides_before_everything() -> None:
    choice = select([gpu("8.6")], INDEX, "win-x64")
    assert choice.package is None
    assert "no GPU package for win-x64" in choice.summary
    assert all("it is for linux-x64" in item.reason for item in choice.reasons)


def test_a_newer_glibc_than_the_systems_is_named_with_the_systems_name() -> None:
    choice = select([gpu("8.6")], INDEX, "linux-x64", "2.31")
    assert choice.package is None
    assert [item.reason for item in choice.reasons] == [
        "it needs glibc 2.34, this system has 2.31 (Ubuntu 20.04's)"
    ] * 3
    assert "With another system modern would run: it needs glibc 2.34, this system has 2.31" in choice.summary


@pytest.mark.parametrize("glibc", ["2.34", "2.35", "2.100", "3.0", None, "rolling"])
def test_a_glibc_that_is_new_enough_or_unknown_is_no_obstacle(glibc: str | None) -> None:
    assert select([gpu("8.6")], INDEX, "linux-x64", glibc).package is MODERN


def test_glibc_versions_are_numbers_not_text() -> None:
    assert select([gpu("8.6")], INDEX, "linux-x64", "2.9").package is None


def test_a_system_with_musl_gets_no_package_for_glibc() -> None:
    unsaid = package("unsaid", "8.6", glibc=None)
    choice = select([gpu("8.6")], release(MODERN, unsaid, plain("cpu")), "linux-x64", "")
    assert choice.package is None
    assert {item.reason for item in choice.reasons} == {
        "it is built for glibc, and this system's C library is musl"
    }


def test_glibc_is_no_matter_where_the_platform_has_none() -> None:
    windows = package("windows", "8.6", platform="win-x64", glibc=None)
    for glibc in ("", "2.17", None):
        assert select([gpu("8.6")], release(windows), "win-x64", glibc).package is windows


def test_the_variants_name_means_nothing() -> None:
    swapped = release(package("modern", "5.2"), package("legacy", "8.6"))
    choice = select([gpu("8.6")], swapped, "linux-x64")
    assert choice.package is not None
    assert choice.package.name == "legacy"


def shaped(name: str, layout: str, suffix: str, size: int) -> IndexPackage:
    return replace(package("modern", "8.6", size=size), name=name, layout=layout, file=f"{name}{suffix}")


FULL, FULL_GZ = shaped("m", "full", ".tar.zst", 300), shaped("m", "full", ".tar.gz", 400)

THIN, THIN_GZ = shaped("m-thin", "thin", ".tar.zst", 10), shaped("m-thin", "thin", ".tar.gz", 12)


@pytest.mark.parametrize("order", list(itertools.permutations((FULL, FULL_GZ, THIN, THIN_GZ)))[::5])
def test_layouts_and_kinds_of_archive_are_one_package(order: tuple[IndexPackage, ...]) -> None:
    rival = package("rival", "8.6", size=200)  # smaller than the full one, larger than the thin one
    choice = select([gpu("8.6")], release(*order, rival), "linux-x64")
    assert choice.package is rival, "a thin archive's size says nothing of what is installed"
    assert [item.package for item in choice.reasons] == ["m"]
    assert offers((*order, rival), THIN_GZ) == (FULL, FULL_GZ, THIN, THIN_GZ)


@pytest.mark.parametrize(
    "other",
    [
        {"capabilities": dict.fromkeys(CAPABILITIES, "none")},
        {"driver": Driver(floor="999.0", ceiling=None)},
        {"glibc": "2.99"},
    ],
)
def test_a_layout_that_promises_less_is_another_package(other: dict[str, object]) -> None:
    full = package("modern", "7.5 8.0 8.6")
    thin = replace(full, file="modern-thin.tar.zst", layout="thin", **other)  # type: ignore[arg-type]
    assert offers([full, thin], full) == (full,)


def test_a_thin_package_alone_is_chosen() -> None:
    assert select([gpu("8.6")], release(THIN_GZ), "linux-x64").package is THIN_GZ


@pytest.mark.parametrize(
    ("lean", "full"),
    [
        (package("a-lean", "8.6", size=1, lacks=NOT_MICROSOFTS), package("z", "8.6", size=9)),
        (package("a-lean", "8.6", lacks=NOT_MICROSOFTS), package("z", "", jit="8.6")),
    ],
    ids=["smaller and first by its name", "native where the full one is JIT"],
)
def test_what_runs_every_model_goes_before_what_does_not(lean: IndexPackage, full: IndexPackage) -> None:
    for packages in ((lean, full), (full, lean)):
        choice = select([gpu("8.6")], release(*packages), "linux-x64")
        assert (choice.package, choice.notes) == (full, ())
        assert [item.reason for item in choice.reasons] == [
            "it has no CUDA kernels for operators that z runs (1 of com.microsoft)"
        ]


def test_a_lean_package_is_taken_where_no_other_serves_the_gpu_and_says_what_fails() -> None:
    lean = package("old-lean", "5.2", lacks=NOT_MICROSOFTS)
    choice = select([gpu("5.2")], release(lean, MODERN, plain("cpu")), "linux-x64")
    assert choice.package is lean
    (note,) = choice.notes
    assert note.startswith("old-lean: Transformer models fail at ONNX Runtime's default optimisation level")
    assert "or set ORT_ENABLE_BASIC in the application." in note


def test_a_full_package_whose_driver_does_not_fit_leaves_the_lean_one() -> None:
    lean = package("a-lean", "5.2", lacks=NOT_MICROSOFTS)
    full = package("a", "5.2", ceiling="570")
    choice = select([gpu("5.2", "580.65.06")], release(lean, full), "linux-x64")
    assert choice.package is lean


def test_minimal_comes_last() -> None:
    nothing = package("a-minimal", "8.6", size=1, lacks=(MissingKernels("", ()), *NOT_MICROSOFTS))
    lean = package("b-lean", "8.6", size=2, lacks=NOT_MICROSOFTS)
    assert select([gpu("8.6")], release(nothing, lean), "linux-x64").package is lean
    (note,) = select([gpu("8.6")], release(nothing), "linux-x64").notes
    assert "nothing runs on the GPU" in note


@pytest.mark.parametrize(
    ("devices", "summary"),
    [
        ([gpu("8.6")], "modern has native code for card 0 (compute capability 8.6)."),
        (
            [gpu("10.3", driver=None)],
            (
                "latest runs by just-in-time compilation on card 0 (compute capability 10.3). "
                "The driver's version is not known and was not checked."
            ),
        ),
        (
            [gpu("8.6"), gpu("3.5", index=1, uuid="GPU-b")],
            "modern has native code for card 0 (compute capability 8.6). It runs on 1 of 2 GPUs here.",
        ),
    ],
    ids=["native", "jit, unknown driver", "one of two"],
)
def test_a_summary_says_how_where_and_what_was_not_checked(devices: list[Device], summary: str) -> None:
    assert select(devices, INDEX, "linux-x64", "2.36").summary == summary
