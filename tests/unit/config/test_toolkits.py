"""Tests of rules for toolkits, and of sets that NVIDIA's pinned libraries do not serve.

Expected values: NVIDIA's support matrices and release notes; tests/integration reads the libraries' bytes.
"""

import json
from dataclasses import replace

import pytest

from builder.config.toolkits import ToolkitChoice, check_is_read, check_served, dumps, lint, missing_in
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.compatibility import compilable, cuda_of_driver, driver_window
from builder.facts.gpu.table import KNOWN_SM
from builder.facts.ort.known_rules import rules_for
from builder.finding import Code, Finding, Severity
from tests.support.factories.binaries import sass
from tests.support.factories.libraries import covered
from tests.support.messages import Told
from tests.support.tables import table

Cuda = tuple[int, ...]


def _arches(text: str) -> tuple[Arch, ...]:
    return tuple(map(Arch.parse, text.split()))


def _version(text: str) -> Cuda:
    return tuple(map(int, text.split(".")))


def linted(sm: str, cuda: str, cudnn: str, ort: str, nvcc: str = "", ptxas: str = "") -> list[Finding]:
    choice = ToolkitChoice(variant="v", sm=_arches(sm), cuda=cuda, cudnn=cudnn, rules=rules_for(ort))
    return lint(replace(choice, nvcc=nvcc or None, ptxas=ptxas or None))


@pytest.mark.parametrize("row", table("config/toolkits.txt"), ids=", ".join)
def test_which_rules_a_set_breaks(row: list[str], told: Told) -> None:
    *choice, rules = row
    findings = linted(*choice)
    assert [finding.code.name for finding in findings] == rules.split()
    told("\n".join(map(str, findings)))


COMPILERS = {int(sm): (_version(first), _version(last)) for sm, first, last in table("gpus/compilers.txt")}

RELEASES = ("11.0", "11.1", "11.4", "11.8", "12.0", "12.4", "12.6", "12.8", "12.9", "13.0", "13.1", "13.4")


@pytest.mark.parametrize("cuda", RELEASES)
def test_each_architecture_with_each_toolkit(cuda: str) -> None:
    expected = {sm for sm, (first, last) in COMPILERS.items() if first <= _version(cuda) <= last}
    assert set(compilable(cuda)) == set(compilable(f"{cuda}.86")) == expected
    refusals = {Code.C002, Code.C003}
    found = {
        sm: {finding.code for finding in linted(str(sm), cuda, "9.10.2.21", "1.23.2")} for sm in KNOWN_SM
    }
    assert {sm for sm, codes in found.items() if not codes & refusals} == expected


@pytest.mark.parametrize("row", table("gpus/drivers.txt"), ids=", ".join)
def test_drivers(row: list[str]) -> None:
    sass, cuda, ptx, packing, floor, branch = row
    isa = _version(ptx) if ptx else None
    window = driver_window(_arches(sass), cuda, isa=isa, compressed=packing == "zstd")
    assert window == (floor, branch or None)


@pytest.mark.parametrize(("driver", "cuda"), table("gpus/cuda_of_driver.txt"))
def test_a_driver_supports_the_cuda_that_came_with_it_and_older_ones(driver: str, cuda: str) -> None:
    assert cuda_of_driver(driver) == _version(cuda)


PINS = (
    *("nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cublas-cu12==12.9.1.4", "nvidia-cufft-cu12==11.4.1.4"),
    *("nvidia-curand-cu12==10.3.10.19", "nvidia-cudnn-cu12==9.10.2.21"),
)


def held(sm: str, pins: tuple[str, ...] = PINS) -> list[str]:
    return [str(finding) for finding in check_served("variants.v.sm", [*map(Arch.parse, sm.split())], pins)]


@pytest.mark.parametrize(
    "sm", ["53", "62", "72", "87", "101", "110", "101a", "75 87", "72 87", "60 62 70 101"]
)
def test_a_set_with_a_jetson_module_is_refused(told: Told, sm: str) -> None:
    """cuRAND 10.3.10.19 holds sm_101."""
    (text,) = held(sm)
    assert text.startswith("error C013 variants.v.sm: no code for ")
    told(text)


@pytest.mark.parametrize("sm", ["50 52 60 61 70", "75 80 86", "89 90a 100f 103 120 121"])
def test_cards_are_served(sm: str) -> None:
    assert held(sm) == []


def test_of_other_versions_nothing_is_known() -> None:
    assert held("87", ("nvidia-cublas-cu12==13.0.0.19",)) == []


def test_a_wheel_that_nobody_read_is_told(told: Told) -> None:
    """The recorded data have all of the project's pins and not cuBLAS 12.8.4.1."""
    assert list(check_is_read(PINS)) == []
    (finding,) = check_is_read((*PINS, "nvidia-cublas-cu12==12.8.4.1"))
    assert (finding.code, finding.severity) == (Code.C014, Severity.WARNING)
    told(finding)


def test_a_wheel_lacks_what_one_of_its_libraries_lacks() -> None:
    """sm_80 runs on 8.0 to 8.9 except Jetson's 8.7; sm_86 does not run on 8.0."""
    both = missing_in([covered(sass(75, 80)), covered(sass(75, 86))])
    assert {Capability(7, 5), Capability(8, 6), Capability(8, 9)}.isdisjoint(both)
    assert {Capability(8, 0), Capability(8, 7), Capability(9, 0)} <= set(both)
    assert missing_in([]) == ()


def test_what_is_written_down_is_read_back() -> None:
    said = json.loads(dumps({"b==2": (), "a==1": (Capability(5, 3), Capability(11, 0))}))
    assert list(said.items()) == [("a==1", ["5.3", "11.0"]), ("b==2", [])]
