"""Tests of comparing two packages' files; each expected sentence was written from the planted change."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.prove.compare_packages import differences
from tests.support.factories.binaries import SASS, container, elf, image_of

PROVIDER = "lib/libonnxruntime_providers_cuda.so"


def library(*codes: bytes, data: bytes = b"data") -> bytes:
    """Return a library with a container of one image for each code."""
    fatbin = b"".join(container(image_of(SASS, 75, code)) for code in codes)
    return elf({".nv_fatbin": fatbin, ".rodata": data})


CODES = (b"a" * 32, b"b" * 32, b"c" * 32)


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    there, here = tmp_path / "there", tmp_path / "here"
    for side in (there, here):
        (side / "lib").mkdir(parents=True)
        (side / PROVIDER).write_bytes(library(*CODES))
        (side / "NOTICE").write_text("same")
    return there, here


def test_the_same_files_differ_in_nothing(sides: tuple[Path, Path]) -> None:
    assert [*differences(*sides)] == []


def test_files_of_one_side_alone_are_named(sides: tuple[Path, Path]) -> None:
    there, here = sides
    (there / "old").touch()
    (here / "new").touch()
    assert [*differences(*sides)] == [
        "old is not in the package that was built here",
        "new is only in the package that was built here",
    ]


@pytest.mark.parametrize("at", [0, 31])
def test_a_container_whose_code_differs_is_told_by_its_number(sides: tuple[Path, Path], at: int) -> None:
    """The changed bytes are the code's first and last."""
    code = bytearray(CODES[1])
    code[at] ^= 1
    theirs, ours = library(*CODES), library(CODES[0], bytes(code), CODES[2])
    (sides[1] / PROVIDER).write_bytes(ours)
    first = next(place for place, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b)
    size = f"{len(theirs):,} bytes, the first other byte at {first:,}"
    assert [*differences(*sides)] == [f"{PROVIDER}: {size}; 1 of 3 containers of device code differ: 1"]


def test_a_difference_outside_of_device_code_is_told_so(sides: tuple[Path, Path]) -> None:
    (sides[1] / PROVIDER).write_bytes(library(*CODES, data=b"dat4"))
    (sentence,) = differences(*sides)
    assert sentence.endswith("; all 3 containers of device code are the same")


def test_another_number_of_containers_is_told(sides: tuple[Path, Path]) -> None:
    (sides[1] / PROVIDER).write_bytes(library(*CODES[:2]))
    (sentence,) = differences(*sides)
    assert sentence.endswith("3 containers of device code there, 2 here")


def test_text_and_empty_files_have_no_code(sides: tuple[Path, Path]) -> None:
    (sides[1] / "NOTICE").write_text("sane")
    assert [*differences(*sides)] == ["NOTICE: 4 bytes, the first other byte at 2; no device code"]
    (sides[1] / "NOTICE").write_text("")
    assert [*differences(*sides)] == ["NOTICE: 4 bytes there, 0 here"]
