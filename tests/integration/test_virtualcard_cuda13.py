"""Tests of the official wheel for CUDA 13 on virtual cards, which must agree with its coverage."""

from functools import cache
from pathlib import Path

import pytest

from builder.binary.coverage import LibraryCoverage
from builder.binary.library_names import PROVIDER
from builder.contents.card_grid import CardRow, disagreements
from builder.contents.reading import read_file
from builder.facts.gpu.architectures import Capability
from builder.prove.cards import _libraries
from builder.prove.virtualcard.sessions import CardSession, ModelToOpen, VirtualCard, open_models
from tests.answers import pairs
from tests.answers.card import needs_compiler, runtime
from tests.answers.models import models

pytestmark = [pytest.mark.thorough, needs_compiler]

NATIVE = ("7.5", "8.0", "8.6", "8.9", "9.0", "12.0")
"""Capabilities that the wheel's SASS serves; it has no PTX. Source: cuobjdump."""


@cache
def host() -> Path:
    return pairs.official("1.31.1").library


@cache
def coverage() -> LibraryCoverage:
    found = read_file(PROVIDER, host().with_name(PROVIDER), symbols=False).coverage
    assert found is not None
    return found


def opened(capability: str, driver: str = "580.65.06") -> dict[str, CardSession]:
    card = VirtualCard(capability=capability, driver=driver)
    asked = [ModelToOpen(model=one.path, feed=one.feed if one.runs_blind else None) for one in models()]
    answers = open_models(host(), asked, card, runtime=runtime())
    return {model.name: answer for model, answer in zip(models(), answers, strict=True)}


@pytest.mark.parametrize("capability", [*NATIVE, "10.0", "12.1"])
def test_the_card_takes_what_the_coverage_says(capability: str) -> None:
    seen = opened(capability)
    row = CardRow(
        capability=capability,
        support=coverage().support[Capability.parse(capability)].value,
        chosen=None,
        libraries=tuple(_libraries(tuple(seen.values()), [coverage()], capability)),
        models=(),
    )
    assert [library.registered for library in row.libraries] == [True]
    assert [one for one in disagreements("cuda13", row, [coverage()], ()) if one.code.name == "V001"] == []
    minilm = seen["minilm"]
    assert minilm.counts == {"CPUExecutionProvider": 1, "CUDAExecutionProvider": 188}
    if capability in NATIVE:
        assert {(one.error, *one.refused) for one in seen.values()} == {("",)}
        assert minilm.launched > 100
    else:
        assert set(minilm.refused.values()) == {209}
        assert "no kernel image is available" in minilm.error


def test_a_driver_before_580_is_too_old_for_it() -> None:
    seen = opened("8.6", "575.57.08")
    assert all("driver version is insufficient" in one.error for one in seen.values())
