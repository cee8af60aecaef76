"""Tests of the choice for a machine: the package, how and where it runs, and what is said of the others.

``CASES`` states each choice; the words are in the catalogue.
"""

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.client.selection.select import fitting, only, select, usable_vram
from builder.client.selection.table import lines
from builder.errors import ValidationError
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import Device
from builder.formats.index import Index, IndexPackage, offers
from builder.formats.manifest import Driver, ModelRule
from builder.formats.missing_kernels import MissingBelow, MissingKernels
from tests.support.messages import Refused, Told
from tests.unit.client.selection.select_cases import (
    CAPABILITIES,
    INDEX,
    MODERN,
    NOT_MICROSOFTS,
    gpu,
    package,
    plain,
    release,
)


@dataclass(frozen=True)
class Case:
    """A machine and a release, with the choice: the package's name, the GPU's number, the hidden rest."""

    chosen: str | None
    devices: tuple[Device, ...] = (gpu("8.6"),)
    packages: tuple[IndexPackage, ...] = INDEX.packages
    platform: str = "linux-x64"
    glibc: str | None = None
    hidden: tuple[Device, ...] = ()
    support: str | None = "native"
    on: int = 0
    visible: str | None = None


def nothing(*devices: Device, chosen: str | None = None, **about: object) -> Case:
    """Return a case of a machine on which no package for NVIDIA GPUs runs."""
    return Case(chosen, devices, support=None, **about)  # type: ignore[arg-type]


CPU, CPU_WIN, CPU_MAC = plain("cpu"), plain("cpu", "win-x64"), plain("cpu", "macos-arm64")

DIRECTML, COREML = plain("directml", "win-x64", size=99), plain("coreml", "macos-arm64", size=99)

EVERYTHING = (*INDEX.packages, CPU, CPU_WIN, CPU_MAC, DIRECTML, COREML)

CPUS = (CPU, CPU_WIN, CPU_MAC)

OLD = gpu("5.2", memory=4096, index=0, uuid="GPU-old")

NEW = gpu("8.6", memory=24576, index=1, uuid="GPU-new")

TWIN = gpu("8.0", memory=16384, index=2, uuid="GPU-twin")

EIGHTS = tuple(gpu("8.0", index=number, uuid=f"GPU-{number}") for number in (0, 1))

LEAN = package("a-lean", "8.6", size=1, lacks=NOT_MICROSOFTS)

MINIMAL = package("a-minimal", "8.6", size=1, lacks=(MissingKernels("", ()), *NOT_MICROSOFTS))

REFUSING = package("refusing", "5.2 8.6")

REFUSING = replace(
    REFUSING,
    onnxruntime=replace(
        REFUSING.onnxruntime, cannot_run_below=(MissingBelow("com.microsoft", ("MoE", "QMoE"), "5.3"),)
    ),
)

CUDA_12 = package("ortpacks-modern-1.21.0-cuda12.9-linux-x64", "7.5 8.0 8.6", size=100)

CUDA_13 = package("ortpacks-cuda13-1.31.1-cuda13.0-linux-x64", "8.6 12.0", size=200, floor="580.65.06")

WINDOWS = package("windows", "8.6", platform="win-x64", glibc=None, floor="551.61")

