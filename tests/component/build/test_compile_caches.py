"""Tests of which compile caches a verb opens."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.verbs.compile_caches import named_cache, open_caches
from builder.build.verbs.flags import ChosenVariants
from builder.compile.compile_cache import FolderCache
from builder.compile.plan import PlanOptions
from builder.errors import DiskError
from builder.io.wiring import Wiring
from tests.support.factories.workplace import wired
from tests.support.fakes.ports import FakeEngine, reported
from tests.support.messages import Told


def shop(root: Path, dist: Path, variable: str | None = None) -> Wiring:
    env = {} if variable is None else {"ORTPACKS_COMPILE_CACHE": variable}
    return wired(root, dist, env, engine=FakeEngine())


def test_only_a_verb_that_compiles_asks_a_cache_and_no_verb_makes_its_folder(
    root: Path, tmp_path: Path
) -> None:
    """Defect: ``build --memory 1M --compile-cache X`` was refused and left an empty folder X."""
    wiring = shop(root, tmp_path, "redis://127.0.0.1:1")
    chosen = ChosenVariants(
        wiring=wiring,
        names=("cpu",),
        every=False,
        plan_options=PlanOptions(),
        builders={"builder": None, "context": None},
    )
    chosen.builds()
    assert reported(wiring) == []
    chosen.builds(open_caches(wiring))
    assert len(reported(wiring)) == 1
    folder = tmp_path / "flag"
    chosen.builds(open_caches(wiring, str(folder)))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("flag", "variable", "configured", "name"),
    [
        (None, "{}/variable", "", "{}/variable"),
        ("{}/flag", "{}/variable", "", "{}/flag"),
        (None, None, "redis://configured", "redis://configured"),
        ("", None, "redis://configured", None),
        (None, "", "redis://configured", None),
    ],
)
def test_the_shared_one_is_named_by_flag_variable_or_project(
    root: Path, tmp_path: Path, flag: str | None, variable: str | None, configured: str, name: str | None
) -> None:
    wiring = shop(root, tmp_path, variable and variable.format(tmp_path))
    wiring.__dict__["project"] = replace(wiring.project, compile_cache=configured)
    found = named_cache(wiring, flag and flag.format(tmp_path))
    assert (found and found.name) == (name and name.format(tmp_path))


def test_the_shared_one_may_be_away(root: Path, tmp_path: Path, told: Told) -> None:
    away = shop(root, tmp_path, "redis://127.0.0.1:1")
    assert open_caches(away).shared is None
    told("\n".join(reported(away)))


def test_a_folder_for_results_that_may_not_be_written_is_refused_before_the_compile(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiring, cache = shop(root, tmp_path), FolderCache(tmp_path / "shared")
    cache.put("ab/cdefghijklm", b"made")
    assert open_caches(wiring, None, cache.name, cache.name).into is not None
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert open_caches(wiring, None, cache.name).ahead is not None, "which is only read"
    with pytest.raises(DiskError, match=rf"^--into {cache.name} may not be written\. Name another"):
        open_caches(wiring, into=cache.name)
