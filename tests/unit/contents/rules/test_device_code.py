"""Tests of whether libraries hold a variant's promised code; NVIDIA's guides say which code runs where."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from builder.binary.coverage import LibraryCoverage, Support, as_stated, combine, cover
from builder.binary.deep import CodeTarget, Damage, DeepReading, Gap, Stub
from builder.binary.fatbin import read_containers
from builder.binary.fatbin_format import Container, Kind
from builder.binary.library import Inspected
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
from builder.contents.rules.payloads import (
    check_own_kernels,
    check_payloads,
    check_required,
    kernel_list,
    short_name,
)
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.ort.units import UnitSet, observed_unit_sets
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
from tests.support.factories.libraries import BROKEN, IDLE, coverage
from tests.support.factories.unit_counts import FULL, FULL_LEGACY, FULL_MODERN
from tests.support.messages import Told
from tests.support.tables import table

PROVIDER = "lib/libonnxruntime_providers_cuda.so"

EMPTY_UNIT = container(empty_cubin(52))

PTX_75 = container(image(PTX, 75))


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


SETS = ("50 61 75", "90a", "100", "100f", "101", "120", "120a", "120f", "120 120f")

WIDENED = ("89 90 100 120", "75 80 86", "120a")


@pytest.mark.parametrize(("sets", "widen"), [(SETS, False), (WIDENED, True)])
def test_what_a_set_promises(sets: tuple[str, ...], widen: bool, told: Told) -> None:
    """101 was renumbered; 8.7 is no GPU of "80": a Jetson runs only its own code."""
    devices = {sm: promised_devices(_variant(sm, widen=widen)) for sm in sets}
    told("\n".join(f"{sm}: {' '.join(map(str, found))}" for sm, found in devices.items()))


def _codes(containers: tuple[Container, ...], variant: Variant, version: str | None = None) -> list[str]:
    held = [one.arches(Kind.SASS) for one in containers]
    units = observed_unit_sets(held, version) if version else ()
    return [one.code.name for one in check_provider(PROVIDER, containers, variant, Severity.WARNING, units)]


def test_a_suffix_counts_by_the_gpus_it_leaves_out(told: Told) -> None:
    """ORT's CMake adds the suffix to 120; plain code runs on 12.1 too. 8.6's code runs on 8.9, but was not
    asked for. A widened set is held to every GPU that it promises.
    """
    for asked, held, version in table("rules/suffixes.txt"):
        containers = _containers(container(*map(_image, held.split())))
        codes = _codes(containers, _variant(asked, widen=bool(version)), version or None)
        told(f"{asked} asked, {held} held {version or 'by any'}: {' '.join(codes) or 'fine'}")


def _held(counts: Mapping[str, int]) -> tuple[Container, ...]:
    raw = (container(*map(_image, arches.split())) for arches, count in counts.items() for _ in range(count))
    return _containers(*raw)


SPLIT = {"75 80 86 89 90a 120a": 2, "80 86 89 90a 120a": 1, "90a": 3, "120a": 1}
"""Units of the official wheel 1.31.1: of 609 containers, 217, 91, 292 and 9."""


def test_split_units_are_no_gap_from_their_version_on() -> None:
    asked = _variant("75 80 86 89 90 120")
    found = {version: _codes(_held(SPLIT), asked, version) for version in ("1.31.1", "1.26.0", None)}
    assert found == {"1.31.1": [], "1.26.0": ["A005"] * 6, None: ["A005"] * 6}
    assert _codes(_held({**SPLIT, "75 80 86 89 90a": 1}), asked, "1.31.1") == ["A005"]


@pytest.mark.parametrize("sm", FULL)
def test_a_full_build_holds_its_set_and_no_container_may_lose_any_of_it(sm: str) -> None:
    """In modern's flash attention, SASS for 8.0 serves 8.6: no container of it must have code for 8.6."""
    counts = Counter(FULL[sm])
    assert _codes(_held(counts), _variant(sm), "1.21.0") == []
    for arches in FULL[sm]:
        for lost in arches.split():
            rest = " ".join(arches.replace(lost, "").split())
            damaged = counts - Counter([arches]) + Counter([rest] if rest else [])
            assert "A005" in _codes(_held(damaged), _variant(sm), "1.21.0"), (arches, lost)


def test_units_that_a_build_states_explain_its_containers() -> None:
    stated = (
        UnitSet("whole list", frozenset((Arch(7, 5), Arch(8, 6)))),
        UnitSet("fast attention", frozenset((Arch(8, 6),)), 1, (80, 999)),
    )
    for raw, support, codes in (
        ((HAS_BOTH, LACKS_75), Support.NATIVE, []),
        ((HAS_BOTH, LACKS_75, LACKS_75), Support.PARTIAL, ["A005"]),  # one of them lost 7.5
    ):
        library = _cover(PROVIDER, *raw)
        assert library
        assert library.support[Capability(7, 5)] is Support.PARTIAL
        told = as_stated(library, stated)
        assert told
        assert told.support[Capability(7, 5)] is support
        findings = check_provider(
            PROVIDER, _containers(*raw), _variant("75 86"), Severity.WARNING, told.unit_sets
        )
        assert [one.code.name for one in findings] == codes


