"""Tests of a release's jobs, which follow from variants.yaml."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from builder.build.all_variants import (
    architecture_legs,
    matrix_json,
    matrix_legs,
    matrix_table,
)
from builder.config.variants import Origin, Project
from builder.errors import ValidationError
from builder.facts.gpu.architectures import Arch
from tests.support.messages import Told
from tests.support.schemas import schema


def of(project: Project, origin: Origin, **sm: list[str]) -> Project:
    """Return the project with other variants and another origin."""
    legacy = project.variants["legacy"]
    variants = {
        name: replace(legacy, name=name, sm=tuple(map(Arch.parse, archs))) for name, archs in sm.items()
    }
    onnxruntime = replace(project.onnxruntime, origin=origin)
    return replace(project, variants=variants, providers={}, onnxruntime=onnxruntime)


def test_what_may_compile_is_given_the_six_hours_of_a_hosted_runner(project: Project, told: Told) -> None:
    told(matrix_json(matrix_legs(of(project, Origin.AUTO, old=["50", "52"], new=["90a", "100"]))))


def test_packages_without_cuda_are_repacked_whatever_the_variants_are(project: Project, told: Told) -> None:
    compiled = replace(of(project, Origin.SOURCE, old=["50"]), providers={"cpu": project.providers["cpu"]})
    made = matrix_legs(compiled)
    told("\n".join(matrix_table(made)))
    assert json.loads(matrix_json(made))["include"][1]["sm"] == []


def test_each_architecture_that_may_be_compiled_has_a_leg_of_its_own(project: Project) -> None:
    made = matrix_legs(of(project, Origin.AUTO, old=["50", "52"], new=["90a"]))
    by_arch = architecture_legs(made, project, "auto")
    legs = [(leg.variant, *leg.sm) for leg in by_arch]
    assert legs == [("old", "50"), ("old", "52"), ("new", "90a")]
    schema("matrix").validate(json.loads(matrix_json(by_arch)))
    (wheel,) = matrix_legs(of(project, Origin.WHEEL, new=["75"]))
    assert (wheel.timeout_minutes, architecture_legs([wheel], project, "auto")) == (60, ())


def test_a_leg_is_for_what_the_base_compiles(project: Project) -> None:
    """``latest`` is widened by 10.3 and 12.1 where ORT replaces 100 by 100a (from 1.23 on)."""
    legs = [leg for leg in matrix_legs(project) if leg.variant == "latest"]
    plain, accelerated = (
        [sm for leg in architecture_legs(legs, project, base) for sm in leg.sm]
        for base in ("assembled", "redist")
    )
    assert plain == ["89", "90", "100", "120"]
    assert accelerated == ["89", "90", "100", "103", "120", "121"]


def test_every_name_has_a_leg_and_the_schema_takes_it(root: Path, project: Project) -> None:
    written = yaml.safe_load((root / "variants.yaml").read_text())
    matrix = json.loads(matrix_json(matrix_legs(project)))
    schema("matrix").validate(matrix)
    assert not schema("matrix").is_valid({"include": []})
    of_all = [name for name, entry in written["variants"].items() if entry.get("all", True)]
    assert of_all == ["legacy", "modern", "latest"]
    assert [leg["variant"] for leg in matrix["include"]] == [*of_all, *written["providers"]]


def test_named_packages_alone_have_legs_also_those_that_all_leaves_out(project: Project) -> None:
    assert [leg.variant for leg in matrix_legs(project, ["windows", "cpu"])] == ["windows", "cpu"]
    with pytest.raises(ValidationError):
        matrix_legs(project, ["legacy", "legac"])
