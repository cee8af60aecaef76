"""Tests of virtual cards: flags that name none are refused, and a card may be newer than a package."""

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
from tests.support.messages import Refused


def test_cards_by_name_all_of_them_and_none() -> None:
    some = CardRequest(capabilities=(Capability(8, 6), Capability(5, 2)), driver="535.54.03", whole=False)
    assert card_request(["8.6", "sm_52,86"], "535.54.03", None) == some
    every = CardRequest(capabilities=CAPABILITIES, driver=DRIVER, whole=True)
    assert card_request(["all"], None, "cards.md") == every
    assert card_request([], None, None) is None


@pytest.mark.parametrize(
    ("cards", "driver", "grid"),
    [
        *((["8.4"], None, None), (["RTX"], None, None), (["8.6"], "new", None)),
        *(([], "535.54", None), (["8.6"], None, "x.md")),
    ],
)
def test_what_is_no_card(refused: Refused, cards: list[str], driver: str | None, grid: str | None) -> None:
    with refused(ValidationError):
        card_request(cards, driver, grid)


def test_hosts_of_plugins_are_among_the_pinned_ones() -> None:
    request = card_request(["8.6"], None, None, ["1.24.4,1.32.0"])
    assert request is not None
    assert request.hosts == ("1.24.4", "1.32.0")
    for named, host in (([], "1.32.0"), (["8.6"], "1.23.2")):
        with pytest.raises(ValidationError, match=f"--host {host}"):
            card_request(named, None, None, [host])


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
