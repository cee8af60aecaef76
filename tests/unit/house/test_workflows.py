"""Tests of the promises that docs/releasing.md makes about the workflows."""

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import yaml

from builder.build.all_variants import architecture_legs, matrix_json, matrix_legs
from builder.config.variants import Origin, Project
from tests.support import ROOT
from tests.support.workflows.expressions import holds, text_of
from tests.support.workflows.walk import filled_in

WORKFLOWS = ("check", "release", "canary", "pins")


def text(name: str) -> str:
    return (ROOT / f".github/workflows/{name}.yml").read_text()


@functools.cache
def workflow(name: str) -> dict[Any, Any]:
    """Return a workflow; its triggers have the key ``True``: YAML 1.1 reads ``on`` as a truth value."""
    value: dict[Any, Any] = yaml.safe_load(text(name))
    return value


def jobs(name: str = "release") -> dict[str, dict[str, object]]:
    value: dict[str, dict[str, object]] = workflow(name)["jobs"]
    return value


def steps(name: str, job: str) -> list[dict[str, object]]:
    found = jobs(name)[job]["steps"]
    assert isinstance(found, list)
    return found


def scripts(name: str) -> Iterator[str]:
    for job in jobs(name):
        yield from (str(step["run"]) for step in steps(name, job) if "run" in step)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_is_permitted_but_what_a_job_asks_for_and_every_job_has_an_end(name: str) -> None:
    assert workflow(name)["permissions"] == {}
    assert all({"permissions", "timeout-minutes"} <= job.keys() for job in jobs(name).values())


def test_only_the_publishing_job_may_write_files_and_no_release_is_cancelled() -> None:
    """The job that attests packages runs nothing of the project, and may write nothing else."""
    all_jobs = [job for workflow in WORKFLOWS for job in jobs(workflow).items()]
    writers = {name: job["permissions"] for name, job in all_jobs if "write" in str(job["permissions"])}
    vouching = {"id-token": "write", "attestations": "write"}
    assert writers == {
        "attest": vouching,
        "publish": {"contents": "write", **vouching},
        "pypi": {"id-token": "write"},
        "npm": {"id-token": "write"},
        "propose": {"contents": "write", "pull-requests": "write"},
    }
    assert workflow("release")["concurrency"]["cancel-in-progress"] is False


@pytest.mark.parametrize("name", WORKFLOWS)
def test_scripts_get_values_and_secrets_by_the_environment_alone(name: str) -> None:
    found = list(scripts(name))
    assert found
    assert [script for script in found if "${{" in script or "TOKEN" in script or "secrets" in script] == []


def test_the_token_is_given_to_publish_alone() -> None:
    given = [
        str(step["run"])
        for job in jobs()
        for step in steps("release", job)
        if "github.token" in str(step) or "secrets." in str(step)
    ]
    assert [
        script for script in given if "./run publish " not in script and "docker login" not in script
    ] == []


def test_a_release_of_official_wheels_alone_compiles_nothing(project: Project) -> None:
    """A job with an empty matrix fails, and its run with it."""
    wheels = replace(project, onnxruntime=replace(project.onnxruntime, origin=Origin.WHEEL))
    nothing = matrix_json(architecture_legs(matrix_legs(wheels), wheels, "nvidia"))
    assert jobs()["compile"]["if"] == f"needs.matrix.outputs.architectures != '{nothing}'"


def test_nothing_signs_where_something_is_compiled_or_comes_from_a_cache_that_others_write() -> None:
    for job in jobs():
        made = any(
            f"./run {verb}" in str(step.get("run"))
            for step in steps("release", job)
            for verb in ("build", "compile")
        )
        assert not (made and "id-token" in jobs()[job]["permissions"]), job  # type: ignore[operator]
    assert "./run" not in str(steps("release", "attest"))
    assert "checkout" not in str(steps("release", "attest"))
    assert re.findall(r"type=gha|actions/cache|--cache ", text("release")) == []


def test_a_release_is_public_only_after_each_package_was_attested() -> None:
    assert jobs()["attest"]["needs"] == ["matrix", "build"]
    assert jobs()["publish"]["needs"] == ["build", "attest"]
    for dry_run, attested, published in (
        (False, "success", True),
        (False, "failure", False),
        (True, "skipped", True),
    ):
        needs = {"build": {"result": "success"}, "attest": {"result": attested}}
        context = {"needs": needs, "inputs": {"dry_run": dry_run}}
        assert holds(str(jobs()["publish"]["if"]), context, {"cancelled": lambda: False}) == published


