"""Tests of the atlas in a real browser: answers by card, capability, generation and project; its width."""

from pathlib import Path

import pytest

from builder.inspect.atlas import atlas_of, atlas_page
from builder.inspect.report.wheel_record import WheelRecord
from tests.support.browser import Browser, needs_browser
from tests.support.factories.wheel_records import library, two_releases, unit, wheel_record
from tests.support.html_page import TEMPLATES

pytestmark = needs_browser

SHOWN = "[...document.querySelectorAll('.wheel:not([hidden])')].map(one => one.dataset.label.split(',')[0])"


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """Open an atlas of four wheels.

    Two releases of ONNX Runtime, ``torch`` with code for 9.0 and PTX, and a wheel without device code.
    """
    torch = wheel_record("2.0", library(unit("90", "90"), name="torch/lib/libtorch_cuda.so"), name="torch")
    plain = wheel_record("3.0", name="plain")
    return opened(browser, tmp_path, *two_releases(), torch, plain)


def opened(browser: Browser, folder: Path, *records: WheelRecord) -> Browser:
    file = folder / "atlas.html"
    text = atlas_page(atlas_of(records), TEMPLATES)
    file.write_text(text, encoding="utf-8")
    browser.ask("Page.navigate", url=f"file://{file}")
    browser.text_once("#state", "")
    return browser


def ask(page: Browser, words: str) -> str:
    """Type words into the search field and return the page's new answer."""
    before = str(page.run("document.querySelector('#state').textContent"))
    page.run(
        f"document.querySelector('#search').value = {words!r};"
        "document.querySelector('#search').dispatchEvent(new Event('input'))"
    )
    return page.text_once("#state", before)


def test_before_anything_is_asked_all_wheels_are_there(page: Browser) -> None:
    assert page.text_once("#state") == "4 wheels"
    assert page.run(SHOWN) == ["onnxruntime-gpu 1.10.0", "onnxruntime-gpu 1.9.0", "plain 3.0", "torch 2.0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "gtx 1060",
            "gtx 1060: Pascal, compute capability 6.1. Of 4 wheels: 1 natively, 2 not at all, 1 without code",
        ),
        ("sm_75", "Turing, compute capability 7.5. Of 4 wheels: 2 natively, 1 not at all, 1 without code"),
        ("9.0", "Hopper, compute capability 9.0. Of 4 wheels: 1 natively, 1 by JIT, 1 not at all, 1 without"),
        ("torch rtx 5090", "rtx 5090: Blackwell, compute capability 12.0. Of 1 wheel: 1 by JIT."),
        ("V100 onnxruntime", "V100: Volta, compute capability 7.0. Of 2 wheels: 2 not at all."),
        ("1.9.0", "1 of 4 wheels"),
        ("voodoo", "Nothing is called so."),
    ],
)
def test_it_answers(page: Browser, words: str, said: str) -> None:
    assert said in ask(page, words)


def test_a_row_says_it_in_words_and_its_column_stands_out(page: Browser) -> None:
    ask(page, "pascal")
    answers = page.run("[...document.querySelectorAll('.answer')].map(one => one.textContent)")
    assert answers == ["does not run", "runs natively", "no code for GPUs", "does not run"]
    picked = page.run("[...document.querySelectorAll('.head .picked')].map(one => one.textContent)")
    assert picked == ["6.0", "6.1"]


def test_a_doubt_is_told(browser: Browser, tmp_path: Path) -> None:
    """Paddle's wheel is such a case: only a small library lacks the code."""
    phi = library(*[unit("75 80")] * 20, name="p/libphi.so")
    page = opened(
        browser, tmp_path, wheel_record("1.0", phi, library(unit("80"), name="p/libflash.so"), name="p")
    )
    assert "Of 1 wheel: 1 not at all; doubtful for 1." in ask(page, "RTX 2080")
    assert page.text_once(".answer") == "does not run?"
    assert "Of 1 wheel: 1 natively." in ask(page, "A100")


def test_what_does_not_run_can_be_left_out(page: Browser) -> None:
    ask(page, "GTX 1060")
    page.run("document.querySelector('#only').click()")
    assert page.run(SHOWN) == ["onnxruntime-gpu 1.9.0"]
    assert page.run("document.querySelector('#torch').hidden") is True
    ask(page, "torch")
    assert page.run(SHOWN) == ["torch 2.0"], "of no card, nothing is left out"


def test_a_question_is_in_the_address(page: Browser) -> None:
    page.run("location.hash = '#8.9'")
    assert "Ada" in page.text_once("#state", "4 wheels")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(page: Browser, width: int) -> None:
    page.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
    )
    page.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.run(f"document.documentElement.scrollWidth <= {width}") is True
    narrow = "[...document.querySelectorAll('.strip i')].filter(one => one.clientWidth < 14).length"
    assert page.run(narrow) == 0
