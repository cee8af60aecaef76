"""test_architectures."""

from __future__ import annotations

from itertools import product

import pytest

from builder.binary.coverage import LibraryCoverage, Support, combine, cover
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container
from builder.findings.finding import Finding, Severity
from builder.gpu.architectures import Arch
from builder.project.variants import Variant
from builder.rules.device_code import hold_code, hold_library, hold_provider, promised_devices
from tests.support.factories.binaries import BLACKWELL, LTOIR, PTX, SASS, A, F, container, elf, image, sass

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

EMPTY_UNIT = container(image(SASS, 52, payload=872))


def _variant(sm: str, *, widen: bool = False) -> Variant:
    return Variant(name="v", sm=tuple(map(Arch.parse, sm.split())), generations=(), widen=widen)


def _containers(*raw: bytes) -> tuple[Container, ...]:
    return read_containers(elf({".nv_fatbin": b"".join(raw)}))


def _cover(path: str, *raw: bytes, specialised: bool = False) -> LibraryCoverage | None:
    return cover(path, _containers(*raw), specialised=specialised)


def _image(arch: str) -> bytes:
    parsed = Arch.parse(arch)
    return image(SASS, parsed.number, {"": 0, "a": A, "f": F}[parsed.suffix] | BLACKWELL)


@pytest.mark.parametrize(
    ("sm", "devices"),
    [
        ("50 61 75", "5.0 6.1 7.5"),
        ("90a", "9.0"),
        ("100", "10.0"),
        ("100f", "10.0 10.3"),
        ("120", "12.0"),
        ("120a", "12.0"),
        ("120f", "12.0 12.1"),
        ("120 120f", "12.0 12.1"),
        ("101", "11.0"),  # the same part: it was renumbered
    ],
)
def test_what_a_set_promises(sm: str, devices: str) -> None:
    assert " ".join(map(str, promised_devices(_variant(sm)))) == devices


@pytest.mark.parametrize(
    ("asked", "found", "codes"),
    [
        ("120", "120", []),
        ("120", "120a", []),  # ORT's CMake
        ("120", "120f", []),
        ("120f", "120f", []),
        ("120f", "120", []),  # plain code runs on 12.1 too
        ("120f", "120a", ["A001"]),
        ("120f", "120a 121a", ["A006"]),
        ("100f", "100a", ["A001"]),
        ("90a", "90", []),
        ("90", "90a", []),
        ("89", "86", ["A001", "A006"]),  # it would run, and was not asked for
        ("86", "89", ["A001", "A006"]),
    ],
)
def test_a_suffix_counts_by_the_gpus_it_leaves_out(asked: str, found: str, codes: list[str]) -> None:
    containers = _containers(container(*map(_image, found.split())))
    findings = list(hold_provider(PROVIDER, containers, _variant(asked), Severity.WARNING))
    assert [finding.code.name for finding in findings] == codes


@pytest.mark.parametrize(
    ("sm", "devices"),
    [
        ("89 90 100 120", "8.9 9.0 10.0 10.3 12.0 12.1"),
        ("75 80 86", "7.5 8.0 8.6 8.9"),  # not 8.7: a Jetson runs its own code alone
        ("120a", "12.0"),
    ],
)
def test_what_a_widened_set_promises(sm: str, devices: str) -> None:
    assert " ".join(map(str, promised_devices(_variant(sm, widen=True)))) == devices


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
    variant = _variant("90 120", widen=True)
    findings = list(hold_provider(PROVIDER, containers, variant, Severity.WARNING, version))
    assert [finding.code.name for finding in findings] == codes


@pytest.mark.parametrize(
    ("path", "raw", "codes"),
    [
        ("lib/libcudnn_ops.so.9", (), ["A008"]),
        ("lib/libcudnn_ops.so.9", (container(image(LTOIR, 75)),), ["A008"]),
        ("lib/libcufft.so.11", (EMPTY_UNIT,), ["A008"]),
        ("lib/libcufft.so.11", (EMPTY_UNIT, sass(75)), []),
        ("lib/libcurand.so.10", (container(image(PTX, 50)),), []),
        ("lib/libcufftw.so.11", (EMPTY_UNIT,), []),
        ("lib/libcudart.so.12", (), []),
    ],
)
def test_a_library_that_is_of_no_use_without_code(
    path: str, raw: tuple[bytes, ...], codes: list[str]
) -> None:
    assert [finding.code.name for finding in hold_code(path, _cover(path, *raw))] == codes


def test_a_library_of_nobody_knows_whom_is_held_too() -> None:
    ours = _cover("lib/libmyops.so", sass(75, 80))
    assert ours is not None
    (finding,) = hold_library(ours, _variant("70 75"))
    assert (finding.code.name, finding.path) == ("A003", "lib/libmyops.so")
    assert finding.message.endswith("compute capability 7.0")


def _errors(provider: tuple[bytes, ...], others: list[LibraryCoverage], variant: Variant) -> list[Finding]:
    findings = list(hold_provider(PROVIDER, _containers(*provider), variant, Severity.WARNING))
    findings += [finding for other in others for finding in hold_library(other, variant)]
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def test_without_an_error_every_promised_gpu_is_served() -> None:
    """Over all packages of a provider and one or two libraries made of a few containers."""
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
