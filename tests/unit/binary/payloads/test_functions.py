"""Tests of the kernels of a cubin and of PTX, of those that do nothing, and of those nobody registers."""

import struct
import time

import pytest

from builder.binary.deep import is_stub, of_cubin, of_ptx, unregistered
from builder.binary.elf_headers import Section
from builder.binary.payloads import PayloadError
from builder.facts.gpu.architectures import Arch
from tests.support.factories.binaries import patched
from tests.support.factories.cubins import ADDS, RETURNS, STUBS, TRAPS, cubin, ptx, stub, trap, work


@pytest.mark.parametrize("arch", STUBS)
def test_a_body_that_only_exits_is_a_stub(arch: int) -> None:
    of = Arch(arch // 10, arch % 10)
    assert is_stub(stub(arch), of)
    assert not is_stub(work(arch), of)
    assert not is_stub(b"", of)


@pytest.mark.parametrize("arch", TRAPS)
def test_a_body_that_only_traps_is_a_stub(arch: int) -> None:
    assert is_stub(trap(arch), Arch(arch // 10, arch % 10))


def test_an_instruction_that_is_never_done_does_nothing() -> None:
    """Volta's kernels begin with ``@!PT SHFL.IDX``, which never runs; with predicate PT, the shuffle runs."""
    body = bytearray(stub(70))
    assert body[16:18] == b"\x89\xf3"
    body[17] = 0x73
    assert not is_stub(bytes(body), Arch(7, 0))


def test_only_the_stack_pointer_may_be_set() -> None:
    body = bytearray(stub(80))
    body[2] = 2
    assert not is_stub(bytes(body), Arch(8, 0))


def test_code_from_before_maxwell_is_not_read() -> None:
    assert is_stub(stub(52), Arch(3, 7)) is None
    assert is_stub(200 * work(52), Arch(3, 7)) is False


def test_kernels_of_a_cubin_and_which_are_stubs() -> None:
    found = of_cubin(cubin(80, {"scale": work(80), "empty": stub(80)}, ["helper"]), Arch(8, 0))
    assert (found.kernels, found.others) == ({"scale": False, "empty": True}, True)


def test_a_cubin_without_a_table_of_sections_has_no_kernel() -> None:
    whole = cubin(80, {"scale": work(80)})
    found = of_cubin(whole[:40] + bytes(8) + whole[48:60] + bytes(4) + whole[64:], Arch(8, 0))
    assert (found.kernels, found.others) == ({}, False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"\xcc" * 64, "no cubin: it does not begin like an ELF file for CUDA"),
        (lambda data: data[:18] + b"\x3e" + data[19:], "no cubin"),
        (lambda data: data[:-1], "a cubin's headers lie behind its end"),
        (lambda data: data[:32], "the file ends within its header"),
        (lambda data: data[:48] + b"\x4b" + data[49:], "its cubin is for sm_75, its header says sm_80"),
    ],
)
def test_what_is_no_cubin_for_its_architecture(change: object, why: str) -> None:
    assert callable(change)
    with pytest.raises(PayloadError, match=why):
        of_cubin(change(cubin(80, {"scale": work(80)})), Arch(8, 0))


def test_a_kernel_outside_of_its_section() -> None:
    data = cubin(80, {"scale": work(80)})
    (table,) = struct.unpack_from("<Q", data, 40)
    with pytest.raises(PayloadError, match="a kernel lies outside of its section"):
        of_cubin(patched(data, table + 3 * 64 + 32, "<Q", 16), Arch(8, 0))


def _behind_the_end(kind: int) -> bytes:
    """Return a cubin with a section of type ``kind`` that is as large as the cubin."""
    data = cubin(80, {"scale": work(80)}, ["helper"])
    (table,) = struct.unpack_from("<Q", data, 40)
    return patched(patched(data, table + 4 * 64 + 4, "<I", kind), table + 4 * 64 + 32, "<Q", len(data))


@pytest.mark.parametrize("kind", [8, 0x70000007, 0x70000009, 0x7000000A, 0x70000015])
def test_sections_of_the_gpus_memory_have_no_bytes(kind: int) -> None:
    """As bitsandbytes' relocatable cubins for sm_75: ``.nv_debug.shared`` of 1,906,205 bytes at the end."""
    assert of_cubin(_behind_the_end(kind), Arch(8, 0)).kernels == {"scale": False}


def test_other_sections_behind_the_end() -> None:
    data = _behind_the_end(0x70000008)  # CUDA_GLOBAL_INIT, which has bytes
    with pytest.raises(PayloadError, match="a section lies behind its end"):
        of_cubin(data, Arch(8, 0))


def test_kernels_of_ptx_and_which_only_return() -> None:
    bodies = {"scale": ADDS, "empty": RETURNS, "traps": "\t// begin inline asm\n\ttrap;\n\t// end\n\tret;\n"}
    found = of_ptx(ptx("90a", bodies), Arch(9, 0, "a"))
    assert found.kernels == {"scale": False, "empty": True, "traps": True}


def test_ptx_of_functions_alone() -> None:
    head = ptx("80", {}).rstrip(b"\0")
    assert of_ptx(head, Arch(8, 0)) == ({}, False)
    assert of_ptx(head + b".extern .func (.param .b32 a) vprintf ;\n", Arch(8, 0)) == ({}, False)
    assert of_ptx(head + b".visible .func helper(){\n\tret;\n}\n", Arch(8, 0)) == ({}, True)


def test_a_name_in_a_comment_is_no_kernel() -> None:
    text = ptx("80", {}).rstrip(b"\0") + b"// .entry scale {\n.visible .func helper(){ ret; }\n"
    assert of_ptx(text, Arch(8, 0)).kernels == {}


def test_hostile_ptx_takes_no_longer_than_its_bytes() -> None:
    """Comments that nothing ends, and thousands of kernels in one line: both were quadratic."""
    head, start = ptx("80", {}).rstrip(b"\0"), time.process_time()
    with pytest.raises(PayloadError, match="its braces do not pair"):
        of_ptx(head + b"{" + b"/* " * 20_000, Arch(8, 0))
    assert of_ptx(head + b".entry scale(){}" * 20_000, Arch(8, 0)).kernels == {"scale": True}
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xcc" * 40, "no PTX: .version and .target do not stand at its beginning"),
        (ptx("75", {"scale": ADDS}), "its PTX is for sm_75, its header says 80"),
        (ptx("80", {"scale": ADDS})[:-4], "no whole PTX: its braces do not pair"),
        (ptx("80", {"scale": ADDS}) + ptx("80", {}), "no whole PTX: zeros stand in its text"),
    ],
)
def test_what_is_no_ptx_for_its_architecture(text: bytes, why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        of_ptx(text, Arch(8, 0))


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
