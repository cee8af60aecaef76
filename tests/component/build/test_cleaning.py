"""Tests of ``clean``: by their names, it removes files and engine objects that our verbs left,
and no others."""

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from docker.errors import APIError

from builder.build.verbs.cleaning import clean
from builder.build.verbs.verb_answers import dumps
from builder.io.docker.engine import DockerEngine, EngineResource
from builder.io.process import Completed
from tests.support.factories.workplace import wired
from tests.support.fakes.ports import FakeEngine, FakeRunner, NoEngine, reported
from tests.support.messages import Told
from tests.support.schemas import schema
from tests.support.tables import data_text

OURS = data_text("dist/ours.txt").split()

SOMEBODYS = data_text("dist/somebodys.txt").split()


def test_without_an_engine_the_folder_is_cleaned_all_the_same(root: Path, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("{}")
    here = wired(root, tmp_path, engine=NoEngine())
    clean(here, caches=False, inputs=False, dry=False)
    assert not (tmp_path / "index.json").exists()
    assert any("No Docker engine answers" in line for line in reported(here))


def test_a_dry_run_says_what_each_kind_takes_and_removes_nothing(
    root: Path, tmp_path: Path, told: Told
) -> None:
    for name in (*OURS, *SOMEBODYS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / OURS[0]).write_bytes(bytes(100_000_000))
    held = (
        EngineResource("image", "ortpacks/bare:nvidia-1", "ortpacks/bare:nvidia-1", 164_000_000),
        EngineResource("image", "ortpacks/toolchain:nvidia-1", "ortpacks/toolchain:nvidia-1", 752_000_000),
        EngineResource("cache", "ortpacks-ccache", "id1", 900_000_000),
    )
    engine = FakeEngine(holds=held)
    here = wired(root, tmp_path, {"ORTPACKS_CACHE": str(tmp_path / "cache")}, engine=engine)
    (tmp_path / "cache/store/ab").mkdir(parents=True)
    (tmp_path / "cache/store/ab/wheel").write_bytes(bytes(200_000_000))
    (tmp_path / "cache/store/ab/shared").hardlink_to(tmp_path / "thesis.pdf")  # frees no byte
    for name in ("made", "requirements/linux-x64"):
        (tmp_path / "cache" / name).mkdir(parents=True)
    (tmp_path / "cache/mine").write_text("not of ours")
    before = sorted(tmp_path.rglob("*"))

    answer = clean(here, caches=True, inputs=True, dry=True)
    schema("clean").validate(json.loads(dumps(answer)))
    assert (answer.removed, len(answer.engine), len(answer.paths)) == (False, 3, 22)
    assert max(one.size for one in answer.paths) == 200_003_584
    told("\n".join(reported(here)))
    assert (sorted(tmp_path.rglob("*")), engine.removed) == (before, [])

    clean(here, caches=False, inputs=True, dry=False)
    assert engine.removed == [*held[:2]]
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*SOMEBODYS, "cache/mine"}
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mine"]


TAGS = (
    ["ortpacks/bare:assembled-1"],
    ["someone/app:1"],
    None,
    ["ortpacks/legacy:1.21.0", "mine:latest"],
)
"""Names of the images with our label, as the engine's API lists them."""


@pytest.mark.parametrize("in_use", ["", "ortpacks/bare:assembled-1"])
def test_an_image_made_from_ours_and_a_container_of_it_stay(in_use: str) -> None:
    """Both inherit our label.

    An image is removed only if its name is ours too, a container only if we started it.
    """
    listed, removed = Mock(return_value=[]), set()

    def remove(tag: str) -> None:
        if tag == in_use:
            raise APIError("conflict", explanation="image is being used")
        removed.add(tag)

    engine = DockerEngine(FakeRunner(), {})
    engine._client = SimpleNamespace(  # type: ignore[assignment]
        containers=SimpleNamespace(list=listed),
        images=SimpleNamespace(remove=remove),
        api=SimpleNamespace(images=lambda filters: [{"RepoTags": names, "Size": 7} for names in TAGS]),
    )
    told = [engine.remove(thing) for thing in engine.resources()]
    assert [call.kwargs["filters"] for call in listed.call_args_list] == [{"label": "io.ortpacks=run"}]
    assert removed == {"ortpacks/bare:assembled-1", "ortpacks/legacy:1.21.0"} - {in_use}
    assert (f"nothing of {in_use}: image is being used" in told) is bool(in_use)


MOUNTS = data_text("docker/mounts.txt")
"""Output of ``docker buildx du --verbose`` (buildx 0.13), without some fields; the last entry is made up."""


def test_only_cache_mounts_and_copies_of_our_names_are_dropped() -> None:
    runner = FakeRunner({"docker buildx du": Completed(code=0, stdout=MOUNTS, stderr="")})
    engine = DockerEngine(runner, {})
    engine._client = SimpleNamespace(  # type: ignore[assignment]
        containers=SimpleNamespace(list=lambda **_: []), api=SimpleNamespace(images=lambda **_: [])
    )
    name = "ortpacks-legacy-full-source-e09f9280"
    mount, copy = engine.resources()
    assert (mount.kind, mount.name, mount.size) == ("cache", name, 948_800_000)
    assert (copy.kind, copy.name, copy.size) == ("copy", "cudnn-lib", 1_053_000_000)
    assert engine.remove(mount) == f"dropped cache {name}"
    assert runner.calls[-1][1:] == ["buildx", "prune", "--force", "--filter=id=ikdl93ogjpltah3g4cdmqf7s7"]
    assert engine.remove(copy) == "dropped copy cudnn-lib"
