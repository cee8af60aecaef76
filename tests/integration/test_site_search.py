"""Test of the site's search in a real browser: questions, each with the section that answers it."""

import time
from pathlib import Path

import pytest

from builder.build.verbs.maintenance import make_site
from builder.io.wiring import Wiring
from tests.doubles.loopback import static_server
from tests.support import ROOT
from tests.support.browser import Browser, needs_browser
from tests.support.tables import table

pytestmark = [needs_browser, pytest.mark.thorough]

FIRST = "[...document.querySelectorAll('ul.search li a')].map(link => link.getAttribute('href')).slice(0, 3)"


def test_each_question_finds_its_answer_among_the_first_three(browser: Browser, tmp_path: Path) -> None:
    make_site(Wiring(ROOT, dist=tmp_path))
    with static_server(tmp_path / "site") as url:
        missed = [
            asked
            for _, asked, answer in table("site-questions.txt")
            if answer not in first(browser, url, asked)
        ]
    assert missed == []
    assert first(browser, f"file://{tmp_path}/site", "offline install"), (
        "a site that is opened from its folder"
    )


def first(browser: Browser, url: str, asked: str) -> list[str]:
    browser.ask("Page.navigate", url=f"{url}/search.html?q={asked.replace(' ', '+')}")
    until = time.monotonic() + 10
    while not browser.run("document.querySelector('ul.search li a') !== null") and time.monotonic() < until:
        time.sleep(0.05)
    links = browser.run(FIRST)
    assert isinstance(links, list)
    return [str(link).replace(".html", "") for link in links]
