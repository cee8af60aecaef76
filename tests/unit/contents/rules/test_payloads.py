"""Tests of findings on unpacked images: errors for damage and unexplained stubs, notes for others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from builder.binary.deep import CodeTarget, Damage, DeepReading, Gap, Stub
from builder.binary.fatbin_format import Kind
from builder.contents.rules.payloads import check_own_kernels, check_payloads, kernel_list, short_name
from builder.facts.gpu.architectures import Arch
from builder.finding import Finding

PATH = "lib/libfoo.so"


def _sm(word: str) -> CodeTarget:
    return CodeTarget(Kind.SASS, Arch.parse(word))


def _stub(kernel: str, on: str, whole: str) -> Stub:
    return Stub(kernel, tuple(map(_sm, on.split())), tuple(map(_sm, whole.split())))


def _told(found: Iterable[Finding]) -> list[tuple[str, str, str]]:
    """Return code, severity and message of findings, all of which must be about the library."""
    every = list(found)
    assert {one.path for one in every} <= {PATH}
    return [(one.code.name, one.severity.value, one.message) for one in every]


def _held(*stubs: Stub, kernels: int = 100) -> list[tuple[str, str, str]]:
    every = {_sm(word): kernels for word in ("52", "75", "80", "90a", "100")}
    return _told(check_own_kernels(PATH, DeepReading(stubs=list(stubs), kernels=every)))


def test_a_guard_s_stub_is_a_note() -> None:
    assert _held(_stub("foo_kernel", "52", "80")) == [
        ("A013", "note", "foo_kernel is a stub on sm_52 (guarded in its source)")
    ]


def test_a_stub_that_an_older_architecture_has_whole_is_an_error() -> None:
    assert _held(_stub("foo", "80", "52"), _stub("bar", "80", "100")) == [
        ("A013", "error", "foo is a stub on sm_80 (whole on an older architecture)")
    ]


def test_a_stub_that_the_same_architecture_has_whole_as_ptx_is_a_note() -> None:
    stub = Stub("foo", (_sm("80"),), (CodeTarget(Kind.PTX, Arch(8, 0)),))
    assert _held(stub) == [("A013", "note", "foo is a stub on sm_80 (guarded in its source)")]


def test_code_for_one_gpu_alone_is_a_stub_elsewhere() -> None:
    """Code for ``90a`` may use instructions that neither older nor newer architectures have."""
    assert [severity for _code, severity, _text in _held(_stub("foo", "80 100", "90a"))] == ["note", "note"]


def test_an_architecture_of_which_half_are_stubs_is_an_error() -> None:
    stubs = [_stub(f"foo{number}", "52", "80") for number in range(5)]
    assert [severity for _code, severity, _text in _held(*stubs, kernels=11)] == ["note"]
    assert _held(*stubs, kernels=10) == [
        (
            "A013",
            "error",
            "5 kernels are stubs on sm_52 (half of its 10 kernels or more): foo0, foo1, foo2 and 2 more",
        )
    ]


def test_damage_is_an_error_for_anybody() -> None:
    deep = DeepReading(
        damages=[
            Damage(0x40, _sm("52"), "no LZ4 block", packed=True),
            Damage(0x80, _sm("80"), "it lies", packed=False),
        ],
        gaps=[Gap(0x10, _sm("75"), 3, 0), Gap(0x20, _sm("75"), 3, 4)],
        stubs=[_stub("foo", "52", "80")],
    )
    assert _told(check_payloads(PATH, deep)) == [
        ("A010", "error", "the image for sm_52 at 0x40: no LZ4 block"),
        ("A011", "error", "the image for sm_80 at 0x80: it lies"),
        ("A012", "error", "the container at 0x10 holds 3 kernels, and none for sm_75"),
        ("A013", "note", "foo is a stub on sm_52 (more of them for sm_80)"),
    ]
    held = DeepReading(damages=deep.damages)
    assert _told(check_own_kernels(PATH, held)) == _told(check_payloads(PATH, held)), "ours is judged alike"


def test_a_kernel_that_the_host_has_under_another_name_is_an_error_except_two_of_onnxruntime_s() -> None:
    """The two names are from the official wheels 1.21.0, 1.23.2 and 1.31.1, on sm_60, 70 and 75 only."""
    cub = "_ZN3cub17CUB_200302_520_NS6kernelIfEEvPT_"
    known = (
        "_ZN11onnxruntime7contrib4cuda20kDequantizeBlockwiseINS_8BFloat16ELi512ELi64ELi8EEEvPKT_PS4_PKhS6_ii"
    )
    names = {cub: {_sm("52")}, known: {_sm("52"), _sm("75")}, "_Z3foof": {_sm("52"), _sm("75")}}
    deep = DeepReading(names=names, unregistered={cub, known})
    why = "cannot be launched: the host registers other names"
    bnb4 = "onnxruntime::contrib::cuda::kDequantizeBlockwise"
    assert _told(check_own_kernels(PATH, deep)) == [
        ("A014", "error", f"1 kernel for sm_52 {why}: cub::CUB_200302_520_NS::kernel"),
        ("A014", "warning", f"1 kernel for sm_52 {why}: {bnb4}"),
        ("A014", "warning", f"1 kernel for sm_75 {why}: {bnb4}"),
    ]
    assert not list(check_payloads(PATH, deep)), "libraries that open their kernels by the driver's API"


MANY = [(20, None), (21, "1 more images"), (23, "3 more images")]
"""Numbers of findings of a kind, and how the last one begins where they are more than 20."""


@pytest.mark.parametrize(("count", "last"), MANY)
def test_of_much_damage_some_is_named(count: int, last: str | None) -> None:
    damages = [Damage(at, _sm("52"), "no LZ4 block", packed=True) for at in range(count)]
    told = _told(check_payloads(PATH, DeepReading(damages=damages)))
    assert [code for code, _, _ in told[:20]] == ["A010"] * 20
    assert told[20:] == ([("A011", "error", f"{last} are not what their headers say")] if last else [])


def test_a_stub_of_several_architectures_names_each_that_has_more() -> None:
    deep = DeepReading(stubs=[_stub("foo", "100 52", "80 75")])
    assert _told(check_payloads(PATH, deep)) == [
        ("A013", "note", "foo is a stub on sm_52 (more of them for sm_80 sm_75)"),
        ("A013", "note", "foo is a stub on sm_100 (more of them for sm_80 sm_75)"),
    ]


@pytest.mark.parametrize(
    ("mangled", "short"),
    [
        ("scale", "scale"),
        ("_Z17volta_lstm_8_12808params_t", "volta_lstm_8_1280"),
        ("_ZN7cutlass6KernelINS_4gemm6kernel9MoeFCGemmEEEvNT_6ParamsE", "cutlass::Kernel"),
        ("_ZN12_GLOBAL__N_15ScaleIfEEvPT_", "(anonymous)::Scale"),
        ("_ZL5scalePfi", "scale"),
        ("_ZSt4moveIRiE", "_ZSt4moveIRiE"),
    ],
)
def test_names_for_readers(mangled: str, short: str) -> None:
    assert short_name(mangled) == short


def test_alike_names_are_counted() -> None:
    names = ["_ZN1a1bIiEEvv", "_ZN1a1bIfEEvv", "c", "d", "e", "f"]
    assert kernel_list(names) == "a::b (2), c, d and 2 more"


@pytest.mark.parametrize(("count", "last"), MANY)
def test_of_many_containers_without_kernels_some_are_named(count: int, last: str | None) -> None:
    gaps = [Gap(at, _sm("75"), 3, held) for at in range(count) for held in (0, 4)]
    told = _told(check_payloads(PATH, DeepReading(gaps=gaps)))
    assert [code for code, _, _ in told[:20]] == ["A012"] * 20
    assert told[20:] == ([("A012", "error", f"{last} lack the kernels of their containers")] if last else [])