CASES = {
    "RTX A1000": Case("modern"),
    "Orin: partial is not enough": nothing(gpu("8.7")),
    "Kepler": nothing(gpu("3.5"), chosen="cpu-linux-x64", packages=EVERYTHING),
    "as large: by name": Case("a", packages=(package("b", "8.6"), package("a", "8.6"))),
    "CUDA 13 where it runs": Case(
        CUDA_13.name, (gpu("8.6", "580.95.05"),), (CUDA_12, CUDA_13, WINDOWS)
    ),
    "a lean one that is smaller": Case("z", packages=(LEAN, package("z", "8.6", size=9))),
    "a lean one before a minimal one": Case("a-lean", packages=(MINIMAL, LEAN)),
    "a minimal one": Case("a-minimal", packages=(MINIMAL,)),
    "operators that an old card does not run": Case("refusing", (OLD,), (REFUSING,)),
    "operators that a newer one runs": Case("refusing", (NEW,), (REFUSING,)),
    "operators that the first card runs which may": Case(
        "refusing", (gpu("5.3"),), (replace(REFUSING, capabilities={"5.3": "native"}),)
    ),
    # drivers
    # nvidia-smi of Windows reports 580.105.07 as 581.80
    "WSL's name of the last branch": Case("legacy", (gpu("6.1", "581.80"),)),
    "WSL's name of a later one": nothing(gpu("6.1", "591.44")),
    "a driver that cannot be read": nothing(gpu("8.6", "unknown")),
    "a driver just below the floor": nothing(gpu("8.6", "525.60.12")),
    "a driver that is not known": Case("modern", (gpu("8.6", None),)),
    "a driver at the floor": Case("modern", (gpu("8.6", "525.60.13"),)),
    "a capability is never guessed": nothing(gpu(None)),
    # systems
    "glibc 2.9": nothing(gpu("8.6"), glibc="2.9"),
    "CentOS 7": nothing(gpu("8.6"), glibc="2.17"),
    "musl": nothing(gpu("8.6"), packages=(MODERN, package("unsaid", "8.6", glibc=None), CPU), glibc=""),
    **{
        f"glibc {glibc}": Case("modern", glibc=glibc)
        for glibc in ("2.34", "2.100", None, "rolling")
    },
    # without an NVIDIA GPU
    "no GPU: Windows": nothing(packages=EVERYTHING, chosen="directml-win-x64", platform="win-x64"),
    "no GPU: a Mac": nothing(packages=EVERYTHING, chosen="coreml-macos-arm64", platform="macos-arm64"),
    "no CoreML": nothing(packages=CPUS, chosen="cpu-macos-arm64", platform="macos-arm64"),
    "an old driver": nothing(gpu("5.2", "470.256.02"), packages=EVERYTHING, chosen="cpu-linux-x64"),
    "no GPU package for the platform": nothing(
        gpu("8.6"), packages=EVERYTHING, chosen="directml-win-x64", platform="win-x64"
    ),
    "two for the CPU, and a provider that nobody knows": nothing(
        packages=(replace(CPU, name="z", variant="z"), CPU, plain("odd")), chosen=CPU.name
    ),
    "DirectML for Linux": nothing(packages=(plain("directml"),)),
    "a CPU package with capabilities": nothing(
        gpu("8.6"), packages=(replace(CPU, capabilities={"8.6": "native"}),), chosen="cpu-linux-x64"
    ),
    "four identical cards": nothing(
        *(gpu("3.5", uuid=f"GPU-{number}") for number in range(4)), packages=(package("p", "8.6"),)
    ),
    # several GPUs
    "the most memory, the rest hidden": Case(
        "modern", (OLD, NEW, TWIN), on=1, visible="GPU-new,GPU-twin"
    ),
    # 2 x 16384 = 32768 MiB
    "two middling cards outweigh a large one": Case(
        "modern",
        (
            gpu("12.0", memory=24576, index=0, uuid="GPU-5090"),
            *(gpu("8.6", memory=16384, index=number, uuid=f"GPU-{number}") for number in (1, 2)),
        ),
        on=1,
        visible="GPU-1,GPU-2",
    ),
    "as much native memory: more by JIT": Case(
        "both", (NEW, TWIN), (package("alone", "8.0", size=1), package("both", "8.0", jit="8.6", size=2)),
        support="jit",
    ),
    "as much memory: natively, whatever the number": Case(
        "p", (gpu("8.0"), gpu("8.6", index=1, uuid="GPU-b")), (package("p", "8.6", jit="8.0"),),
        on=1,
    ),
    "by JIT: the number before the size": Case(
        "two", tuple(replace(device, memory_mib=None) for device in (*EIGHTS, NEW)),
        (package("two", "", jit="8.0", size=2), package("one", "", jit="8.6", size=1)),
        support="jit", visible="GPU-0,GPU-1",
    ),
    "no UUID": Case("modern", (gpu("8.6", uuid=""), gpu("5.2", index=1, uuid="")), (MODERN,)),
    # CUDA sees no GPU at all when one is named twice
    "the same UUID twice": Case(
        "modern", (gpu("8.6"), gpu("8.6", index=1), gpu("5.2", index=2, uuid="GPU-b")), (MODERN,),
        visible="GPU-a",
    ),
    "cards that were not asked for": Case("modern", (TWIN,), hidden=(OLD, NEW), visible="GPU-twin"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_machine_gets_the_package_that_runs_on_it(name: str, told: Told) -> None:
    case = CASES[name]
    choice = select(case.devices, release(*case.packages), case.platform, case.glibc, hidden=case.hidden)
    assert (choice.package.name if choice.package else None) == case.chosen
    assert (choice.support, choice.visible) == (case.support, case.visible)
    best = case.devices[case.on] if case.support else None
    assert choice.device == best
    everyone = sorted((*case.devices, *case.hidden), key=lambda device: device.index)
    assert sorted(choice.others, key=lambda device: device.index) == [
        device for device in everyone if device is not best
    ]
    reasons = [f"  not {item.package}: {item.reason}" for item in choice.reasons]
    assert len(reasons) == len(case.packages) - (choice.package is not None)
    told("\n".join([choice.summary, *choice.notes, *reasons]))


def shaped(name: str, layout: str, suffix: str, size: int) -> IndexPackage:
    return replace(package("modern", "8.6", size=size), name=name, layout=layout, file=f"{name}{suffix}")


FULL, FULL_GZ = shaped("m", "full", ".tar.zst", 300), shaped("m", "full", ".tar.gz", 400)

THIN, THIN_GZ = shaped("m-thin", "thin", ".tar.zst", 10), shaped("m-thin", "thin", ".tar.gz", 12)


@pytest.mark.parametrize("order", [(FULL, FULL_GZ, THIN, THIN_GZ), (THIN_GZ, THIN, FULL_GZ, FULL)])
def test_layouts_and_kinds_of_archive_are_one_package(order: tuple[IndexPackage, ...]) -> None:
    """The size of a thin archive says nothing of what is installed."""
    rival = package("rival", "8.6", size=200)  # smaller than the full one, larger than the thin one
    choice = select([gpu("8.6")], release(*order, rival), "linux-x64")
    assert (choice.package, [item.package for item in choice.reasons]) == (rival, ["m"])
    assert offers((*order, rival), THIN_GZ) == (FULL, FULL_GZ, THIN, THIN_GZ)
    assert select([gpu("8.6")], release(THIN_GZ), "linux-x64").package is THIN_GZ


@pytest.mark.parametrize(
    "other",
    [
        {"capabilities": dict.fromkeys(CAPABILITIES, "none")},
        {"driver": Driver(floor="999.0", ceiling=None)},
        {"glibc": "2.99"},
    ],
)
def test_a_layout_that_promises_less_is_another_package(other: dict[str, object]) -> None:
    thin = replace(MODERN, file="modern-thin.tar.zst", layout="thin", **other)  # type: ignore[arg-type]
    assert offers([MODERN, thin], MODERN) == (MODERN,)


MACHINE = (
    gpu("8.0", index=0, uuid="GPU-4f0c1111-aaaa"),
    gpu("8.0", index=1, uuid="GPU-4f0c2222-bbbb"),
    gpu("9.0", index=2, uuid="MIG-7be0"),
    gpu("5.2", index=10, uuid=""),
    gpu("5.2", index=11, uuid="MIG-7be0f"),
)

NAMED = {
    "0": [0],
    "10": [10],
    "2,0": [2, 0],
    " 1 , 1 ": [1],
    "GPU-4f0c1": [0],
    "gpu-4F0C2222-BBBB": [1],
    "MIG-7be0f": [11],
    "MIG-7be0,0": [2, 0],  # a whole UUID wins over a longer one that begins alike
}


@pytest.mark.parametrize(("wanted", "indices"), NAMED.items())
def test_gpus_are_named_by_number_or_by_the_beginning_of_a_uuid(wanted: str, indices: list[int]) -> None:
    assert [device.index for device in only(MACHINE, wanted)] == indices


@pytest.mark.parametrize("devices", [MACHINE, ()], ids=["some", "none"])
def test_a_name_of_no_one_gpu_says_what_is(devices: tuple[Device, ...], refused: Refused) -> None:
    for wanted in ("3", "-1", "", "0,", "4f0c1111", "GPU-4f0c", "²"):
        with refused(ValidationError):
            only(devices, wanted)


MODELS = (
    ModelRule("big", "gpu", vram_mib=6000),
    ModelRule("middle", "cpu", cores=8, ram_gib=16),
    ModelRule("small", "cpu", cores=4),
)


@pytest.mark.parametrize(
    ("vram", "cores", "ram", "model"),
    [
        (6000, 2, 4, "big"),
        (5999, 8, 16, "middle"),
        (None, 8, 15, "small"),
        (None, 7, 16, "small"),
        (None, 3, 64, None),
    ],
)
def test_the_first_model_that_fits(vram: int | None, cores: int, ram: int, model: str | None) -> None:
    rule = next(fitting(MODELS, vram, cores, ram), None)
    assert (rule.model if rule else None) == model


@pytest.mark.parametrize(
    ("platform", "vram", "usable"),
    [
        ("macos-arm64", None, 6451),  # 35 % of 18 GiB by hand: 6451.2
        ("macos-x64", None, None),  # an Intel Mac's memory is not unified
        ("linux-x64", 4096, 4096),
    ],
)
def test_a_model_takes_35_percent_on_a_mac(platform: str, vram: int | None, usable: int | None) -> None:
    assert usable_vram(platform, 18432, vram) == usable


HOPPER = gpu("9.0", memory=24576, index=1, uuid="GPU-new")

BOTH = release(*INDEX.packages, plain("cpu"))

PART = replace(plain("cpu"), name="-".join(["part"] * 22), variant="other")

TABLES: dict[str, tuple[list[Device], Index, str, str | None]] = {
    "a row a package, a column a GPU": ([HOPPER, OLD], BOTH, "linux-x64", "2.36"),
    "no GPU, and musl": ([], BOTH, "linux-x64", ""),
    "a name that fits into 120 columns": ([], release(package("p" * 82, "8.6")), "linux-x64", "2.36"),
    "a name that does not": ([], release(package("p" * 83, "8.6")), "linux-x64", "2.36"),
    "a long reason": ([], release(PART, plain("cpu", size=11)), "linux-x64", None),
    "Windows": ([gpu("8.6")], release(WINDOWS), "win-x64", None),
    "an old system": ([OLD, HOPPER], INDEX, "linux-x64", "2.28"),
    "what the machine does not say": ([gpu("8.6", driver=None)], INDEX, "linux-x64", None),
    "8 GPUs": (
        [gpu("8.0", index=number, uuid=f"GPU-{number}") for number in range(8)],
        release(package("ortpacks-latest-1.23.2-cuda12.9-linux-x64", "8.6", partial="8.0", size=10**9)),
        "linux-x64",
        "2.36",
    ),
}
"""Machine, release, platform and glibc."""


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_into_120_columns(name: str, told: Told) -> None:
    devices, index, platform, glibc = TABLES[name]
    table = lines(select(devices, index, platform, glibc), devices, index, platform, glibc)
    assert max(map(len, table)) <= 120
    assert all(sum(line.startswith(item.name) for line in table) == 1 for item in index.packages)
    told("\n".join(table))


SOME = ("3.5", "5.2", "8.6", "8.7", "12.0")

RANDOM_SUPPORT = st.fixed_dictionaries(
    dict.fromkeys(SOME[1:], st.sampled_from(["native", "jit", "partial", "none"]))
)

RANDOM_PACKAGES = st.lists(st.tuples(st.integers(1, 3), RANDOM_SUPPORT), max_size=6)
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
@given(machines(), RANDOM_PACKAGES, st.randoms(use_true_random=False))
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
