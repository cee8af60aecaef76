"""Tests of the kernels that no host code registers: their names are no strings in read-only data."""

from __future__ import annotations

import pytest

from builder.binary.deep import unregistered
from builder.binary.elf_headers import Section

SCAN, COPY, C = "_Z4scanPfi", "_Z4copyPi", "extern_c"


def _section(name: str, offset: int, size: int) -> Section:
    return Section(name, kind=1, offset=offset, size=size, link=0, flags=2, address=offset)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"_Z4scanPfi\0_Z4copyPi\0", set()),
        (b"_Z4scanPfi\0", {COPY}),
        (b"error in _Z4copyPi\0_Z4scanPfi\0", set()),  # a linker merges strings by their ends
        (b"_Z4scanPfi_and_more\0_Z4copyPi\0", {SCAN}),
        (b"_Z4copyPi\0_Z4scanPfi", {SCAN}),  # no end: the next section's bytes are not the string's
        (b"_Z4copyPi\0\xff_Z4scan\xff\0", {SCAN}),
        (b"", {SCAN, COPY}),
    ],
)
def test_a_kernel_is_registered_by_a_string_that_is_its_whole_name(data: bytes, found: set[str]) -> None:
    before, after = b"_Z4scanPfi\0_Z4copyPi\0", b"\0_Z4scanPfi\0_Z4copyPi\0"  # of other sections
    buffer = before + data + after
    sections = [_section(".text", 0, len(before)), _section(".rodata", len(before), len(data))]
    assert unregistered(buffer, sections, [SCAN, COPY, C]) == found


def test_every_read_only_section_counts_and_a_library_without_one_tells_nothing() -> None:
    buffer = b"_Z4scanPfi\0_Z4copyPi\0"
    sections = [_section(".rodata.str1.1", 0, 11), _section(".rodata", 11, 10)]
    assert unregistered(buffer, sections, [SCAN, COPY]) == set()
    assert unregistered(buffer, sections[:1], [SCAN, COPY]) == {COPY}
    assert unregistered(buffer, [_section(".data", 0, len(buffer))], [SCAN, COPY]) == set()
