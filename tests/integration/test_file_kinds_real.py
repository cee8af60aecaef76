"""Tests of the reader on NVIDIA's DLLs and static libraries.

Expectations: for a DLL the library for Linux of the same version, for a static library cuobjdump's counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.binary.file_kinds import FileKind
from builder.config.inputs import Input, Lock, Pin
from builder.contents.cuobjdump import Listing, count_images, disagreements, parse_listings
from builder.contents.reading import read_file
from builder.formats.package_names import LINUX, WINDOWS
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.nvidia import listing, unpack_cuobjdump

NVJPEG = "nvidia-nvjpeg-cu12==12.4.0.76"

PINS = {
    LINUX: Pin(
        filename="nvidia_nvjpeg_cu12-12.4.0.76-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256="3888f10b32fbd58e80166c48e01073732d752fa5f167b7cb5b9615f1c6375a20",
        size=5_313_609,
    ),
    WINDOWS: Pin(
        filename="nvidia_nvjpeg_cu12-12.4.0.76-py3-none-win_amd64.whl",
        sha256="21923726db667bd53050d0de88320983ff423322b7f376057dd943e487c40abc",
        size=4_741_398,
    ),
}

pytestmark = pytest.mark.integration


def test_a_dll_holds_what_the_library_for_linux_holds() -> None:
    wheels = {platform: Input.wheel(NVJPEG, platform) for platform in PINS}
    store = Wiring(ROOT).store(Lock(pins={wheels[platform].key: pin for platform, pin in PINS.items()}))
    linux, windows = (store.unpack(wheels[platform]) / "nvidia/nvjpeg" for platform in (LINUX, WINDOWS))
    dll = read_file("nvjpeg64_12.dll", windows / "bin/nvjpeg64_12.dll")
    library = read_file("libnvjpeg.so.12", linux / "lib/libnvjpeg.so.12")
    assert (dll.kind, dll.problem) == (FileKind.DLL, None)
    assert dll.dll is not None
    assert (dll.dll.soname, dll.dll.needed) == ("nvjpeg64_12.dll", ("KERNEL32.dll",))
    assert dll.coverage is not None
    assert library.coverage is not None
    assert dll.coverage.images == library.coverage.images
    assert (dll.coverage.tally, dll.coverage.support) == (library.coverage.tally, library.coverage.support)


def test_cuobjdump_counts_the_same_in_a_static_library(tmp_path: Path) -> None:
    shop = Wiring(ROOT)
    runtime = shop.store(shop.lock).unpack(shop.project.cuda.libraries["cudart"])
    library = runtime / "nvidia/cuda_runtime/lib/libcudadevrt.a"
    found = read_file(library.name, library)
    assert (found.kind, found.machine, len(found.containers)) == (FileKind.ARCHIVE, "x86-64", 1)
    program = unpack_cuobjdump(tmp_path)
    said = [listing(program, flag, library) for flag in ("--list-elf", "--list-ptx")]
    images = (Listing(one.code, _without_members(one.stdout), one.stderr) for one in said)
    assert disagreements(count_images(found.containers), parse_listings(*images)) == []


def _without_members(text: str) -> str:
    """Return cuobjdump's listing without the lines that name the archive's members."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("member "))
