"""Tests of the atlas: its order, each release's lost and won GPUs, its JSON and its page."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace

import pytest

from builder.inspect.atlas import atlas_of, atlas_page, document
from builder.inspect.report.wheel_record import SecondReading
from tests.support import present
from tests.support.factories.wheel_records import library, two_releases, unit, wheel_record
from tests.support.html_page import TEMPLATES, Page
from tests.support.messages import Told
from tests.support.schemas import schema

OLD, NEW = two_releases()

OTHER = wheel_record("2.0", library(unit("107"), name="demo/libdemo.so"), name="demo")
"""Record of a wheel for a GPU that NVIDIA does not list."""

WINDOWS = replace(OLD, filename="onnxruntime_gpu-1.8.0-cp311-cp311-win_amd64.whl")


def test_projects_stand_in_order_and_of_each_platform_the_newest_first(told: Told) -> None:
    atlas = atlas_of([OLD, WINDOWS, OTHER, NEW])
    told("\n".join(entry.record.label for entry in atlas.entries))


def test_a_release_is_compared_with_the_one_before_it_for_its_platform(told: Told) -> None:
    demo, windows, new, old = atlas_of([OLD, WINDOWS, OTHER, NEW]).entries
    assert (demo.step, windows.step, old.step) == (None, None, None)
    step = present(new.step)
    assert (str(step.before), step.changed, step.lost) == ("1.9.0", True, True)
    told(step.sentence)


def test_a_gpu_that_another_wheel_is_for_is_judged_too() -> None:
    """The columns are the GPUs of all wheels; a wheel without code for one does not run on it."""
    atlas = atlas_of([OTHER, OLD])
    column = [str(gpu.capability) for gpu in atlas.gpus].index("10.7")
    demo, old = (entry.map.overall.cells[column] for entry in atlas.entries)
    assert (demo.mark, old.mark) == ("N", "j")
    assert "ARM" not in old.hover


def test_json_fits_its_schema() -> None:
    made = document(atlas_of([OLD, NEW, OTHER, wheel_record("1.0", name="empty")]))
    schema("atlas").validate(made)
    wheels = made["wheels"]
    assert isinstance(wheels, list)
    new = next(one for one in wheels if one["version"] == "1.10.0")
    assert new["capabilities"]["12.0"] == {"support": "native", "confidence": "high", "reason": None}
    assert (new["before"], new["sha256"]) == ("1.9.0", "ab" * 32)


def test_the_page_has_a_row_for_each_wheel_and_its_proof() -> None:
    reading = SecondReading("cuobjdump 13.5.37", 1, 4, ("a.so: says nothing; for a reason",), ("b.so: odd",))
    texts = Page(atlas_page(atlas_of([OLD, replace(NEW, compared=(reading,))]), TEMPLATES)).pieces
    assert texts.count("onnxruntime-gpu") == 1
    assert [text for text in texts if text in {"1.9.0", "1.10.0"}] == ["1.10.0", "1.9.0"]
    assert {"ab" * 32, "a.so: says nothing; for a reason", "not explained: b.so: odd"} <= set(texts)
    assert any(text.startswith("since 1.9.0: Lost Pascal (6.0, 6.1)") for text in texts)
    # Of 13 GPUs the old wheel has 6.0 6.1 7.5, and by JIT those from 8.0 on; the new one has 7.5 12.0. Each
    # mark is in the wheel's row and in its library's, and the legend has every mark once.
    marks = Counter(text for text in texts if text in set("Nj.~?"))
    assert marks == {"N": 2 * (3 + 2) + 1, "j": 2 * 7 + 1, ".": 2 * (3 + 11) + 1, "?": 1, "~": 1}


def test_the_page_allows_its_own_script_and_nothing_else() -> None:
    page = atlas_page(atlas_of([OLD]), TEMPLATES)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'" in page
    assert not re.search(r"\b(?:src|href)=", page)


@pytest.mark.parametrize("evil", ["<script>", '"><img src=x>', "{{ 7 * 7 }}"])
def test_names_from_a_wheel_are_text(evil: str) -> None:
    page = atlas_page(atlas_of([wheel_record("1.0", library(unit("75"), name=f"a/{evil}.so"))]), TEMPLATES)
    assert f"{evil}.so" in Page(page).pieces
