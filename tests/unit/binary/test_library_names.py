"""Tests of the vendor and the expectation of device code that follow from a library's file name."""

from __future__ import annotations

import pytest

from builder.binary.coverage import is_specialised
from builder.binary.library_names import cuda_major, must_hold_code
from builder.contents.required_files import vendor_of
from tests.support import ROOT


def table(name: str) -> list[list[str]]:
    """Return the rows of a table by their words."""
    lines = (ROOT / "tests/data/libraries" / name).read_text().splitlines()
    return [words for line in lines if (words := line.partition("#")[0].split())]


@pytest.mark.parametrize(("name", "vendor", "specialised", "code"), table("names.txt"))
def test_what_a_name_tells(name: str, vendor: str, specialised: str, code: str) -> None:
    assert (vendor_of(name) or "nobody") == vendor
    assert is_specialised(f"lib/{name}") is (specialised == "yes")
    assert must_hold_code(name) is (code == "yes")


@pytest.mark.parametrize(("name", "major"), table("cuda.txt"))
def test_the_version_of_cuda_in_a_name(name: str, major: str) -> None:
    assert (cuda_major(name) or "-") == major