@pytest.mark.parametrize(
    ("path", "raw", "found"),
    [
        ("libcudnn_ops.so.9", (), True),
        ("a/lib/libcudnn_ops.so.9", (container(image(LTOIR, 75)),), True),
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
    assert [(one.code, one.path) for one in findings] == [(Code.A008, path)] * found
    if found:
        told(*findings)


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
    told("\n".join(map(str, check_provider(PROVIDER, containers, _variant("75 86"), Severity.WARNING))))


def _covered(*raw: bytes) -> LibraryCoverage:
    found = _cover("lib/libmyops.so", *raw)
    assert found is not None
    return found


def test_what_runs_by_jit_an_unknown_kind_and_a_library_of_nobody_knows_whom(told: Told) -> None:
    library, ptx = _covered(container(image(PTX, 75)), container(image(SASS, 80))), _covered(PTX_75)
    assert list(map(str, by_jit(library, _variant("75 80 86")))) == ["8.0", "8.6"]
    assert list(map(str, by_jit(ptx, _variant("70 75 86")))) == ["7.5", "8.6"]
    assert list(check_image_kinds(library)) == []
    (unknown,) = check_image_kinds(replace(library, unknown=3))
    (lacking,) = check_promised_gpus(_covered(sass(75, 80)), _variant("61 70 75"))
    told(f"{unknown}\n{lacking}")


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
        PTX_75,
        container(image(LTOIR, 75)),
        container(image(SASS, 75), image(SASS, 86), image(SASS, 120, A | BLACKWELL)),
        container(image(SASS, 75), image(SASS, 86), image(SASS, 120, F | BLACKWELL)),
    ]
    passed = set()
    for sm, (one, two, three), specialised in product(
        ("75 86", "75 86 120", "75 86 120f"), product(units, repeat=3), (False, True)
    ):
        variant, provider = _variant(sm), (one, two)
        other = _cover("lib/libx.so", two, three, specialised=specialised)
        libraries = [_cover(PROVIDER, *provider), other]
        covered = [library for library in libraries if library is not None]
        if _errors(provider, covered[1:], variant):
            continue
        support = combine(covered)
        assert {support[device] for device in promised_devices(variant)} <= {Support.NATIVE, Support.JIT}
        passed.add((sm, specialised))
    assert len(passed) == 6


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
def test_what_every_container_holds(counts: dict[str, int], version: str | None, native: str) -> None:
    assert native_in(_held(counts), version) == tuple(map(Arch.parse, native.split()))


PATH = "lib/libfoo.so"


def _sm(word: str) -> CodeTarget:
    return CodeTarget(Kind.SASS, Arch.parse(word))


def _stub(kernel: str, on: str, whole: str) -> Stub:
    return Stub(kernel, tuple(map(_sm, on.split())), tuple(map(_sm, whole.split())))


def _text(found: Iterable[Finding]) -> str:
    every = list(found)
    assert {one.path for one in every} <= {PATH}
    return "\n".join(map(str, every))


def _holding(*stubs: Stub, kernels: int = 100) -> list[Finding]:
    every = {_sm(word): kernels for word in ("52", "75", "80", "90a", "100")}
    return list(check_own_kernels(PATH, DeepReading(stubs=list(stubs), kernels=every)))


@pytest.mark.parametrize(
    ("stubs", "severities"),
    [
        ([_stub("foo_kernel", "52", "80")], "note"),
        ([_stub("foo", "80", "52"), _stub("bar", "80", "100")], "error"),
        ([Stub("foo", (_sm("80"),), (CodeTarget(Kind.PTX, Arch(8, 0)),))], "note"),
        ([_stub("foo", "80 100", "90a")], "note note"),
    ],
    ids=["guarded", "whole on an older one", "whole as PTX for the same", "whole for one GPU alone"],
)
def test_a_stub_of_what_was_whole_is_an_error(stubs: list[Stub], severities: str, told: Told) -> None:
    """Code for ``90a`` may use instructions that neither older nor newer architectures have."""
    found = _holding(*stubs)
    assert " ".join(one.severity.value for one in found) == severities
    told(_text(found))


def test_an_architecture_of_which_half_are_stubs_is_an_error(told: Told) -> None:
    stubs = [_stub(f"foo{number}", "52", "80") for number in range(5)]
    assert [one.severity.value for one in _holding(*stubs, kernels=11)] == ["note"]
    told(_text(_holding(*stubs, kernels=10)))


def test_damage_is_an_error_for_anybody(told: Told) -> None:
    deep = DeepReading(
        damages=[
            Damage(0x40, _sm("52"), "no LZ4 block", packed=True),
            Damage(0x80, _sm("80"), "it lies", packed=False),
        ],
        gaps=[Gap(0x10, _sm("75"), 3, 0), Gap(0x20, _sm("75"), 3, 4)],
        stubs=[_stub("foo", "52", "80"), _stub("bar", "100 52", "80 75")],
    )
    told(_text(check_payloads(PATH, deep)))
    held = DeepReading(damages=deep.damages)
    assert list(check_own_kernels(PATH, held)) == list(check_payloads(PATH, held)), "ours is judged alike"


def test_a_kernel_that_the_host_has_under_another_name(told: Told) -> None:
    """The two names are from the official wheels 1.21.0, 1.23.2 and 1.31.1, on sm_60, 70 and 75 only."""
    cub = "_ZN3cub17CUB_200302_520_NS6kernelIfEEvPT_"
    known = (
        "_ZN11onnxruntime7contrib4cuda20kDequantizeBlockwiseINS_8BFloat16ELi512ELi64ELi8EEEvPKT_PS4_PKhS6_ii"
    )
    names = {cub: {_sm("52")}, known: {_sm("52"), _sm("75")}, "_Z3foof": {_sm("52"), _sm("75")}}
    deep = DeepReading(names=names, unregistered={cub, known})
    told(_text(check_own_kernels(PATH, deep)))
    assert not list(check_payloads(PATH, deep)), "libraries that open their kernels by the driver's API"


@pytest.mark.parametrize("count", [20, 21, 23])
@pytest.mark.parametrize("kind", ["damages", "gaps"])
def test_of_much_damage_some_is_named(count: int, kind: str, told: Told) -> None:
    damages = [Damage(at, _sm("52"), "no LZ4 block", packed=True) for at in range(count)]
    gaps = [Gap(at, _sm("75"), 3, held) for at in range(count) for held in (0, 4)]
    deep = DeepReading(damages=damages) if kind == "damages" else DeepReading(gaps=gaps)
    found = list(check_payloads(PATH, deep))
    assert {one.code.name for one in found[:20]} == {"A010" if kind == "damages" else "A012"}
    told(f"{len(found)} findings\n{_text(found[20:])}")


@pytest.mark.parametrize(("mangled", "short"), table("libraries/mangled.txt"))
def test_names_for_readers(mangled: str, short: str) -> None:
    assert short_name(mangled) == short


def test_alike_names_are_counted() -> None:
    names = ["_ZN1a1bIiEEvv", "_ZN1a1bIfEEvv", "c", "d", "e", "f"]
    assert kernel_list(names) == "a::b (2), c, d and 2 more"


BOTH = Inspected("liba.so", coverage(native="8.6", jit="9.0", mixed={"8.0": (7, 0, 3)}))
"""A library that runs natively on 8.6 and by JIT on 9.0, and that lacks kernels on 8.0."""

OTHERS = [Inspected(f"lib{name}.so", coverage(native="8.6 9.0 8.0")) for name in "bc"]


PLAIN = [Inspected(f"lib{name}.so", coverage(native="8.6")) for name in "abcde"]

X86 = Inspected("liba.so", coverage(native="12.0"), machine="x86-64")

NO_CODE = Inspected("libplain.so")

OUTSIDE = Inspected("liba.so", raw={Kind.SASS: {Arch(7, 5): 1}})


@pytest.mark.parametrize(
    ("libraries", "required", "jit"),
    [
        ([BOTH, *OTHERS], "8.6", False),
        ([BOTH, *OTHERS], "9.0", True),
        ([BOTH, *OTHERS], "8.6 9.0 5.2", False),
        ([BOTH, *OTHERS], "8.0 7.5", True),
        (PLAIN, "7.5", False),
        ([X86], "12.1", False),
        ([NO_CODE, OUTSIDE], "8.6", False),
        ([NO_CODE, IDLE], "8.6", False),
        ([NO_CODE, BROKEN], "8.6", False),
        ([NO_CODE], "8.6", False),
        ([NO_CODE], "", False),
    ],
    ids=[
        *("native", "JIT allowed", "JIT", "lacking", "more than three libraries", "of ARM machines"),
        *("outside of containers", "nothing to run", "not read", "none", "nothing required"),
    ],
)
def test_a_gpu_that_is_not_served_is_named_with_the_libraries_to_blame(
    libraries: list[Inspected], required: str, jit: bool, told: Told
) -> None:
    """Defect: the table said that code lies outside of containers, the finding that there is none."""
    devices = [Capability.parse(device) for device in required.split()]
    told("\n".join(map(str, check_required(libraries, devices, jit=jit))))
