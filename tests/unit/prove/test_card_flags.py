"""Tests of virtual cards: flags that name none are refused, and a card may be newer than a package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.errors import ValidationError
from builder.facts.gpu.architectures import Capability
from builder.facts.gpu.table import CAPABILITIES
from builder.prove import cards
from builder.prove.cards import CardBench, CardRequest, card_request
from builder.prove.virtualcard.sessions import DRIVER
from tests.support.factories.releases import manifest
from tests.support.fakes.ports import FakeReporter


def test_no_card_is_asked_for() -> None:
    assert card_request([], None, None) is None


def test_cards_by_name_and_all_of_them() -> None:
    some = card_request(["8.6", "sm_52,86"], "535.54.03", None)
    assert some is not None
    assert [str(one) for one in some.capabilities] == ["8.6", "5.2"]
    assert (some.driver, some.whole) == ("535.54.03", False)
    every = card_request(["all"], None, "cards.md")
    assert every is not None
    assert (every.capabilities, every.driver, every.whole) == (CAPABILITIES, DRIVER, True)


@pytest.mark.parametrize(
    ("cards", "driver", "grid"),
    [
        *((["8.4"], None, None), (["RTX"], None, None), (["8.6"], "new", None)),
        *(([], "535.54", None), (["8.6"], None, "x.md")),
    ],
)
def test_what_is_no_card(
    told: Callable[[object], None], cards: list[str], driver: str | None, grid: str | None
) -> None:
    with pytest.raises(ValidationError) as error:
        card_request(cards, driver, grid)
    told(error.value)


def test_a_package_that_is_older_than_a_card_states_no_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "open_models", lambda *_, **__: [])
    reporter = FakeReporter()
    bench = CardBench(
        wiring=SimpleNamespace(reporter=reporter),  # type: ignore[arg-type]
        runtime=SimpleNamespace(error_of=lambda _: 0),  # type: ignore[arg-type]
        trials=(),
        cards=CardRequest(capabilities=(Capability(12, 1),), driver=DRIVER, whole=False),
        grids=[],
    )
    old = replace(manifest("modern"), capabilities={"8.6": "native"})
    assert bench(Path("p"), old, Path("l"), SimpleNamespace(coverage=())) == ()  # type: ignore[arg-type]
    assert any(line.startswith("12.1: none, ") for line in reporter.lines)
