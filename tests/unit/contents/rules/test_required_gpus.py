"""Tests of ``inspect --require``: for which GPUs a finding is given, and the libraries that it names."""

from __future__ import annotations

import pytest

from builder.binary.fatbin_format import Kind
from builder.binary.library import Inspected
from builder.contents.rules.payloads import check_required
from builder.facts.gpu.architectures import Arch, Capability
from tests.support.factories.libraries import BROKEN, IDLE, coverage
from tests.support.messages import Told

BOTH = Inspected("liba.so", coverage(native="8.6", jit="9.0", mixed={"8.0": (7, 0, 3)}))
"""A library that runs natively on 8.6 and by JIT on 9.0, and that lacks kernels on 8.0."""

OTHERS = [Inspected(f"lib{name}.so", coverage(native="8.6 9.0 8.0")) for name in "bc"]


def found(libraries: list[Inspected], required: str, *, jit: bool = False) -> list[tuple[str, str, str]]:
    devices = [Capability.parse(device) for device in required.split()]
    return [(one.code.name, one.path, one.message) for one in check_required(libraries, devices, jit=jit)]


@pytest.mark.parametrize(
    ("required", "jit", "message"),
    [
        ("8.6", False, ""),
        ("9.0", True, ""),
        ("9.0", False, "on 9.0: by JIT alone (--jit-ok allows that), because of liba.so"),
        ("8.0", True, "on 8.0: some kernels missing, because of liba.so"),
        ("7.5", True, "on 7.5: not at all, because of liba.so, libb.so and libc.so"),
    ],
)
def test_a_gpu_that_is_not_served_is_named_with_the_libraries_to_blame(
    required: str, jit: bool, message: str
) -> None:
    wanted = [("A009", "liba.so", message)] if message else []
    assert found([BOTH, *OTHERS], required, jit=jit) == wanted


def test_each_required_gpu_has_its_own_finding() -> None:
    messages = [message for _, _, message in found([BOTH], "8.6 9.0 5.2")]
    assert [message.partition(":")[0] for message in messages] == ["on 9.0", "on 5.2"]


def test_more_than_three_libraries_are_counted() -> None:
    plain = [Inspected(f"lib{name}.so", coverage(native="8.6")) for name in "abcde"]
    ((_, _, message),) = found(plain, "7.5")
    assert message == "on 7.5: not at all, because of liba.so, libb.so, libc.so and 2 more"


def test_a_gpu_of_arm_machines_is_not_asked_of_a_library_for_x86() -> None:
    library = Inspected("liba.so", coverage(native="12.0"), machine="x86-64")
    assert found([library], "12.1") == [("A009", "", "on 12.1: its machines are ARM, and this is not")]


@pytest.mark.parametrize(
    "libraries",
    [
        [Inspected("libplain.so"), Inspected("liba.so", raw={Kind.SASS: {Arch(7, 5): 1}})],
        [Inspected("libplain.so"), IDLE],
        [Inspected("libplain.so"), BROKEN],
        [Inspected("libplain.so")],
    ],
    ids=["outside of containers", "nothing to run", "not read", "none"],
)
def test_device_code_that_is_not_judged_is_not_called_missing(libraries: list[Inspected], told: Told) -> None:
    """Defect: the table said that the code lies outside of containers, the finding that there is none."""
    ((code, path, message),) = found(libraries, "8.6")
    assert (code, path) == ("A009", "")
    told(message)
    assert found(libraries[:1], "") == []
