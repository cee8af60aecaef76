"""Tests of ``cache``: what the compile caches hold, and how many hits builds in dist had."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.verbs.compile_caches import named_cache, open_caches, show_caches
from builder.build.verbs.flags import ChosenVariants, document_console
from builder.compile.compile_cache import FolderCache
from builder.compile.plan import PlanOptions
from builder.console import Console
from builder.contents.build_record import SUFFIX, record_name
from builder.errors import ConfigError, DiskError, ToolMissingError, TransferError, ValidationError
from builder.formats.json_values import json_text
from builder.io.docker.engine import EngineResource
from builder.io.wiring import Wiring
from tests.support.factories.records import COMPILED, REPACKED
from tests.support.fakes.ports import FakeEngine, FakeReporter, NoEngine, reported
from tests.support.schemas import schema

MOUNTS = (
    EngineResource("cache", "ortpacks-legacy", "1", 926_800_000, "3 hours ago"),
    EngineResource("cache", "ortpacks-ccache", "2", 74_000_000),
)


def shop(root: Path, dist: Path, engine: object, env: dict[str, str] | None = None) -> Wiring:
    made = Wiring(root, dist=dist, reporter=FakeReporter())
    made.__dict__["engine"] = engine
    made.env = env or {}
    made.console = Console(stream=io.StringIO(), env={})
    return made


def shown(wiring: Wiring) -> list[str]:
    stream = wiring.console._stream
    assert isinstance(stream, io.StringIO)
    return stream.getvalue().splitlines()


@pytest.fixture
def full(root: Path, tmp_path: Path) -> tuple[Wiring, FolderCache]:
    for record in (COMPILED, REPACKED):
        (tmp_path / record_name(record.package)).write_text(json_text(record))
    cache = FolderCache(tmp_path / "shared")
    cache.put("ab/cdefghijklm", bytes(1_500_000))
    return shop(root, tmp_path, FakeEngine(holds=MOUNTS)), cache


def test_what_is_held_and_what_was_answered(
    full: tuple[Wiring, FolderCache], told: Callable[[object], None]
) -> None:
    wiring, cache = full
    show_caches(wiring, cache)
    told("\n".join(shown(wiring)))


def test_as_json(full: tuple[Wiring, FolderCache]) -> None:
    wiring, cache = full
    show_caches(wiring, None, wiring.console)
    show_caches(wiring, cache, wiring.console)
    alone, told = map(json.loads, shown(wiring))
    for each in (alone, told):
        schema("cache").validate(each)
    assert alone["shared"] is None
    assert told["shared"] == {"address": cache.name, "objects": 1, "bytes": 1_500_000}
    assert [one["bytes"] for one in told["engine"]] == [74_000_000, 926_800_000]
    assert told["builds"] == [{"package": COMPILED.package, "units": 530, "cache_hits": 3}]


def test_a_shared_one_that_does_not_answer_is_an_error_behind_all_else(
    full: tuple[Wiring, FolderCache],
) -> None:
    """``cache`` fails where a build would continue without the shared cache.

    Defect: with ``--json`` no document was printed, although its schema has ``null`` for this case.
    """
    wiring, _ = full
    away = named_cache(wiring, "redis://127.0.0.1:1")
    with pytest.raises(TransferError, match="does not answer"):
        show_caches(wiring, away)
    *_, engine, build = shown(wiring)
    assert engine.endswith("on the engine; ./run clean --cache drops all of it")
    assert build == f"{COMPILED.package}: 3 of 530 units from ccache"
    with pytest.raises(TransferError, match="does not answer"):
        show_caches(wiring, away, wiring.console)
    document = json.loads(shown(wiring)[-1])
    schema("cache").validate(document)
    assert document["shared"] is None
    assert len(document["engine"]) == len(MOUNTS)
    assert len(document["builds"]) == 1


def test_a_folder_that_is_not_there_is_told_and_not_made(
    full: tuple[Wiring, FolderCache], tmp_path: Path
) -> None:
    wiring, _ = full
    with pytest.raises(ValidationError, match=r"typo is no folder"):
        show_caches(wiring, named_cache(wiring, str(tmp_path / "typo")))
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_damaged_record_is_an_error_behind_all_else(
    full: tuple[Wiring, FolderCache], tmp_path: Path, as_json: bool
) -> None:
    """Defect: nothing was shown, and of two damaged records the second was not named."""
    wiring, cache = full
    (tmp_path / f"a{SUFFIX}").write_text("{")
    (tmp_path / f"b{SUFFIX}").mkdir()
    with pytest.raises(ConfigError, match=rf"(?s)^a{SUFFIX} is not JSON.*b{SUFFIX}: it is a folder") as told:
        show_caches(wiring, cache, wiring.console if as_json else None)
    assert told.value.exit_code == 2
    text = "\n".join(shown(wiring))
    assert all(each in text for each in (cache.name, MOUNTS[0].name, COMPILED.package))


def test_a_damaged_record_is_told_beside_a_shared_one_that_fails(
    full: tuple[Wiring, FolderCache], tmp_path: Path
) -> None:
    wiring, _ = full
    (tmp_path / f"a{SUFFIX}").write_text("{")
    with pytest.raises(TransferError, match="does not answer"):
        show_caches(wiring, named_cache(wiring, "redis://127.0.0.1:1"))
    (warned,) = reported(wiring)
    assert warned.startswith(f"! a{SUFFIX} is not JSON")


def test_a_document_stands_alone_on_standard_output(
    full: tuple[Wiring, FolderCache], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defect: the warning on a damaged record followed the document on standard output."""
    wiring, _ = full
    wiring.console = Console(env={})
    (tmp_path / f"a{SUFFIX}").write_text("{")
    shared = named_cache(wiring, "redis://127.0.0.1:1")
    with pytest.raises(TransferError, match="does not answer"):
        show_caches(wiring, shared, document_console(wiring))
    out, messages = capsys.readouterr()
    assert len(json.loads(out)["builds"]) == 1
    assert messages.startswith(f"  ! a{SUFFIX} is not JSON")


