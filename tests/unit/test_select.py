"""Which package is chosen. The maps are written by hand from NVIDIA's compatibility rules for each sm set."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from packaging.version import Version

from builder.core.arch import Capability
from builder.core.device import Device
from builder.core.index import Index, IndexOrt, IndexPackage
from builder.core.manifest import Driver
from builder.core.select import offers, recommend, select
from builder.core.variant import ModelRule

CAPABILITIES = tuple(
    f"{major}.{minor}"
    for major, minors in {
        3: "57",
        5: "023",
        6: "012",
        7: "025",
        8: "0679",
        9: "0",
        10: "03",
        11: "0",
        12: "01",
    }.items()
    for minor in minors
)
DRIVERS = (
    "450.80.02",
    "470.256.02",
    "525.60.12",
    "525.60.13",
    "550.54.14",
    "570.26",
    "580.95.05",
    "590.44.01",
    "600.1",
)


def package(
    name: str,
    native: str,
    *,
    jit: str = "",
    partial: str = "",
    size: int = 100,
    floor: str = "525.60.13",
    ceiling: str | None = None,
    platform: str = "linux-x64",
) -> IndexPackage:
    support = dict.fromkeys(CAPABILITIES[2:], "none")
    for word, which in (("native", native), ("jit", jit), ("partial", partial)):
        support.update(dict.fromkeys(which.split(), word))
    return IndexPackage(
        name=name,
        file=f"{name}.tar.zst",
        variant=name,
        platform=platform,
        layout="full",
        size=size,
        sha256="0" * 64,
        parts=(),
        unpacked_size=200,
        installed_size=200,
        onnxruntime=IndexOrt(version="1.23.2", origin="source", profile="full"),
        capabilities=support,
        driver=Driver(floor=floor, ceiling=ceiling),
        generations=(),
    )


LEGACY = package("legacy", "5.0 5.2 6.0 6.1 7.0", ceiling="580")
MODERN = package("modern", "7.5 8.0 8.6 8.9", jit="9.0", size=300)
LATEST = package("latest", "8.9 9.0 10.0 12.0", jit="10.3 11.0 12.1", partial="8.7", size=200)
INDEX = Index(format=2, tag="t", packages=(LATEST, LEGACY, MODERN), models=())


def gpu(
    capability: str | None,
    driver: str | None = "570.133.07",
    *,
    memory: int | None = 8192,
    index: int = 0,
    uuid: str = "GPU-a",
) -> Device:
    return Device(
        index=index,
        uuid=uuid,
        name=f"card {index}",
        capability=Capability.parse(capability) if capability else None,
        memory_mib=memory,
        driver=driver,
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
        ("5.3", None, None),  # Jetson Nano: no legacy code for it, whatever the number's neighbours
        ("7.2", None, None),  # Xavier
        ("3.5", None, None),  # Kepler
    ],
)
def test_each_card_gets_what_runs_on_it(capability: str, chosen: str | None, support: str | None) -> None:
    choice = select([gpu(capability)], INDEX, "linux-x64")
    assert (choice.package.name if choice.package else None, choice.support) == (chosen, support)


def test_of_two_native_ones_the_smaller_whatever_its_name() -> None:
    small, large = package("z", "8.6", size=1), package("a", "8.6", size=2)
    choice = select([gpu("8.6")], Index(format=2, tag="t", packages=(large, small), models=()), "linux-x64")
    assert choice.package is small
    assert [item.reason for item in choice.reasons] == ["it runs too, z is smaller"]


def test_native_comes_before_jit_whatever_the_size() -> None:
    small, large = package("a", "", jit="8.6", size=1), package("z", "8.6", size=2)
    choice = select([gpu("8.6")], Index(format=2, tag="t", packages=(small, large), models=()), "linux-x64")
    assert choice.package is large


def test_no_choice_in_the_grid_breaks_a_rule() -> None:
    for capability, driver in itertools.product(CAPABILITIES, DRIVERS):
        choice = select([gpu(capability, driver)], INDEX, "linux-x64")
        allowed = [
            item.name
            for item in INDEX.packages
            if item.capabilities.get(capability) in {"native", "jit"}
            and Version(driver) >= Version("525.60.13")
            and (item is not LEGACY or Version(driver).major <= 580)
        ]
        if choice.package is None:
            assert not allowed, (capability, driver)
        else:
            assert choice.package.name in allowed, (capability, driver)


def test_the_grid_has_both_outcomes_by_hand_count() -> None:
    outcomes = [
        select([gpu(capability, driver)], INDEX, "linux-x64").package is not None
        for capability, driver in itertools.product(CAPABILITIES, DRIVERS)
    ]
    # Legacy: 5 capabilities x 4 drivers (525.60.13 to 580); the others: 3 + 7 capabilities x 6 drivers.
    assert sum(outcomes) == 5 * 4 + 10 * 6


def test_a_driver_outside_the_window_is_named_with_what_is_needed() -> None:
    old = select([gpu("5.2", "470.256.02")], INDEX, "linux-x64")
    new = select([gpu("5.2", "590.44.01")], INDEX, "linux-x64")
    assert old.package is None
    assert "driver 470.256.02 is too old: it needs 525.60.13 or newer" in old.summary
    assert new.package is None
    assert "driver 590.44.01 is too new: branch 580 is the last" in new.summary


def test_an_unknown_driver_is_no_obstacle_but_said() -> None:
    choice = select([gpu("8.6", None)], INDEX, "linux-x64")
    assert choice.package is MODERN
    assert "was not checked" in choice.summary


def test_an_unknown_capability_is_never_guessed() -> None:
    choice = select([gpu(None)], INDEX, "linux-x64")
    assert choice.package is None
    assert all("ORTPACKS_FORCE_CC" in item.reason for item in choice.reasons)


def test_every_package_that_was_not_chosen_has_its_reason() -> None:
    choice = select([gpu("9.0")], INDEX, "linux-x64")
    reasons = {item.package: item.reason for item in choice.reasons}
    assert reasons.keys() == {"legacy", "modern"}
    assert "no code for compute capability 9.0" in reasons["legacy"]
    assert "just-in-time" in reasons["modern"]


def test_platform_decides_before_everything() -> None:
    choice = select([gpu("8.6")], INDEX, "win-x64")
    assert choice.package is None
    assert "no GPU package for win-x64" in choice.summary
    assert all("it is for linux-x64" in item.reason for item in choice.reasons)


def test_no_gpu_is_the_cpu_with_a_reason() -> None:
    choice = select([], INDEX, "linux-x64")
    assert (choice.package, choice.device, choice.visible) == (None, None, None)
    assert "no NVIDIA GPU was found" in choice.summary


def test_the_card_with_the_most_memory_decides_and_the_rest_is_hidden() -> None:
    small = gpu("5.2", memory=4096, index=0, uuid="GPU-old")
    large = gpu("8.6", memory=24576, index=1, uuid="GPU-new")
    twin = gpu("8.0", memory=16384, index=2, uuid="GPU-twin")
    choice = select([small, large, twin], INDEX, "linux-x64")
    assert (choice.package, choice.device) == (MODERN, large)
    assert choice.others == (small, twin)
    assert choice.visible == "GPU-new,GPU-twin"


def test_a_large_card_that_nothing_serves_does_not_take_the_small_one_down() -> None:
    kepler = gpu("3.5", memory=24576, index=0, uuid="GPU-k80")
    pascal = gpu("6.1", memory=4096, index=1, uuid="GPU-p4")
    choice = select([kepler, pascal], INDEX, "linux-x64")
    assert (choice.package, choice.device, choice.visible) == (LEGACY, pascal, "GPU-p4")


def test_the_variants_name_means_nothing() -> None:
    swapped = Index(
        format=2, tag="t", packages=(package("modern", "5.2"), package("legacy", "8.6")), models=()
    )
    choice = select([gpu("8.6")], swapped, "linux-x64")
    assert choice.package is not None
    assert choice.package.name == "legacy"


MODELS = (
    ModelRule("1.1b-gpu", "gpu", vram_mib=6000),
    ModelRule("0.6b-gpu", "gpu", vram_mib=3500),
    ModelRule("1.1b-int8", "cpu", cores=8, ram_gib=16),
    ModelRule("0.6b-cpu", "cpu"),
)


@pytest.mark.parametrize(
    ("vram", "cores", "ram", "model"),
    [
        (6000, 2, 4, "1.1b-gpu"),
        (5999, 2, 4, "0.6b-gpu"),
        (3499, 16, 64, "1.1b-int8"),
        (None, 8, 16, "1.1b-int8"),
        (None, 8, 15, "0.6b-cpu"),
        (None, 7, 16, "0.6b-cpu"),
    ],
)
def test_the_first_model_whose_floors_are_met(vram: int | None, cores: int, ram: int, model: str) -> None:
    rule = recommend(MODELS, vram, cores, ram)
    assert rule is not None
    assert rule.model == model


def shaped(name: str, layout: str, suffix: str, size: int) -> IndexPackage:
    return replace(package("modern", "8.6", size=size), name=name, layout=layout, file=f"{name}{suffix}")


FULL, FULL_GZ = shaped("m", "full", ".tar.zst", 300), shaped("m", "full", ".tar.gz", 400)
THIN, THIN_GZ = shaped("m-thin", "thin", ".tar.zst", 10), shaped("m-thin", "thin", ".tar.gz", 12)


@pytest.mark.parametrize("order", list(itertools.permutations((FULL, FULL_GZ, THIN, THIN_GZ)))[::5])
def test_layouts_and_kinds_of_archive_are_one_package(order: tuple[IndexPackage, ...]) -> None:
    rival = package("rival", "8.6", size=200)  # smaller than the full one, larger than the thin one
    choice = select([gpu("8.6")], Index(2, "t", (*order, rival), ()), "linux-x64")
    assert choice.package is rival, "a thin archive's size says nothing of what is installed"
    assert [item.package for item in choice.reasons] == ["m"]
    assert offers((*order, rival), THIN_GZ) == (FULL, FULL_GZ, THIN, THIN_GZ)


def test_a_thin_package_alone_is_chosen() -> None:
    assert select([gpu("8.6")], Index(2, "t", (THIN_GZ,), ()), "linux-x64").package is THIN_GZ
