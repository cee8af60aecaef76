"""Tests of the image that the stand-in runtime selects, against NVIDIA's documentation and
against coverage."""

import ctypes
import random
import re
import struct
from collections.abc import Sequence

import pytest

from builder.binary.coverage import Support, cover
from builder.binary.fatbin import read_containers
from builder.client.doctor.check_machine import _FIRST_BRANCHES
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.drivers import DRIVERS
from builder.facts.gpu.table import CAPABILITIES, LISTED_GPUS
from tests.answers.card import needs_compiler, runtime
from tests.support import ROOT, ran
from tests.support.factories.binaries import PTX, SASS, ZSTD, A, F, container, elf, image
from tests.support.factories.nvidia import SMALL, compiled, packed
from tests.support.tables import table

pytestmark = needs_compiler

NATIVE, JIT, NO_IMAGE, NEW_PTX = 0, 1, 209, 222

TAKEN = {"native": NATIVE, "jit": JIT, "no image": NO_IMAGE, "new PTX": NEW_PTX}

NEWEST = 615
"""A driver branch that knows the PTX of CUDA 13.4; the devices that it knows are a separate table."""


def resolve(fatbin: bytes, capability: str, branch: int = NEWEST) -> int:
    answer = ctypes.CDLL(str(runtime().library)).virtualcard_resolve
    return int(answer(fatbin, int(capability.replace(".", "")), branch))


def claim(capability: str, driver: str) -> int:
    return int(ctypes.CDLL(str(runtime().library)).virtualcard_error(capability.encode(), driver.encode()))


def code(text: str) -> bytes:
    """Return an image for a name like ``sm_90a`` or ``compute_80@8.4``, with the version of its PTX ISA.

    Its minor and major numbers are at offset 24 of the header.
    """
    found = re.fullmatch(r"(sm|compute)_(\d+)([af]?)(?:@(\d).(\d))?", text)
    assert found is not None
    kind, number, suffix, major, minor = found.groups()
    made = bytearray(image(SASS if kind == "sm" else PTX, int(number), {"": 0, "a": A, "f": F}[suffix]))
    if kind == "compute":
        struct.pack_into("<HH", made, 24, int(minor or 0), int(major or 8))
    return bytes(made)


def container_of(images: str) -> bytes:
    return container(*map(code, images.split()))


@pytest.mark.parametrize(("images", "capability", "taken"), table("cards/images.txt"))
def test_what_nvidia_documents(images: str, capability: str, taken: str) -> None:
    assert resolve(container_of(images), capability) == TAKEN[taken]


@pytest.mark.parametrize(("images", "branch", "taken"), table("cards/ptx.txt"))
def test_ptx_that_a_driver_is_too_old_for(images: str, branch: str, taken: str) -> None:
    assert resolve(container_of(images), "9.0", int(branch)) == TAKEN[taken]


def test_zstd_is_read_from_cuda_12_4_s_driver_on() -> None:
    """The limit is from nvcc's manual, --compress-mode."""
    fatbin = container(image(SASS, 80, ZSTD))
    assert [resolve(fatbin, "8.6", branch) for branch in (545, 550)] == [NO_IMAGE, NATIVE]


@pytest.mark.parametrize(("capability", "driver", "error"), table("cards/drivers.txt"))
def test_cards_and_drivers_that_a_machine_can_have(capability: str, driver: str, error: str) -> None:
    assert claim(capability, driver) == int(error)


def test_the_two_tables_of_drivers_agree() -> None:
    """``facts/gpu/drivers.py``, with ``table.json``, and ``prove/virtualcard/resolver.c``, each written from
    NVIDIA's documents; and ``doctor``'s branches by PCI device id (pci.ids)."""
    branches = [int(driver.linux.partition(".")[0]) for driver in DRIVERS]
    for before, branch, driver in zip([450, *branches], branches, DRIVERS, strict=False):
        newest = container_of(f"compute_80@{driver.isa[0]}.{driver.isa[1]}")
        assert (resolve(newest, "9.0", before), resolve(newest, "9.0", branch)) == (NEW_PTX, JIT), driver
    for gpu in LISTED_GPUS:
        floor = gpu.floor or "525.60.13"
        assert claim(str(gpu.capability), floor) == 0, gpu
        older = [driver.linux for driver in DRIVERS if driver.linux < gpu.floor]
        assert {claim(str(gpu.capability), driver) for driver in older} <= {100}, gpu
    cards = {0x20B0: "8.0", 0x2204: "8.6", 0x2331: "9.0", 0x2684: "8.9", 0x2901: "10.0", 0x2B85: "12.0"}
    source = (ROOT / "builder/prove/virtualcard/resolver.c").read_text()
    rows = dict(re.findall(r"\{(\d+), [01], \d+, \d+, (\d+), \d+\}", source))
    for device, capability in cards.items():
        first = [branch for begin, branch in _FIRST_BRANCHES if begin <= device][-1]
        assert first == rows[capability.replace(".", "")], capability


def test_the_version_of_the_ptx_isa_stands_where_nvidia_s_packer_writes_it() -> None:
    _, made = compiled(SMALL, "80")
    said = re.search(rb"\.version (\d+)\.(\d+)", made.data)
    assert said is not None
    for options in ((), ("-compress=true",)):
        fatbin = packed([made], *options)
        minor, major = struct.unpack_from("<HH", fatbin, 16 + 24)
        assert (major, minor) == (int(said[1]), int(said[2])) == (8, 8)
        assert [resolve(fatbin, "9.0", branch) for branch in (570, 575)] == [NEW_PTX, JIT]


ARCHES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121)

CODES = [
    f"{kind}_{arch}{suffix}"
    for kind in ("sm", "compute")
    for arch in ARCHES
    for suffix in ("", "a", "f")
    if not (suffix == "a" and arch < 90) and not (suffix == "f" and arch < 100)
]
"""Names that exist: suffix a from sm_90 on, f from sm_100 on (PTX ISA 8.0 and 8.8)."""

ANSWERS = {NATIVE: Support.NATIVE, JIT: Support.JIT, NO_IMAGE: Support.NONE}


def differing(codes: Sequence[str]) -> list[str]:
    fatbin = container_of(" ".join(codes))
    found = cover("lib/libx.so", read_containers(elf({".nv_fatbin": fatbin})), specialised=False)
    assert found is not None
    return [
        f"{' '.join(codes)} on {device}: coverage {found.support[device].value}"
        for device in CAPABILITIES
        if ANSWERS[resolve(fatbin, str(device))] is not found.support[device]
    ]


def test_coverage_says_the_same_of_each_kind_of_code_and_of_containers_with_several() -> None:
    chance = random.Random(13)  # noqa: S311 the same containers in each run
    several = [chance.sample(CODES, chance.randint(2, 6)) for _ in range(300)]
    assert [line for codes in [*([one] for one in CODES), *several] for line in differing(codes)] == []


def test_a_capability_that_is_no_device_takes_nothing() -> None:
    assert Capability.parse("8.4") not in CAPABILITIES
    assert resolve(container_of("sm_80 compute_50"), "8.4") == NO_IMAGE


def test_the_stand_in_loads_on_hosts_as_old_as_the_oldest_that_a_package_runs_on() -> None:
    """The base image compiles it and the host's Python loads it: wheels require glibc 2.27."""
    told = ran(["objdump", "-T", runtime().library], check=True)
    asked = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", told.stdout)}
    assert asked
    assert max(asked) < (2, 27)
