"""--cache: from the flag to the one build it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.app.command_line import build_options, wishes
from builder.builds.variant_build import VariantBuild
from builder.errors import ValidationError
from tests.component.builds.test_variant_build import with_kit
from tests.support.factories.workplace import Site

CACHE = "type=gha,scope=legacy"


def test_the_cache_is_for_what_is_compiled(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = with_kit(Site(root, tmp_path), monkeypatch)
    how_to = build_options(wishes("assembled", "source"), cache=CACHE)
    VariantBuild(site.shop, site.shop.project.variants["legacy"], how_to, site.reporter).build()
    assert {request.target: request.cache for request in site.engine.builds} == {"artifact": CACHE}


def test_without_the_flag_there_is_none() -> None:
    assert build_options(wishes()).cache is None


def test_a_cache_with_a_secret_is_refused_with_the_flags() -> None:
    with pytest.raises(ValidationError, match="--cache holds token"):
        build_options(wishes(), cache="type=gha,token=hunter2")
