"""--cache: from the flag to the one build it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.app.flags import options, wishes, with_cache
from builder.builds.road import Road
from builder.errors import ValidationError
from tests.component.builds.test_road import with_kit
from tests.support.factories.workplace import Site

CACHE = "type=gha,scope=legacy"


def test_the_cache_is_for_what_is_compiled(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = with_kit(Site(root, tmp_path), monkeypatch)
    how_to = with_cache(options(wishes("assembled", "source")), CACHE)
    Road(site.shop, site.shop.project.variants["legacy"], how_to, site.reporter).build()
    assert {request.target: request.cache for request in site.engine.builds} == {"artifact": CACHE}


def test_without_the_flag_there_is_none() -> None:
    assert with_cache(options(wishes()), None).cache is None


def test_a_cache_with_a_secret_is_refused_with_the_flags() -> None:
    with pytest.raises(ValidationError, match="--cache holds token"):
        with_cache(options(wishes()), "type=gha,token=hunter2")
