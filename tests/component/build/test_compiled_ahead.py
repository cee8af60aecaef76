"""Tests of the verb compile: which variants it compiles for an architecture, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from builder.build.verbs.flags import ChosenVariants
from builder.compile.compile_cache import CompileCaches, FolderCache
from builder.compile.plan import Planner, PlanOptions
from builder.config.build_plan import BuildPlan
from builder.config.variants import Origin, Project, Variant
from builder.errors import NothingToDoError, ToolMissingError, ValidationError
from builder.facts.gpu.architectures import Arch
from tests.support.factories.workplace import WISHES, Site
from tests.support.fakes.ports import NoEngine
from tests.support.messages import Refused


def chosen(site: Site, *names: str, every: bool = False, options: PlanOptions = WISHES) -> ChosenVariants:
    return ChosenVariants(
        wiring=site.shop,
        names=names,
        every=every,
        plan_options=options,
        builders={"builder": None, "context": None},
    )


def divided(choice: ChosenVariants, *architectures: str) -> list[tuple[str, list[str]]]:
    found = choice.builds_for(architectures, CompileCaches(), jobs=None, memory=None)
    return [(build.plan().variant.name, [*wanted]) for build, wanted in found]


@pytest.mark.parametrize("every", [False, True])
def test_without_a_name_each_variant_compiles_the_architectures_that_it_has(site: Site, every: bool) -> None:
    each = [("legacy", ["50"]), ("modern", ["75"]), ("latest", ["90", "120"])]
    assert divided(chosen(site, every=every), "90", "50", "75", "120") == each
    assert divided(chosen(site, every=every), "75") == [("modern", ["75"])]


def test_an_architecture_by_which_a_variant_is_widened_is_one_that_it_has(site: Site) -> None:
    redist = replace(WISHES, base="redist")
    assert divided(chosen(site, options=redist), "103") == [("latest", ["103"])]
    (told,) = [line for line in site.reporter.lines if line.startswith("plan ")]
    assert told == "plan latest", "no other variant can have it"


def test_two_variants_with_an_architecture_both_compile_it_in_turn(site: Site, tmp_path: Path) -> None:
    project = site.shop.project
    second = replace(project.variants["modern"], name="second")
    aside = replace(second, name="aside", in_all=False)
    variants = {**project.variants, "second": second, "aside": aside}
    site.shop.__dict__["project"] = replace(project, variants=variants)
    store = FolderCache(tmp_path / "store")
    for build, wanted in chosen(site).builds_for(["80"], CompileCaches(into=store), jobs=None, memory=None):
        build.compile(wanted)
    assert [request.args["AHEAD"] for request in site.engine.builds] == ["80", "80"]
    assert [path.name for path in (tmp_path / "store").rglob("compiled*")] == ["compiled80"]
    assert divided(chosen(site, "aside"), "80") == [("aside", ["80"])]


def test_a_name_must_have_them_all_and_the_others_what_they_have(site: Site) -> None:
    with pytest.raises(ValidationError, match=r"^--arch: legacy is not compiled for 75\. It has 50, "):
        divided(chosen(site, "legacy", every=True), "50", "75")
    assert divided(chosen(site, "modern", every=True), "75") == [("modern", ["75"])]


def test_an_architecture_that_no_variant_has_is_told_with_what_each_has(site: Site, refused: Refused) -> None:
    with refused(ValidationError):
        divided(chosen(site, every=True), "50", "91", "90a")


def test_an_architecture_that_only_a_variant_outside_all_has_is_told_with_its_name(site: Site) -> None:
    """Defect: the message was that no variant is compiled for it."""
    project = site.shop.project
    spark = replace(project.variants["latest"], name="spark", in_all=False, sm=(Arch.parse("121"),))
    site.shop.__dict__["project"] = replace(project, variants={**project.variants, "spark": spark})
    for every in (False, True):
        with pytest.raises(ValidationError, match=r"for 121\. In .*; spark has 121\. One outside --all"):
            divided(chosen(site, every=every), "121")
    assert divided(chosen(site, "spark"), "121") == [("spark", ["121"])]


def test_what_official_wheels_have_is_nothing_to_compile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def plan_modern_as_wheel(planner: Planner, project: Project, variant: Variant) -> BuildPlan:
        made = plan(planner, project, variant)
        if made.variant.name != "modern":
            return made
        return replace(made, origin=Origin.WHEEL, origin_reason="the wheel holds all")

    monkeypatch.setattr(Planner, "plan", plan_modern_as_wheel)
    for choice in (chosen(site), chosen(site, "modern")):
        with pytest.raises(NothingToDoError, match=r"^Nothing is compiled for modern: the wheel holds all$"):
            divided(choice, "80")
    assert divided(chosen(site), "80", "90") == [("latest", ["90"])]
    assert site.reporter.lines[-1] == "Nothing is compiled for modern: the wheel holds all"


def test_memory_and_engine_are_asked_for_before_the_first_compiles(site: Site) -> None:
    with pytest.raises(ValidationError, match=r"too little for latest: .* --memory 4174M or more"):
        chosen(site).builds_for(["50", "90"], CompileCaches(), jobs=None, memory="1G")
    site.use(NoEngine())
    with pytest.raises(ToolMissingError):
        chosen(site).builds_for(["90"], CompileCaches(), jobs=None, memory=None)
