"""Test of the site of README and docs: its pages, its navigation and its search's index."""

import json
import re
from pathlib import Path

import pytest

from builder.build.verbs.maintenance import make_site
from builder.build.verbs.pages import pages
from builder.io.wiring import Wiring
from tests.support import ROOT

pytestmark = pytest.mark.thorough

BY_HAND = r"README|CONTRIBUTING|SECURITY|docs/[\w-]+"
"""The pages that are written by hand: each of their sections has questions that it answers."""


def test_the_site_has_every_page_and_finds_its_words(tmp_path: Path) -> None:
    first = make_site(Wiring(ROOT, dist=tmp_path)).read_text(encoding="utf-8")
    site = tmp_path / "site"
    names = {str(path.relative_to(ROOT).with_suffix("")) for path in pages(ROOT)}
    assert {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")} >= names
    captions = re.findall(r'class="caption-text">([^<]+)', first)
    assert captions == ["I ship an app", "I publish packages", "I maintain this", "More"]
    found = (site / "searchindex.js").read_text(encoding="utf-8").removeprefix("Search.setIndex(")
    index = json.loads(found.removesuffix(")"))
    pages_with = {index["docnames"][at] for at in index["terms"]["ortpacks_force_cc"]}
    assert {"docs/client", "docs/reference/client"} <= pages_with
    script = (site / "_static/sections.js").read_text(encoding="utf-8").partition(" = ")[2]
    sections = json.loads(script.removesuffix(";"))
    unasked = {
        f"{one['page']}#{one['id']}"
        for one in sections
        if re.fullmatch(BY_HAND, one["page"]) and not one["asked"]
    }
    assert {name for name in unasked if not name.startswith("docs/cards#ortpacks-")} == set(), (
        "docs/asked.toml"
    )
