"""Tests of whether libraries hold a variant's promised code; NVIDIA's guides say which code runs where."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from builder.binary.coverage import LibraryCoverage, Support, combine, cover
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container
from builder.config.variants import Variant
from builder.contents.rules.device_code import (
    by_jit,
    check_has_code,
    check_image_kinds,
    check_promised_gpus,
    check_provider,
    native_in,
    promised_devices,
)
from builder.facts.gpu.architectures import Arch
from builder.finding import Code, Finding, Severity
from tests.support.factories.binaries import (
    BLACKWELL,
    LTOIR,
    PTX,
    SASS,
    A,
    F,
    container,
    elf,
    empty_cubin,
    image,
    sass,
)
from tests.support.factories.unit_counts import FULL, FULL_LEGACY, FULL_MODERN
from tests.support.messages import Told

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

EMPTY_UNIT = container(empty_cubin(52))


def _variant(sm: str, *, widen: bool = False) -> Variant:
    return Variant(name="v", sm=tuple(map(Arch.parse, sm.split())), generations=(), widen=widen)


@cache
def _containers(*raw: bytes) -> tuple[Container, ...]:
    return read_containers(elf({".nv_fatbin": b"".join(raw)}))


@cache
def _cover(path: str, *raw: bytes, specialised: bool = False) -> LibraryCoverage | None:
    return cover(path, _containers(*raw), specialised=specialised)


def _image(arch: str) -> bytes:
    parsed = Arch.parse(arch)
    return image(SASS, parsed.number, {"": 0, "a": A, "f": F}[parsed.suffix] | BLACKWELL)


@pytest.mark.parametrize(
    ("sm", "widen", "devices"),
    [
        ("50 61 75", False, "5.0 6.1 7.5"),
        ("90a", False, "9.0"),
        ("100", False, "10.0"),
        ("100f", False, "10.0 10.3"),
        ("120", False, "12.0"),
        ("120a", False, "12.0"),
        ("120f", False, "12.0 12.1"),
        ("120 120f", False, "12.0 12.1"),
        ("101", False, "11.0"),  # the same GPU: it was renumbered
        ("89 90 100 120", True, "8.9 9.0 10.0 10.3 12.0 12.1"),
        ("75 80 86", True, "7.5 8.0 8.6 8.9"),  # not 8.7: a Jetson runs only its own code
        ("120a", True, "12.0"),
    ],
)
def test_what_a_set_promises(sm: str, widen: bool, devices: str) -> None:
    assert " ".join(map(str, promised_devices(_variant(sm, widen=widen)))) == devices


def _codes(containers: tuple[Container, ...], variant: Variant, version: str | None = None) -> list[str]:
    return [one.code.name for one in check_provider(PROVIDER, containers, variant, Severity.WARNING, version)]


@pytest.mark.parametrize(
    ("asked", "found", "codes"),
    [
        ("120", "120", []),
        ("120", "120a", []),  # ORT's CMake adds the suffix
        ("120", "120f", []),
        ("120f", "120f", []),
        ("120f", "120", []),  # plain code runs on 12.1 too
        ("120f", "120a", ["A001"]),
        ("120f", "120a 121a", ["A006"]),
        ("100f", "100a", ["A001"]),
        ("90a", "90", []),
        ("90", "90a", []),
        ("89", "86", ["A001", "A006"]),  # it would run, but was not asked for
        ("86", "89", ["A001", "A006"]),
    ],
)
def test_a_suffix_counts_by_the_gpus_it_leaves_out(asked: str, found: str, codes: list[str]) -> None:
    assert _codes(_containers(container(*map(_image, found.split()))), _variant(asked)) == codes


@pytest.mark.parametrize("sm", FULL)
def test_a_full_build_holds_its_set_and_no_container_may_lose_any_of_it(sm: str) -> None:
    """In modern's flash attention, SASS for 8.0 serves 8.6: no container of it must have code for 8.6."""
    counts = FULL[sm]

    def found(held: list[str]) -> list[str]:
        containers = _containers(*(container(*map(_image, arches.split())) for arches in held))
        return _codes(containers, _variant(sm), "1.21.0")

    whole = [arches for arches, count in counts.items() for _ in range(count)]
    assert found(whole) == []
    for arches in counts:
        for lost in arches.split():
            rest = arches.replace(lost, "").split()
            damaged = [*whole, " ".join(rest)] if rest else [*whole]
            damaged.remove(arches)
            assert "A005" in found(damaged), (arches, lost)


@pytest.mark.parametrize(
    ("found", "version", "codes"),
    [
        ("90 120", "1.21.0", []),  # plain code runs on 12.1
        ("90a 120a 121", "1.23.2", []),
        ("90a 120a 121", "1.31.1", []),
        ("90a 120a", "1.23.2", ["A001"]),
        ("90a 121", "1.23.2", ["A001"]),
        ("90a 103 120a 121", "1.23.2", ["A006"]),
    ],
)
def test_a_widened_set_is_held_to_every_gpu_that_it_promises(
    found: str, version: str, codes: list[str]
) -> None:
    containers = _containers(container(*map(_image, found.split())))
    assert _codes(containers, _variant("90 120", widen=True), version) == codes


