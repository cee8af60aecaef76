"""Tests of provenance as a recipe: its plan_options, refusal of foreign commands, and the tree's
differences from it."""

from __future__ import annotations

import pytest

from builder.config.inputs import Lock, Pin
from builder.contents.provenance import Revision, build_arguments, read_recipe, tree_differences
from builder.errors import ConfigError, SchemaError
from tests.support.factories.provenance import COMMIT, CONFIG, document
from tests.support.messages import Told

OTHER = "0" * 40

LOCK = Lock(
    {
        "wheel:nvidia-cublas-cu12==12.9.1.4": Pin(filename="cublas.whl", sha256="1" * 64),
        "wheel:nvidia-cublas-cu12==12.9.1.4@win-x64": Pin(filename="cublas_win.whl", sha256="2" * 64),
    }
)


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