def test_without_an_engine_there_is_nothing_to_show(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError):
        show_caches(shop(root, tmp_path, NoEngine()), None)


def test_only_a_verb_that_compiles_asks_a_cache_and_no_verb_makes_its_folder(
    root: Path, tmp_path: Path
) -> None:
    """Defect: ``build --memory 1M --compile-cache X`` was refused and left an empty folder X."""
    wiring = shop(root, tmp_path, FakeEngine(), {"ORTPACKS_COMPILE_CACHE": "redis://127.0.0.1:1"})
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
        (None, None, "", None),
        (None, None, "redis://configured", "redis://configured"),
        ("", None, "redis://configured", None),
        (None, "", "redis://configured", None),
    ],
)
def test_the_shared_one_is_named_by_flag_variable_or_project(
    root: Path, tmp_path: Path, flag: str | None, variable: str | None, configured: str, name: str | None
) -> None:
    env = {} if variable is None else {"ORTPACKS_COMPILE_CACHE": variable.format(tmp_path)}
    wiring = shop(root, tmp_path, FakeEngine(), env)
    wiring.__dict__["project"] = replace(wiring.project, compile_cache=configured)
    found = named_cache(wiring, flag and flag.format(tmp_path))
    assert (found and found.name) == (name and name.format(tmp_path))


def test_the_shared_one_may_be_away(root: Path, tmp_path: Path, told: Callable[[object], None]) -> None:
    away = shop(root, tmp_path, FakeEngine(), {"ORTPACKS_COMPILE_CACHE": "redis://127.0.0.1:1"})
    assert open_caches(away).shared is None
    told("\n".join(reported(away)))


def test_a_folder_for_results_that_may_not_be_written_is_refused_before_the_compile(
    full: tuple[Wiring, FolderCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    wiring, cache = full
    assert open_caches(wiring, None, cache.name, cache.name).into is not None
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert open_caches(wiring, None, cache.name).ahead is not None, "which is only read"
    with pytest.raises(DiskError, match=rf"^--into {cache.name} may not be written\. Name another"):
        open_caches(wiring, into=cache.name)