@pytest.mark.parametrize(
    ("path", "raw", "found"),
    [
        ("lib/libcudnn_ops.so.9", (), True),
        ("libcudnn_ops.so.9", (), True),
        ("a/lib/libcudnn_ops.so.9", (), True),
        ("lib/libcudnn_ops.so.9", (container(image(LTOIR, 75)),), True),
        ("lib/libcufft.so.11", (EMPTY_UNIT,), True),
        ("lib/libcufft.so.11", (EMPTY_UNIT, sass(75)), False),
        ("lib/libcurand.so.10", (container(image(PTX, 50)),), False),
        ("lib/libcufftw.so.11", (EMPTY_UNIT,), False),
        ("lib/libcudart.so.12", (), False),
    ],
)
def test_a_library_that_is_of_no_use_without_code(
    path: str, raw: tuple[bytes, ...], found: bool, told: Told
) -> None:
    findings = list(check_has_code(path, _cover(path, *raw)))
    assert [finding.code for finding in findings] == [Code.A008] * found
    told("\n".join(map(str, findings)))


LACKS_75 = container(_image("86"))

HAS_BOTH = container(_image("75"), _image("86"))


@pytest.mark.parametrize(
    "raw",
    [
        (),
        (LACKS_75, LACKS_75),
        (HAS_BOTH, LACKS_75),
        (container(_image("75"), _image("86"), _image("89"), _image("90")),),
    ],
    ids=["A002", "A001", "A005", "A006"],
)
def test_what_a_provider_lacks_or_has_too_much_of_is_told_whole(raw: tuple[bytes, ...], told: Told) -> None:
    containers = _containers(*raw) if raw else ()
    found = check_provider(PROVIDER, containers, _variant("75 86"), Severity.WARNING)
    offset = f"{containers[-1].offset:#x}" if containers else "none"
    told("\n".join(map(str, found)).replace(offset, "OFFSET"))


def _covered(*raw: bytes) -> LibraryCoverage:
    found = _cover("lib/libmyops.so", *raw)
    assert found is not None
    return found


def test_images_of_no_known_kind_and_what_runs_by_jit(told: Told) -> None:
    library = _covered(container(image(PTX, 75)), container(image(SASS, 80)))
    assert list(map(str, by_jit(library, _variant("75 80 86")))) == ["8.0", "8.6"]
    assert list(check_image_kinds(library)) == []
    (finding,) = check_image_kinds(replace(library, unknown=3))
    told(finding)
    ptx = _covered(container(image(PTX, 75)))
    assert list(map(str, by_jit(ptx, _variant("70 75 86")))) == ["7.5", "8.6"]


def test_a_library_of_nobody_knows_whom_is_held_too(told: Told) -> None:
    (finding,) = check_promised_gpus(_covered(sass(75, 80)), _variant("61 70 75"))
    told(finding)


def _errors(provider: tuple[bytes, ...], others: list[LibraryCoverage], variant: Variant) -> list[Finding]:
    findings = list(check_provider(PROVIDER, _containers(*provider), variant, Severity.WARNING))
    findings += [finding for other in others for finding in check_promised_gpus(other, variant)]
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def test_without_an_error_every_promised_gpu_is_served() -> None:
    """The test covers all packages of a provider and one or two libraries made of a few containers."""
    units = [
        sass(75, 86, 120),
        sass(75, 86),
        sass(86),
        EMPTY_UNIT,
        container(image(PTX, 75)),
        container(image(LTOIR, 75)),
        container(image(SASS, 75), image(SASS, 86), image(SASS, 120, A | BLACKWELL)),
        container(image(SASS, 75), image(SASS, 86), image(SASS, 120, F | BLACKWELL)),
    ]
    passed = set()
    for sm, (one, two, three), specialised in product(
        ("75 86", "75 86 120", "75 86 120f"), product(units, repeat=3), (False, True)
    ):
        variant, provider = _variant(sm), (one, two)
        libraries = [
            _cover(PROVIDER, *provider),
            _cover("lib/libx.so", two, three, specialised=specialised),
        ]
        covered = [library for library in libraries if library is not None]
        if _errors(provider, covered[1:], variant):
            continue
        support = combine(covered)
        assert {support[device] for device in promised_devices(variant)} <= {Support.NATIVE, Support.JIT}
        passed.add((sm, specialised))
    assert len(passed) == 6


def _held(counts: dict[str, int]) -> tuple[Container, ...]:
    raw = (container(*map(_image, arches.split())) for arches, count in counts.items() for _ in range(count))
    return _containers(*raw)


@pytest.mark.parametrize(
    ("counts", "version", "native"),
    [
        (FULL_MODERN, "1.21.0", "75 80 86"),  # units for a part of the set are no gap
        (FULL_LEGACY, "1.21.0", "50 52 60 61 70"),
        (FULL_MODERN, None, ""),  # of an unknown version every container counts
        ({"75 80 86": 10, "75 80": 1}, "1.21.0", "75 80"),  # no unit is meant for these two
        ({"80 75": 2, "86 75 80": 1}, None, "75 80"),
        ({}, "1.21.0", ""),
    ],
)
def test_a_provider_is_native_for_what_every_container_of_the_whole_set_holds(
    counts: dict[str, int], version: str | None, native: str
) -> None:
    assert native_in(_held(counts), version) == tuple(map(Arch.parse, native.split()))
