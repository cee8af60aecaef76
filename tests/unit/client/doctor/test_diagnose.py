"""Tests of the findings that doctor derives from its observations; their words are in the catalogue."""

import json
import re
from dataclasses import replace

import pytest

from builder.client.commands.doctor import diagnose
from builder.client.doctor.advice import catalogue
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.devices import profile_of
from tests.support import ROOT
from tests.support.messages import Told
from tests.unit.client.doctor.doctor_cases import BARE, CASES, NO_DEVICE

ADVICE = catalogue()


def codes_of(name: str) -> list[str]:
    return re.findall(r"\bD\d{3}\b", name)


@pytest.mark.parametrize("name", CASES)
def test_a_machine_gets_its_codes_the_worst_first(name: str, told: Told) -> None:
    findings = diagnose(CASES[name])
    assert sorted(finding.code for finding in findings) == sorted(codes_of(name))
    ranks = [("error", "warning", "note").index(finding.severity.value) for finding in findings]
    assert ranks == sorted(ranks)
    for finding in findings:
        for text in (finding.seen, finding.means, finding.do):
            assert text.endswith((".", "?"))
            assert "{" not in text
            assert "None" not in text
        told(f"{finding.code} {finding.severity.value}: {finding.seen}\n{finding.means}\n{finding.do}")


def test_every_code_has_a_case_and_no_case_a_code_that_is_none() -> None:
    """Cases are here, messages and places in ``tests/data``."""
    said = json.loads((ROOT / "tests/data/doctor/messages.json").read_text())
    places = [json.loads(path.read_text()) for path in (ROOT / "tests/data/places").glob("*.json")]
    recorded = {row["code"] for row in (*said, *places)}
    assert {code for name in CASES for code in codes_of(name)} | recorded == set(ADVICE)


def test_codes_are_unique_sorted_and_of_one_family() -> None:
    text = (ROOT / "builder/client/doctor/advice.json").read_text()
    names = re.findall(r'^  "(D\d{3})": \{$', text, re.MULTILINE)
    assert names == sorted(set(names)) == list(ADVICE)


def test_a_gpu_without_fp16_is_given_no_number_type_that_its_profile_leaves_out() -> None:
    """ONNX Runtime's OperatorKernels.md: CUDA has no DynamicQuantizeLinear, and MatMulInteger of int8 alone.
    Defect: "or in int8", whose nodes run on the CPU."""
    known = {types for level in profile_of(Capability(5, 2), 8192).dtypes.values() for types in level}
    assert set(re.findall(r"\b(?:fp32|int8|bf16)\b", ADVICE["D207"].do)) == known == {"fp32"}


def test_that_there_is_no_driver_is_said_only_where_nothing_of_it_was_seen() -> None:
    (seen,) = diagnose(replace(BARE, replies={**BARE.replies, "libcuda": NO_DEVICE}))
    assert seen.seen == "No NVIDIA GPU was found."
