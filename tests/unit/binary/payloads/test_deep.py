"""Tests of unpacking all images of a file: images with damage or for another GPU serve none;
stubs are named."""

import sys

import pytest
from backports import zstd

from builder.binary import deep
from builder.binary.deep import CodeTarget, DeepReading
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Kind
from builder.binary.library import Reading, read_library
from builder.facts.gpu.architectures import Arch, Capability
from tests.support import present
from tests.support.factories.archives_of_objects import ar, as_object
from tests.support.factories.binaries import LZ4, SASS, ZSTD, container, elf, image, image_of, joined
from tests.support.factories.cubins import ADDS, RETURNS, cubin, ptx_image, sass_image, stub, work

SM_52, SM_80 = CodeTarget(Kind.SASS, Arch(5, 2)), CodeTarget(Kind.SASS, Arch(8, 0))

COMPUTE_80 = CodeTarget(Kind.PTX, Arch(8, 0))

BOTH = container(
    sass_image(52, {"scale": stub(52), "add": work(52), "idle": stub(52)}),
    sass_image(80, {"scale": work(80), "add": work(80), "idle": stub(80)}),
    ptx_image(80, {"scale": ADDS, "add": ADDS, "idle": RETURNS}),
)


def _read(*containers: bytes) -> Reading:
    reading = read_library("libfoo.so", elf({".nv_fatbin": b"".join(containers)}), deep=True)
    assert reading.problem is None
    return reading


def _deep(*containers: bytes) -> DeepReading:
    return present(_read(*containers).deep)


def _support(reading: Reading, *devices: str) -> list[str]:
    return [present(reading.coverage).support[Capability.parse(device)].value for device in devices]


def test_a_kernel_is_a_stub_where_another_architecture_has_more() -> None:
    found = _deep(BOTH)
    assert [(one.kernel, one.on, one.whole) for one in found.stubs] == [
        ("scale", (SM_52,), (SM_80, COMPUTE_80))
    ]
    assert (found.images, found.idle, found.gaps, found.damages) == (3, 1, [], [])
    assert found.kernels == {SM_52: 3, SM_80: 3, COMPUTE_80: 3}
    assert {name: len(on) for name, on in found.names.items()} == {"scale": 3, "add": 3, "idle": 3}


def test_a_driver_takes_the_highest_image_also_where_it_is_broken() -> None:
    """All payloads for 8.6 of a provider were overwritten: a card of 8.6 takes none of 8.0 instead."""
    broken = sass_image(86, {"add": work(86)})
    broken = broken[:64] + bytes(len(broken) - 64)
    found = _read(container(sass_image(80, {"add": work(80)}), broken, ptx_image(80, {"add": ADDS})))
    assert _support(found, "8.0", "8.6", "8.9", "9.0") == ["native", "none", "none", "jit"]


def test_a_kernel_that_is_twice_in_a_container_is_whole_where_one_is() -> None:
    again = container(
        sass_image(52, {"scale": stub(52)}),
        sass_image(52, {"scale": work(52)}),
        sass_image(80, {"scale": work(80)}),
    )
    assert _deep(again).stubs == []


def test_code_from_before_maxwell_makes_no_stub_of_newer_code() -> None:
    """cub's EmptyKernel in nvJPEG 11.9, which has code for sm_35 and sm_50."""
    found = _deep(container(sass_image(35, {"empty": stub(52)}), sass_image(52, {"empty": stub(52)})))
    assert (found.stubs, found.idle, len(found.names["empty"])) == ([], 1, 2)


def test_ptx_that_only_returns_is_a_stub_too() -> None:
    found = _deep(container(sass_image(80, {"scale": work(80)}), ptx_image(90, {"scale": RETURNS})))
    assert [str(one) for stub in found.stubs for one in stub.on] == ["compute_90"]


