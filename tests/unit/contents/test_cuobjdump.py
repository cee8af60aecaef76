"""Tests of reading cuobjdump's listings.

The texts were printed by cuobjdump 12.4.131 and 13.5.37 for real libraries and are shortened.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builder.binary.fatbin import read_containers
from builder.contents.cuobjdump import (
    CuobjdumpError,
    ImageCounts,
    Listing,
    count_images,
    disagreements,
    parse_listings,
)
from tests.support.factories.binaries import BLACKWELL, PTX, SASS, A, F, container, elf, image
from tests.support.messages import Told

ELF = """ELF file    1: libcublas.so.1.sm_50.cubin
ELF file    2: libcublas.so.2.sm_60.cubin
ELF file    3: libcublas.so.3.sm_60.cubin
ELF file 1589: libcublas.so.1589.sm_90a.cubin
"""

PTX_TEXT = "PTX file    1: libcublas.so.1.sm_120.ptx\n"

NONE = "cuobjdump info    : File '/inspect/libcudart.so.12' does not contain device code\n"

NO_PTX = (
    "cuobjdump info    : No PTX file found to extract from '/inspect/x.so'. You may try with -all option.\n"
)

FATAL = "cuobjdump fatal   : Invalid ELF\n"


def _done(stdout: str = "", stderr: str = "", code: int = 0) -> Listing:
    return Listing(code=code, stdout=stdout, stderr=stderr)


def test_counts_by_architecture() -> None:
    found = parse_listings(_done(ELF), _done(PTX_TEXT))
    assert {str(arch): count for arch, count in found.sass.items()} == {"50": 1, "60": 2, "90a": 1}
    assert {str(arch): count for arch, count in found.ptx.items()} == {"120": 1}


def test_no_device_code_is_an_answer() -> None:
    found = parse_listings(_done(stderr=NONE, code=255), _done(stderr=NONE, code=255))
    assert (found.sass, found.ptx) == ({}, {})


def test_no_ptx_is_an_answer() -> None:
    assert parse_listings(_done(ELF), _done(stderr=NO_PTX)).ptx == {}


@pytest.mark.parametrize(
    ("elf_listing", "ptx_listing"),
    [
        (_done(ELF, FATAL, code=1), _done(PTX_TEXT)),
        (_done(ELF), _done(PTX_TEXT, code=137)),
        (_done(" \n", code=139), _done()),
        (_done(), _done(PTX_TEXT)),
        (_done(ELF), _done("\n \n")),
        (_done(ELF + FATAL + "more"), _done(PTX_TEXT)),
        (_done(stderr=NONE, code=255), _done(PTX_TEXT)),
        (_done(stderr="cuobjdump error: cannot open file", code=255), _done(PTX_TEXT)),
        (_done(stderr=NONE), _done(stderr=NONE)),
    ],
)
def test_anything_else_is_no_answer(elf_listing: Listing, ptx_listing: Listing, told: Told) -> None:
    with pytest.raises(CuobjdumpError) as caught:
        parse_listings(elf_listing, ptx_listing)
    told(caught.value)


def _native(*images: bytes) -> ImageCounts:
    return count_images(read_containers(elf({".nv_fatbin": container(*images)})))


def _listed(*arches: str) -> str:
    return "".join(f"ELF file    {i}: x.{i}.sm_{arch}.cubin\n" for i, arch in enumerate(arches, 1))


@pytest.mark.parametrize(
    ("images", "listed"),
    [
        (
            (*[image(SASS, 120, F | BLACKWELL)] * 2, image(SASS, 120), image(SASS, 90, A)),
            ("120", "120", "120", "90"),
        ),
        ([image(SASS, 60)] * 2, ("60", "60a")),
    ],
    ids=["dropped", "made up"],
)
def test_a_suffix_that_cuobjdump_drops_or_makes_up_is_no_disagreement(
    images: Sequence[bytes], listed: Sequence[str]
) -> None:
    """12.4 shows a suffix for five images of libcublas 12.9 that have none in their bytes or in
    13.5's listing."""
    found = parse_listings(_done(_listed(*listed)), _done(stderr=NO_PTX))
    assert disagreements(_native(*images), found) == []


def test_one_image_more_is_a_disagreement_with_both_counts(told: Told) -> None:
    native = _native(image(SASS, 50), image(PTX, 120))
    for ptx in (_done(PTX_TEXT), _done(stderr=NO_PTX)):
        told("\n".join(disagreements(native, parse_listings(_done(ELF), ptx))))
