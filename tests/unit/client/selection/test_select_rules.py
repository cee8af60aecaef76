"""Tests of our rules against published ones: for code and device, and from a library's bytes to the choice.

``tests/data/rules`` has NVIDIA's guides, PyTorch's table and that of text-embeddings-inference, each with its
source. Each known difference from our rules is listed there by name, with the correct side and the reason;
any other difference fails.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from builder.binary.coverage import combine
from builder.client.selection.select import PackageChoice, select
from builder.facts.gpu.architectures import Arch, Capability
from builder.facts.gpu.compatibility import runs_sass
from builder.facts.gpu.table import KNOWN_SM
from tests.support import ROOT
from tests.support.factories.binaries import PTX, SASS, A, F, container, image
from tests.support.factories.libraries import covered
from tests.support.tables import table
from tests.unit.client.selection.select_cases import CAPABILITIES, gpu, package, release

Pair = tuple[str, str]
"""Code and device: ``("86", "8.9")``."""

Table = dict[str, Any]
"""A table as its JSON file has it."""


RULES = ROOT / "tests" / "data" / "rules"

PYTORCH: Table = json.loads((RULES / "pytorch.json").read_text(encoding="utf-8"))

TEI: Table = json.loads((RULES / "tei.json").read_text(encoding="utf-8"))

NVIDIA: Table = json.loads((RULES / "nvidia.json").read_text(encoding="utf-8"))

REAL = [int(text.replace(".", "")) for text in CAPABILITIES]

UNSEEN = {35, 37, 101}
"""Devices that no package's map names: Kepler's, and 10.1, which was renamed to 11.0."""


UNKNOWN_TO_PYTORCH = {88, 107}


def dotted(number: int) -> str:
    return f"{number // 10}.{number % 10}"


def ours(code: str, device: int) -> bool:
    return runs_sass(Arch.parse(code), Capability.parse(dotted(device)))


def named(table: Table, name: str) -> set[Pair]:
    return {(code, device) for code, device in table["exceptions"][name]["pairs"]}


def required(code: int) -> set[int]:
    """Return the real devices on which an architecture's SASS runs by PyTorch's rule."""
    rule = PYTORCH["requirement"][str(code)]
    if "only" in rule:
        return set(rule["only"]) & set(REAL)
    end = rule["from"] // 10 * 10 + 10
    return {number for number in REAL if rule["from"] <= number < end} - set(rule.get("except", ()))


def test_pytorchs_table_is_ours_for_every_architecture_and_device() -> None:
    assert set(map(int, PYTORCH["requirement"])) == set(KNOWN_SM) - UNKNOWN_TO_PYTORCH
    for code in map(int, PYTORCH["requirement"]):
        assert {number for number in REAL if ours(str(code), number)} == required(code), f"sm_{code}"


def test_pytorch_drops_suffixes_and_that_is_the_whole_difference() -> None:
    name = "suffixes are dropped"
    differing = {
        (code, dotted(number))
        for code in PYTORCH["exceptions"][name]["suffixed"]
        for number in REAL
        if ours(code, number) != (number in required(int(code[:-1])))
    }
    assert differing == named(PYTORCH, name)


def test_pytorchs_older_check_differs_from_ours_in_the_listed_pairs_only() -> None:
    differing = {
        (str(code), dotted(number))
        for code in map(int, PYTORCH["requirement"])
        for number in REAL
        if code // 10 == number // 10 and not ours(str(code), number)
    }
    assert differing == named(PYTORCH, "the older check asks for the same major only")


def test_every_line_of_teis_unit_test_holds_here() -> None:
    assert [pair for pair in TEI["tested"]["true"] if not ours(str(pair[1]), pair[0])] == []
    assert [pair for pair in TEI["tested"]["false"] if ours(str(pair[1]), pair[0])] == []


def test_teis_ranges_differ_from_ours_in_the_named_exceptions_only() -> None:
    differing = {
        (str(code), dotted(device))
        for code in TEI["compiled_for"]
        for device in REAL
        if ours(str(code), device) != any(matches(arm, device, code) for arm in TEI["arms"])
    }
    orin, b300 = "Orin is taken for a desktop part", "B300 is refused code for B200"
    assert differing == named(TEI, orin) | named(TEI, b300)


def matches(arm: Table, device: int, code: int) -> bool:
    (first, last), (oldest, newest) = arm["device"], arm["code"]
    return bool(first <= device <= last and oldest <= code <= newest)


@pytest.mark.parametrize("case", NVIDIA["cases"], ids=lambda case: f"{case['code']}-on-{case['device']}")
def test_the_examples_of_nvidias_guides_hold_here_and_from_bytes_to_choice(case: Table) -> None:
    assert runs_sass(Arch.parse(case["code"]), Capability.parse(case["device"])) == case["sass"]
    assert chosen([[case["code"]]], case["device"]).support == ("native" if case["sass"] else None)


def chosen(units: Sequence[Sequence[str]], device: str, ptx: Sequence[str] = ()) -> PackageChoice:
    """Return the choice of a machine for a library with these units of SASS, each with ``ptx`` too."""
    containers = (
        container(*(stored(SASS, code) for code in unit), *(stored(PTX, code) for code in ptx))
        for unit in units
    )
    library = covered(*containers)
    support = {str(key): found.value for key, found in combine([library]).items()}
    return select([gpu(device)], release(replace(package("p", ""), capabilities=support)), "linux-x64")


def stored(kind: int, code: str) -> bytes:
    arch = Arch.parse(code)
    return image(kind, arch.number, {"": 0, "a": A, "f": F}[arch.suffix])


@pytest.mark.parametrize("case", PYTORCH["cases"], ids=lambda case: f"{case['built']}-on-{case['device']}")
def test_from_bytes_to_choice_pytorchs_own_cases_come_out_alike(case: Table) -> None:
    assert (chosen([case["built"]], case["device"]).support == "native") == case["runs"]


@pytest.mark.parametrize(("cuda", "built"), PYTORCH["releases"].items())
def test_from_bytes_to_choice_pytorchs_releases_serve_the_same_devices(cuda: str, built: list[int]) -> None:
    for number in REAL:
        runs = number not in UNSEEN and any(number in required(code) for code in built)
        support = chosen([[str(code) for code in built]], dotted(number)).support
        assert support == ("native" if runs else None), (cuda, number)


@pytest.mark.parametrize(("built", "ptx", "device", "support"), table("rules/forward.txt"))
def test_ptx_is_compiled_forward_only(built: str, ptx: str, device: str, support: str) -> None:
    assert chosen([[built]], device, [ptx]).support == (support or None)


def test_one_unit_without_the_architecture_and_the_package_is_not_chosen() -> None:
    assert chosen([["75", "80"], ["75", "80"]], "8.0").support == "native"
    choice = chosen([["75", "80"], ["75"]], "8.0")
    assert choice.package is None
    assert [item.reason for item in choice.reasons] == [
        "only some of its kernels run on compute capability 8.0"
    ]


def test_a_gpu_that_no_map_names_takes_what_the_map_implies() -> None:
    """Defect: 8.8 and 10.7 took the CPU package although another package's code runs there."""
    built, ptx = [["75", "80", "86", "89", "90"]], ["90"]
    assert [chosen(built, device, ptx).support for device in ("8.8", "10.7", "13.0")] == [
        "native",
        "jit",
        "jit",
    ]
    assert chosen(built, "10.7").support is None
