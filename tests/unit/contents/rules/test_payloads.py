"""Tests of findings on unpacked images, and of ``inspect --require``: the libraries to blame by GPU."""

from collections.abc import Iterable

import pytest

from builder.binary.deep import CodeTarget, Damage, DeepReading, Gap, Stub
from builder.binary.fatbin_format import Kind
from builder.binary.library import Inspected
from builder.contents.rules.payloads import (
    check_own_kernels,
    check_payloads,
    check_required,
    kernel_list,
    short_name,
)
from builder.facts.gpu.architectures import Arch, Capability
from builder.finding import Finding
from tests.support.factories.libraries import BROKEN, IDLE, coverage
from tests.support.messages import Told
from tests.support.tables import table

PATH = "lib/libfoo.so"


def _sm(word: str) -> CodeTarget:
    return CodeTarget(Kind.SASS, Arch.parse(word))


def _stub(kernel: str, on: str, whole: str) -> Stub:
    return Stub(kernel, tuple(map(_sm, on.split())), tuple(map(_sm, whole.split())))


def _text(found: Iterable[Finding]) -> str:
    every = list(found)
    assert {one.path for one in every} <= {PATH}
    return "\n".join(map(str, every))


def _held(*stubs: Stub, kernels: int = 100) -> list[Finding]:
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
    found = _held(*stubs)
    assert " ".join(one.severity.value for one in found) == severities
    told(_text(found))


def test_an_architecture_of_which_half_are_stubs_is_an_error(told: Told) -> None:
    stubs = [_stub(f"foo{number}", "52", "80") for number in range(5)]
    assert [one.severity.value for one in _held(*stubs, kernels=11)] == ["note"]
    told(_text(_held(*stubs, kernels=10)))


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
