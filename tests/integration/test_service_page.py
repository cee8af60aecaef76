"""Tests of the service's page in a real browser."""

from pathlib import Path

import pytest
from ortpacks_service.options import EMBEDDER

from tests.support.browser import Browser, needs_browser
from tests.support.service import service, write_embedder

pytestmark = needs_browser


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_embedder(tmp_path / "models" / EMBEDDER)
    return tmp_path / "models"


def test_the_page_shows_providers_and_reasons_and_embeds(
    browser: Browser, models: Path, tmp_path: Path
) -> None:
    with service(models, tmp_path / "data", {"ORTPACKS_PROVIDER": "cuda"}) as running:
        browser.ask("Page.navigate", url=f"http://127.0.0.1:{running.port}/")
        assert browser.text_once("#state", "", "…") == "ready"
        row = browser.text_once("#models tr", "")
        assert row.startswith(f"{EMBEDDER}cpucuda: ")
        assert "built without CUDAExecutionProvider\ndo: nothing, unless " in row
        browser.run("document.querySelector('#text').value = 'east north'")
        browser.run("document.querySelector('[name=embed]').click()")
        answer = browser.text_once("#answer", "")
        assert answer.startswith("2 dimensions on cpu in ")
        assert ": 0.5547, 0.8321" in answer  # (2, 3) / sqrt(13)
        assert browser.text_once("#latency", "", "no request yet").startswith("1 request, ")


def test_a_refusal_is_shown_on_the_page(browser: Browser, models: Path, tmp_path: Path) -> None:
    with service(models, tmp_path / "data") as running:
        browser.ask("Page.navigate", url=f"http://127.0.0.1:{running.port}/")
        browser.text_once("#state", "", "…")
        browser.run("document.querySelector('#text').value = '   '")
        browser.run("document.querySelector('[name=embed]').click()")
        assert browser.text_once("#answer", "") == "texts[0] is empty"


def test_the_page_asks_for_the_key_stores_and_searches(
    browser: Browser, models: Path, tmp_path: Path
) -> None:
    with service(models, tmp_path / "data", {"ORTPACKS_API_KEY": "sk-1"}) as running:
        browser.ask("Page.navigate", url=f"http://127.0.0.1:{running.port}/")
        assert "Authorization: Bearer KEY" in browser.text_once("#latency", "")
        assert browser.run("document.querySelector('#login').hidden") is False
        assert browser.run("document.querySelector('thead').offsetHeight") == 0  # no row yet
        browser.run("document.querySelector('#key').value = 'sk-1'")
        browser.run("document.querySelector('#login button').click()")
        assert browser.text_once("#models tr", "").startswith(EMBEDDER)
        assert browser.run("document.querySelector('#login').hidden") is True
        for button, answer in (("add", "stored as number 1"), ("search", "1.0000  1  east")):
            browser.run("document.querySelector('#text').value = 'east'")
            browser.run(f"document.querySelector('[name={button}]').click()")
            assert (
                browser.text_once("#answer", "", "stored as number 1" if button == "search" else "") == answer
            )


def test_the_page_is_no_wider_than_a_telephone(browser: Browser, models: Path, tmp_path: Path) -> None:
    with service(models, tmp_path / "data", {"ORTPACKS_PROVIDER": "tensorrt"}) as running:
        screen = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        browser.ask("Emulation.setDeviceMetricsOverride", **screen)
        browser.ask("Page.navigate", url=f"http://127.0.0.1:{running.port}/")
        browser.text_once("#models tr", "")
        assert browser.run("document.documentElement.scrollWidth") == 360
