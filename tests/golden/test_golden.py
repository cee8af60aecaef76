"""Tests of rendered Dockerfiles against reviewed text: a template's change shows as a diff of its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.build.verbs.maintenance import check_golden, goldens
from builder.errors import CheckFailedError
from builder.io.wiring import Wiring
from tests.support.fakes.ports import FakeReporter


@pytest.fixture
def shop(root: Path) -> Wiring:
    return Wiring(root, reporter=FakeReporter())


def test_templates_render_what_was_reviewed(shop: Wiring) -> None:
    check_golden(shop, refresh=False)


def test_no_golden_file_is_left_over(shop: Wiring, root: Path) -> None:
    held = {path.name for path in (root / "tests/golden").glob("*Dockerfile")}
    assert held == {name for name, _ in goldens(shop)}


def test_drift_fails_and_shows_the_line(shop: Wiring, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text = next(goldens(shop))
    changed = text.replace("FROM", "FRMO", 1)
    monkeypatch.setattr("builder.build.verbs.maintenance.goldens", lambda _: iter([(name, changed)]))
    with pytest.raises(CheckFailedError, match="FRMO") as caught:
        check_golden(shop, refresh=False)
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("variant", ["legacy", "modern", "latest"])
def test_every_sm_of_the_set_and_no_other_reaches_the_compiler(root: Path, variant: str) -> None:
    sets = {
        "legacy": "50-real;52-real;60-real;61-real;70-real",
        "modern": "75-real;80-real;86-real",
        "latest": "89-real;90-real;100-real;103-real;120-real;121-real",
    }
    assembled = sets | {"latest": "89-real;90-real;90-virtual"}
    for base, wanted in (("nvidia", sets), ("assembled", assembled)):
        text = (root / f"tests/golden/{variant}.{base}.Dockerfile").read_text(encoding="utf-8")
        assert f'set(CMAKE_CUDA_ARCHITECTURES "{wanted[variant]}" ' in text
        assert ("--assemble=100:120" in text) == (base == "assembled" and variant == "latest")


def test_a_repacked_variant_compiles_nothing_of_ort(root: Path) -> None:
    text = (root / "tests/golden/modern.wheel.Dockerfile").read_text(encoding="utf-8")
    assert "ninja" not in text
    assert "AS smoke" in (root / "tests/golden/modern.wheel.runtime.Dockerfile").read_text(encoding="utf-8")
