"""Tests of relocatable device code in released libraries: bitsandbytes, with one library for each CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.binary.coverage import Support
from builder.config.inputs import Input, Lock, Pin
from builder.contents.cuobjdump import count_images, disagreements, parse_listings
from builder.contents.reading import read_file
from builder.facts.gpu.architectures import Capability
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.nvidia import listing, unpack_cuobjdump

WHEEL = Input.wheel("bitsandbytes==0.49.2")

PIN = Pin(
    filename="bitsandbytes-0.49.2-py3-none-manylinux_2_24_x86_64.whl",
    sha256="54b771f06e1a3c73af5c7f16ccf0fc23a846052813d4b008d10cb6e017dd1c8c",
    size=60_651_714,
)


pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder() -> Path:
    return Wiring(ROOT).store(Lock(pins={WHEEL.key: PIN})).unpack(WHEEL) / "bitsandbytes"


@pytest.mark.parametrize(
    ("cuda", "native", "jit"),
    [
        ("118", "6.0 7.0 7.5 8.9 9.0", "10.0 12.0 12.1"),
        ("126", "6.0 9.0", "10.0 12.1"),
        ("128", "7.0 12.1", ""),
    ],
)
def test_bitsandbytes_runs_by_jit_on_cards_newer_than_its_cuda(
    folder: Path, cuda: str, native: str, jit: str
) -> None:
    """bitsandbytes-foundation/bitsandbytes#1510: builds before CUDA 12.8 run on Blackwell by PTX for 9.0."""
    library = folder / f"libbitsandbytes_cuda{cuda}.so"
    found = read_file(library.name, library).coverage
    assert found is not None
    assert (found.containers, found.link_inputs) == (3, 2)
    assert {found.support[Capability.parse(device)] for device in native.split()} == {Support.NATIVE}
    assert {found.support[Capability.parse(device)] for device in jit.split()} <= {Support.JIT}
    assert found.support[Capability(5, 2)] is Support.NONE


def test_cuobjdump_counts_what_is_linked_and_not_its_inputs(folder: Path, tmp_path: Path) -> None:
    library = folder / "libbitsandbytes_cuda126.so"
    program = unpack_cuobjdump(tmp_path)
    listed = parse_listings(*(listing(program, flag, library) for flag in ("--list-elf", "--list-ptx")))
    assert disagreements(count_images(read_file(library.name, library).containers), listed) == []
