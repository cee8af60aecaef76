"""Tests of provenance as a recipe: its plan_options, refusal of foreign commands, and the tree's
differences from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from builder.config.inputs import Lock, Pin
from builder.contents.provenance import Revision, build_arguments, read_recipe, tree_differences
from builder.errors import ConfigError, SchemaError
from tests.support.json_texts import changed
from tests.support.messages import Told

COMMIT, OTHER = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d", "0" * 40

CONFIG = "c" * 64

LOCK = Lock(
    {
        "wheel:nvidia-cublas-cu12==12.9.1.4": Pin(filename="cublas.whl", sha256="1" * 64),
        "wheel:nvidia-cublas-cu12==12.9.1.4@win-x64": Pin(filename="cublas_win.whl", sha256="2" * 64),
    }
)


def document(**changes: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a provenance document in the form of docs/provenance.md, with other values at paths like
    ``externalParameters__command``."""
    patch = {"uri": "pkg:deb/debian/patch@2.7", "digest": {"sha256": "3" * 64}, "annotations": {"base": True}}
    definition = {
        "buildType": "https://github.com/o/r/blob/main/docs/provenance.md#build-type-v1",
        "externalParameters": {
            "command": "./run build --variant legacy --profile minimal --base assembled",
            "variant": "legacy",
            "config": {"path": "variants.yaml", "sha256": CONFIG},
        },
        "internalParameters": {"base": "assembled", "baseRevision": "sha256:ba5e"},
        "resolvedDependencies": [
            {"name": "ortpacks", "uri": "git+https://github.com/o/r", "digest": {"gitCommit": COMMIT}},
            {"uri": "pkg:pypi/nvidia-cublas-cu12@12.9.1.4", "digest": {"sha256": "1" * 64}},
            patch,
        ],
    }
    for path, value in changes.items():
        definition = json.loads(changed(json.dumps(definition), path.replace("__", "/"), value))
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "p.tar.zst", "digest": {"sha256": "9" * 64}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": definition,
            "runDetails": {
                "builder": {"id": "https://github.com/o/r"},
                "metadata": {"startedOn": "2026-11-23T20:21:36Z", "finishedOn": "2026-11-23T20:21:43Z"},
            },
        },
    }
    return json.dumps(statement).encode()


def differences(
    recipe: bytes, commit: str = COMMIT, *, dirty: bool = False, config: str = CONFIG
) -> list[str]:
    revision = Revision(commit, dirty) if commit else None
    return [*tree_differences(read_recipe(recipe, "p"), revision, config, LOCK)]


def test_the_same_tree_departs_in_nothing() -> None:
    assert differences(document()) == []


def test_each_departure_is_a_sentence(told: Told) -> None:
    for found in (
        differences(document(), OTHER),
        differences(document(), ""),
        differences(document(), dirty=True),
        differences(document(), config="d" * 64),
        differences(document(resolvedDependencies__0__annotations={"dirty": True})),
        differences(document(resolvedDependencies__1__digest={"sha256": "4" * 64})),
        differences(document(resolvedDependencies__1__uri="pkg:pypi/numpy@1.0")),
    ):
        (sentence,) = found
        told(sentence)


def test_an_input_is_held_to_the_lock_whatever_platform_it_is_for() -> None:
    assert differences(document(resolvedDependencies__1__digest={"sha256": "2" * 64})) == []


def test_the_command_is_taken_apart() -> None:
    recipe = read_recipe(document(), "p")
    assert build_arguments(recipe) == ["--variant", "legacy", "--profile", "minimal", "--base", "assembled"]
    assert (recipe.variant, recipe.base_revision) == ("legacy", "sha256:ba5e")
    assert recipe.subjects == {"p.tar.zst": "9" * 64}


@pytest.mark.parametrize(
    "command",
    [
        "./run image --variant legacy --platform linux/arm64",
        "./run build --variant legacy; rm -rf /",
        "./run build --variant legacy --dist /etc",
        "./run build --variant $(id)",
        "./run build --variant  legacy",
        "",
    ],
)
def test_no_other_command_of_a_foreign_file_is_run(command: str) -> None:
    recipe = read_recipe(document(externalParameters__command=command), "p")
    with pytest.raises(ConfigError, match="is no command that makes a package"):
        build_arguments(recipe)


def test_what_is_no_provenance_is_told() -> None:
    with pytest.raises(SchemaError):
        read_recipe(b"{}", "p")
