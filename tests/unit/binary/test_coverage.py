"""Tests of coverage from device code: a GPU runs it natively, by JIT, in part, or not at all."""

from __future__ import annotations

import pytest

from builder.binary.coverage import (
    ContainerTally,
    LibraryCoverage,
    Support,
    combine,
    cover,
    lacking,
    promised_by,
    sass_everywhere,
)
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, Kind
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.table import CAPABILITIES
from tests.support.factories.binaries import (
    BLACKWELL,
    LTOIR,
    LZ4,
    PTX,
    SASS,
    ZSTD,
    A,
    F,
    container,
    elf,
    empty_cubin,
    image,
    sass,
)
from tests.support.factories.libraries import covered


def _containers(*raw: bytes) -> tuple[Container, ...]:
    return read_containers(elf({".nv_fatbin": b"".join(raw)}))


WITH_PTX = container(image(SASS, 80), image(PTX, 90))

EXACT = container(image(SASS, 90, A), image(SASS, 100, A | BLACKWELL), image(SASS, 120, A | BLACKWELL))

SPECIALISED = [sass(80, 86), sass(89), sass(100), container(image(SASS, 50), image(PTX, 52))]


def _with(found: LibraryCoverage, support: str, devices: str) -> list[str]:
    """Return those of the devices that have this support."""
    return [one for one in devices.split() if found.support[Capability.parse(one)].value == support]


@pytest.mark.parametrize(
    ("containers", "support"),
    [
        ([sass(75, 80, 86)] * 183 + [sass(75, 80)], {"native": "7.5 8.0 8.6 8.9"}),
        ([sass(75, 80, 86)] * 183 + [sass(80, 86)], {"native": "8.0 8.6", "partial": "7.5"}),
        ([WITH_PTX, WITH_PTX], {"native": "8.0", "jit": "9.0 12.1", "none": "7.5"}),
        ([WITH_PTX, sass(80)], {"native": "8.0", "partial": "9.0 12.1"}),
        ([EXACT], {"native": "9.0 10.0 12.0", "none": "10.3 12.1"}),
        ([container(image(SASS, 120, F | BLACKWELL))], {"native": "12.0 12.1"}),
        (SPECIALISED, {"partial": "8.0"}),
    ],
    ids=["one lacks 8.6", "one lacks 7.5", "PTX", "PTX in one", "suffix a", "suffix f", "specialised"],
)
def test_a_gpu_is_served_when_every_container_serves_it(
    containers: list[bytes], support: dict[str, str]
) -> None:
    found = covered(*containers)
    assert {how: " ".join(_with(found, how, devices)) for how, devices in support.items()} == support


def test_a_set_of_maxwell_to_volta() -> None:
    found = covered(sass(50, 52, 60, 61, 70), sass(50, 52, 60, 61, 70))
    native = [str(device) for device, support in found.support.items() if support is Support.NATIVE]
    assert native == ["5.0", "5.2", "6.0", "6.1", "7.0", "7.5"]
    assert set(found.support.values()) == {Support.NATIVE, Support.NONE}
    assert (found.containers, " ".join(map(str, found.sass)), found.ptx) == (2, "50 52 60 61 70", ())


def test_link_time_code_runs_nowhere() -> None:
    assert set(covered(container(image(LTOIR, 50))).support.values()) == {Support.NONE}


def test_a_library_of_specialised_containers_is_native_where_one_is() -> None:
    """libcublasLt 12.9 has this form: containers for one architecture each, one with PTX of compute_52."""
    support = {"native": "5.0 8.6 8.9 10.0 10.3", "partial": "9.0 11.0 12.0"}
    found = covered(*SPECIALISED, specialised=True)
    assert {how: " ".join(_with(found, how, devices)) for how, devices in support.items()} == support


def test_no_device_code_is_no_coverage() -> None:
    assert cover("lib/libcudart.so.12", (), specialised=True) is None


def test_zstd_counts_only_where_an_old_driver_would_meet_it() -> None:
    newer = container(image(SASS, 80, LZ4), image(SASS, 100, ZSTD | BLACKWELL), image(PTX, 120, ZSTD))
    assert [covered(one).zstd for one in (newer, container(image(SASS, 80, ZSTD)))] == [False, True]


def test_a_package_runs_where_its_worst_library_does() -> None:
    provider = covered(
        container(image(SASS, 75), image(PTX, 75)), path="lib/libonnxruntime_providers_cuda.so"
    )
    maths = covered(sass(75, 80), sass(120), specialised=True, path="lib/libcublas.so.12")
    both = combine([provider, maths])
    devices = ("7.5", "8.0", "9.0", "12.0")
    assert [both[Capability.parse(device)].value for device in devices] == ["native", "jit", "none", "jit"]