def test_the_signing_key_is_a_secret_of_the_environment_that_publishes() -> None:
    given = {job for job in jobs() if "ORTPACKS_SIGNING_KEY" in str(jobs()[job])}
    assert given == {job for job in jobs() if jobs()[job].get("environment") == "release"} == {"publish"}


@pytest.mark.parametrize("index", ["pypi", "npm"])
def test_an_index_gets_what_was_published_and_only_where_the_settings_name_it(index: str) -> None:
    """Its job holds a right to publish, so it runs nothing of the project."""
    assert "./run" not in str(steps("release", index))
    assert "checkout" not in str(steps("release", index))
    asked: dict[str, dict[str, object]] = {"inputs": {}, "vars": {f"ORTPACKS_{index.upper()}": "true"}}
    for published, change, runs in (
        ("success", {}, True),
        ("failure", {}, False),
        ("success", {"vars": {}}, False),
        ("success", {"inputs": {"dry_run": True}}, False),
    ):
        context = {**asked, "needs": {"publish": {"result": published}}, **change}
        assert holds(str(jobs()[index]["if"]), context, {"cancelled": lambda: False}) == runs


def test_any_base_makes_a_release_and_is_tried_each_night(project: Project) -> None:
    asked = workflow("release")[True]["workflow_dispatch"]["inputs"]["base"]
    assert sorted(asked["options"]) == sorted(project.bases)
    named = [script for script in scripts("release") if "--base" in script or "lock --check" in script]
    assert [script for script in named if '"$BASE"' not in script] == []
    assert in_leg("canary", "build", {})["strategy"]["matrix"]["base"] == list(project.bases)


def in_leg(name: str, job: str, inputs: dict[str, object]) -> dict[str, Any]:
    """Return a job without its steps, with the values of its expressions."""
    of_job = {key: value for key, value in jobs(name)[job].items() if key not in {"steps", "if"}}
    nothing: dict[str, object] = {"matrix": {}, "vars": {}, "needs": {}, "github": {"ref_name": "v1"}}
    return dict(filled_in(of_job, {**nothing, "inputs": inputs}))


def test_a_tag_and_a_night_which_have_no_inputs_make_what_the_buttons_default_to() -> None:
    asked = {name: workflow(name)[True]["workflow_dispatch"]["inputs"] for name in ("release", "canary")}
    by_default = {
        name: {key: one.get("default") for key, one in inputs.items()} for name, inputs in asked.items()
    }
    for inputs in ({}, by_default["release"]):
        env = filled_in(workflow("release")["env"], {"inputs": inputs, "vars": {}})
        assert [text_of(env[name]) for name in ("BASE", "PROFILE", "VARIANTS")] == ["nvidia", "full", ""]
        assert in_leg("release", "publish", inputs)["env"]["ALLOW"].split() == []
    tag, night = (in_leg("canary", "build", inputs) for inputs in ({}, by_default["canary"]))
    assert text_of(tag["env"].pop("VARIANTS")) == night["env"].pop("VARIANTS") == ""
    assert tag == night
    assert (tag["env"]["PROFILE"], tag["env"]["WHEEL"]) == ("minimal", "modern")


@pytest.mark.parametrize(
    ("inputs", "allowed"),
    [
        ({"profile": "full", "variants": "legacy"}, ["--allow-partial"]),
        ({"profile": "lean", "variants": ""}, ["--allow-lean"]),
        ({"profile": "minimal", "variants": "legacy cpu"}, ["--allow-lean", "--allow-partial"]),
    ],
)
def test_what_the_button_asked_for_is_allowed_and_nothing_else(
    inputs: dict[str, object], allowed: list[str]
) -> None:
    assert in_leg("release", "publish", inputs)["env"]["ALLOW"].split() == allowed


def test_a_build_whose_time_is_up_is_gone_on_with(project: Project) -> None:
    (build, kept), *_ = [
        pair for pair in pairwise(steps("release", "build")) if "./run build" in str(pair[0].get("run"))
    ]
    (limit,) = re.findall(r"timeout --signal=INT --kill-after=5m (\d+)m", str(build["run"]))
    assert int(limit) < max(leg.timeout_minutes for leg in matrix_legs(project)) - 30
    assert kept["if"] == "always()"


def test_a_run_again_replaces_what_the_first_one_uploaded() -> None:
    uploads = [step for job in jobs() for step in steps("release", job) if "upload-artifact" in str(step)]
    assert uploads
    assert [step for step in uploads if "'overwrite': True" not in str(step["with"])] == []