def test_images_that_are_packed_as_one() -> None:
    one = joined(sass_image(52, {"scale": stub(52)}), ptx_image(80, {"scale": ADDS}))
    size = len(sass_image(52, {"scale": stub(52)})) + len(ptx_image(80, {"scale": ADDS})) - 128
    one = one[:56] + size.to_bytes(8, "little") + one[64:]
    found = _deep(container(one))
    assert (found.images, found.size, found.damages) == (2, size, [])
    assert [stub.on for stub in found.stubs] == [(SM_52,)]


def test_a_bare_cubin_and_one_in_an_object_of_an_archive() -> None:
    bare = read_library("scale.cubin", cubin(80, {"scale": work(80)}), deep=True)
    inside = read_library("libfoo.a", ar({"a.o": as_object(elf({".nv_fatbin": BOTH}))}), deep=True)
    assert present(bare.deep).kernels == {SM_80: 1}
    assert present(inside.deep).kernels == _deep(BOTH).kernels


def test_what_cannot_be_unpacked_serves_no_gpu() -> None:
    """Without unpacking, the library is native on 5.2 by the image's header."""
    data = elf({".nv_fatbin": container(image(SASS, 52, LZ4), sass_image(80, {"scale": work(80)}))})
    plain, seen = read_library("libfoo.so", data), read_library("libfoo.so", data, deep=True)
    assert [*_support(plain, "5.2"), *_support(seen, "5.2")] == ["native", "none"]
    assert [(one.target, one.packed) for one in present(seen.deep).damages] == [(SM_52, True)]


def test_code_for_another_architecture_is_told() -> None:
    wrong = image_of(SASS, 75, cubin(80, {"scale": work(80)}))
    (damage,) = _deep(container(wrong)).damages
    assert (damage.why, damage.packed) == ("its cubin is for sm_80, its header says sm_75", False)


def test_an_image_without_kernels_beside_one_with_some() -> None:
    reading = _read(container(sass_image(52, {}), sass_image(80, {"scale": work(80)})))
    assert [(gap.target, gap.lacking, gap.held) for gap in present(reading.deep).gaps] == [(SM_52, 1, 0)]
    assert _support(reading, "5.2") == ["none"]


def test_a_unit_without_kernels_is_idle_and_no_gap() -> None:
    reading = _read(container(sass_image(52, {}), sass_image(80, {})))
    assert reading.deep == DeepReading(
        images=2, size=len(cubin(52, {})) + len(cubin(80, {})), kernels={SM_52: 0, SM_80: 0}
    )
    assert present(reading.coverage).nothing_to_run == 1


def test_what_this_python_cannot_unpack_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cubin(80, {"scale": work(80)})
    packed = image_of(SASS, 80, zstd.compress(data), ZSTD)
    packed = container(packed[:56] + len(data).to_bytes(8, "little") + packed[64:])
    assert (_deep(packed).kernels, _deep(packed).unread) == ({SM_80: 1}, 0)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    found = _read(packed)
    assert found.deep == DeepReading(unread=1)
    assert _support(found, "8.0") == ["native"]


def test_what_unpacks_to_more_than_any_library_is_left_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "_FIRST_ROOM", 0)
    monkeypatch.setattr(deep, "_GROWTH", 1)
    data = container(*[image(SASS, 80, LZ4)] * 40)
    _containers, found = deep.read_payloads(data, read_containers(data))
    assert "unpack to more than any library does" in found.damages[-1].why


def test_images_that_are_packed_as_one_count_with_all_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """84 kB of fatbins whose tables named a few bytes of 268 MB each took 3 s."""
    monkeypatch.setattr(deep, "_FIRST_ROOM", 10_000)
    monkeypatch.setattr(deep, "_GROWTH", 0)
    data = container(joined(image_of(SASS, 80, b"small")) * 3)  # the header of each says 4,096 bytes
    _containers, found = deep.read_payloads(data, read_containers(data))
    assert ["more than any library does" in one.why for one in found.damages] == [False, False, True]