def test_a_library_with_nothing_to_run_does_not_drag_a_package_down() -> None:
    """libcufftw 11.4 has this form: one unit without kernels."""
    empty = covered(container(empty_cubin(52)), path="lib/libcufftw.so.11")
    assert (empty.containers, empty.nothing_to_run) == (1, 1)
    assert set(empty.support.values()) == {Support.NONE}
    assert combine([covered(sass(75)), empty])[Capability(7, 5)] is Support.NATIVE


def test_the_tally_is_in_containers() -> None:
    """Counted by hand for 8.6: one native unit, one by JIT, one without code; LTO IR is not counted."""
    found = covered(
        sass(80), container(image(SASS, 75), image(PTX, 75)), sass(90), container(image(LTOIR, 50))
    )
    assert found.tally[Capability(8, 6)] == ContainerTally(native=1, jit=1, none=1)
    assert (found.containers, found.nothing_to_run, [str(arch) for arch in found.ltoir]) == (4, 1, ["50"])
    assert found.support[Capability(8, 6)] is Support.PARTIAL
    assert found.tally[Capability(9, 0)] == ContainerTally(native=1, jit=1, none=1)
    alike = covered(sass(80), sass(75, 80), sass(90))
    assert alike.tally[Capability(8, 0)] == ContainerTally(native=2, jit=0, none=1)


def test_where_containers_lie_and_what_each_section_holds() -> None:
    ptx, odd = container(image(SASS, 80), image(PTX, 80)), container(image(0x40, 75))
    found = cover(
        "libx.so", read_containers(elf({".nv_fatbin": sass(52), ".ldata": ptx * 2 + odd})), specialised=False
    )
    assert found is not None
    assert (dict(found.sections), found.unknown) == ({".nv_fatbin": 1, ".ldata": 3}, 1)
    twice = {Kind.SASS: {Arch(8, 0): 2}, Kind.PTX: {Arch(8, 0): 2}, Kind.OTHER: {Arch(7, 5): 1}}
    assert found.images == {".nv_fatbin": {Kind.SASS: {Arch(5, 2): 1}}, ".ldata": twice}
    assert (found.path, found.sass, found.ptx) == ("libx.so", (Arch(5, 2), Arch(8, 0)), (Arch(8, 0),))


def test_a_package_without_device_code_runs_on_no_gpu() -> None:
    assert set(combine([]).values()) == {Support.NONE}
    assert tuple(combine([])) == CAPABILITIES


@pytest.mark.parametrize(("asked", "count"), [("90", 0), ("90a", 0), ("75", 1), ("86", 2)])
def test_containers_that_lack_an_architecture_whatever_its_suffix(asked: str, count: int) -> None:
    containers = _containers(sass(75, 90), container(image(SASS, 90, A)))
    assert len(lacking(containers, Arch.parse(asked), widen=False)) == count


@pytest.mark.parametrize(
    ("held", "asked", "widen", "lacks"),
    [
        ("80", "86", False, True),  # runs on 8.6, but is not the architecture asked for
        ("120a", "120", False, False),
        ("120a", "120f", False, True),
        ("120f", "120f", False, False),
        ("120a", "120", True, True),
        ("120a 121", "120", True, False),
    ],
)
def test_what_stands_for_an_architecture(held: str, asked: str, widen: bool, lacks: bool) -> None:
    suffixes = {"": 0, "a": A, "f": F}
    arches = map(Arch.parse, held.split())
    containers = _containers(container(*(image(SASS, one.number, suffixes[one.suffix]) for one in arches)))
    assert lacking(containers, Arch.parse(asked), widen=widen) == (containers if lacks else ())


def test_what_every_container_holds() -> None:
    assert sass_everywhere(_containers(sass(75, 80, 86), sass(80, 86), sass(86, 80, 90))) == (
        Arch(8, 0),
        Arch(8, 6),
    )
    assert sass_everywhere(()) == ()


def test_a_gpu_that_nvidia_does_not_list_counts_where_the_bytes_name_it() -> None:
    rubin = Capability.parse("10.7")
    blackwell, both = covered(sass(100)), covered(container(image(SASS, 100), image(SASS, 107)))
    assert rubin not in combine([blackwell])
    assert combine([blackwell, both])[rubin] is Support.NATIVE
    assert combine([covered(sass(90)), both])[rubin] is Support.NONE


def test_an_unlisted_gpu_is_promised_by_its_own_number_only() -> None:
    assert promised_by(Arch.parse("86")) == (Capability(8, 6),)

    def promised(arch: str, *, widen: bool = False) -> str:
        return " ".join(map(str, promised_by(Arch.parse(arch), widen=widen)))

    assert (promised("107"), promised("107a"), promised("107f")) == ("10.7", "10.7", "10.7")
    assert (promised("100f"), promised("103", widen=True)) == ("10.0 10.3", "10.3")
    assert (promised("88"), promised("86", widen=True)) == ("8.8", "8.6 8.9")
