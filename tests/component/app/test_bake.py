"""Tests of ``bake``: its folder is complete, refers to nothing outside it, and never replaces
another's folder."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from builder.app.planning import bake
from builder.builds.variant_build import BuildOptions, VariantBuild
from builder.errors import DiskError, NothingToDoError, ValidationError
from builder.pipeline.plan import PlanOptions
from builder.project.variants import Origin
from tests.support import ROOT
from tests.support.factories.workplace import Site

WISHES = PlanOptions(base="assembled", origin=Origin.SOURCE)


@pytest.fixture
def site(root: Path, tmp_path: Path) -> Site:
    return Site(root, tmp_path)


def baked(site: Site, *names: str, out: Path | None = None, plan_options: PlanOptions = WISHES) -> Path:
    project, options = site.shop.project, BuildOptions(plan_options=plan_options)
    builds = {name: VariantBuild(site.shop, project.packages[name], options, site.reporter) for name in names}
    bake(site.shop, builds, str(out) if out else None)
    return out or site.dist / "bake"


def test_each_variant_that_is_compiled_is_a_target(site: Site) -> None:
    folder = baked(site, "legacy", "cpu", "latest")
    document = json.loads((folder / "docker-bake.json").read_text())
    assert document["group"] == {"default": {"targets": ["legacy", "latest"]}}
    assert list(document["target"]) == ["legacy", "latest"]
    for name, target in document["target"].items():
        dockerfile = folder / target["context"] / target["dockerfile"]
        text = dockerfile.read_text()
        assert f"for {name}" in text
        assert f"AS {target['target']}\n" in text
        wanted = {word.removeprefix("--from=") for word in text.split() if word.startswith("--from=")}
        mounted = {word.split(",")[1] for word in text.split() if word.startswith("--mount=type=bind,from=")}
        wanted |= {word.removeprefix("from=") for word in mounted}
        assert {one for one in wanted if f"AS {one}\n" not in text} == target["contexts"].keys()
        for context in target["contexts"].values():
            assert (folder / context).is_dir()
            assert not Path(context).is_absolute()
        assert (folder / target["context"] / "rootfs-build.tar").is_file()
        assert target["output"] == [f"type=local,dest={name}/artifact"]
        steps = [line for line in text.splitlines() if line.startswith("RUN")]
        assert steps
        assert all(line.startswith("RUN --network=none ") for line in steps)
    assert str(folder) not in (folder / "docker-bake.json").read_text()
    assert "cpu is left out: nothing of it is compiled" in site.reporter.lines
    assert site.reporter.lines[-1].startswith(f"{folder}: `docker buildx bake --file docker-bake.json`")
    assert site.engine.builds == []


def test_inputs_are_links_into_the_cache(site: Site) -> None:
    folder = baked(site, "legacy")
    wheel = next(one for one in (folder / "wheels").iterdir() if one.name.startswith("nvidia-cudnn-cu12"))
    files = [file for file in wheel.rglob("*") if file.is_file()]
    assert files
    assert all(file.stat().st_nlink > 1 for file in files)


def test_nvidias_base_reaches_a_network(site: Site) -> None:
    site.engine.images.add("nvidia/cuda:12.9.1-devel-ubuntu22.04")
    folder = baked(site, "legacy", plan_options=PlanOptions(base="nvidia", origin=Origin.SOURCE))
    target = json.loads((folder / "docker-bake.json").read_text())["target"]["legacy"]
    assert "--network" not in (folder / target["context"] / target["dockerfile"]).read_text()


def test_the_limits_in_the_manual_are_arguments_of_the_dockerfile(site: Site) -> None:
    told = re.findall(r"--set '\*\.args\.(\w+)=", (ROOT / "docs/scaling.md").read_text(encoding="utf-8"))
    assert told == ["JOBS", "MEMORY_MIB"]
    folder = baked(site, "legacy")
    target = json.loads((folder / "docker-bake.json").read_text())["target"]["legacy"]
    dockerfile = (folder / target["context"] / target["dockerfile"]).read_text()
    assert all(f"\nARG {name}=0\n" in dockerfile for name in told)


def test_an_earlier_folder_is_made_anew(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "away"
    baked(site, "legacy", "latest", out=out)
    baked(site, "legacy", out=out)
    assert {path.name for path in out.iterdir()} == {"docker-bake.json", "legacy", "wheels"}
    assert not list(tmp_path.glob("away.part-*"))


def test_a_folder_is_replaced_where_it_is(site: Site, tmp_path: Path) -> None:
    """Its path may be a link, or lead through the folder itself."""
    out, link = tmp_path / "disk" / "away", tmp_path / "link"
    baked(site, "legacy", "latest", out=out)
    link.symlink_to(out)
    for way in (link, out / ".." / "away"):
        baked(site, "legacy", out=way)
        assert {path.name for path in out.iterdir()} == {"docker-bake.json", "legacy", "wheels"}
    assert link.is_symlink()


def test_a_folder_that_is_named_through_a_new_one_stays(site: Site, tmp_path: Path) -> None:
    (tmp_path / "thesis.pdf").write_text("years of work")
    with pytest.raises(ValidationError, match="bake did not make what is in it"):
        baked(site, "legacy", out=tmp_path / "new" / "..")
    assert (tmp_path / "thesis.pdf").read_text() == "years of work"


@pytest.mark.parametrize("which", ["the old folder", "the new folder"])
def test_an_earlier_folder_that_cannot_be_replaced_stays(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """A mount point can be emptied, but neither renamed nor removed."""
    out = tmp_path / "away"
    baked(site, "legacy", "latest", out=out)
    before = sorted(out.rglob("*"))
    rename = Path.rename

    def fails(path: Path, target: Path) -> Path:
        is_old = path == out
        if is_old if which == "the old folder" else path.name == out.name and not is_old:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(DiskError) as caught:
        baked(site, "legacy", out=out)
    assert str(caught.value) == (
        f"{out} cannot be written: {os.strerror(errno.EBUSY)}. If it is a mount point, name a folder in it."
    )
    assert sorted(out.rglob("*")) == before
    assert not list(tmp_path.glob("away.part-*"))


def test_an_interrupt_leaves_the_earlier_folder(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the old folder is away and the new one not yet in its place."""
    out = tmp_path / "away"
    baked(site, "legacy", "latest", out=out)
    before = sorted(out.rglob("*"))
    rename, seen = Path.rename, list[Path]()

    def interrupted(path: Path, target: Path) -> Path:
        seen.append(path)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        baked(site, "legacy", out=out)
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_of_somebody_else_stays(site: Site, tmp_path: Path, is_folder: bool) -> None:
    out = tmp_path / "home"
    thesis = out / "thesis.pdf" if is_folder else out
    thesis.parent.mkdir(exist_ok=True)
    thesis.write_text("years of work")
    with pytest.raises(ValidationError) as caught:
        baked(site, "legacy", out=out)
    assert str(caught.value) == f"--out {out}: bake did not make what is in it. Name a new folder."
    assert thesis.read_text() == "years of work"


@pytest.mark.parametrize("entry", ["src", "app", None])
@pytest.mark.parametrize(
    "text",
    [
        '{"target": {"app": {}}}',
        '{"target": {"app": {"context": "app", "output": ["type=docker"]}}}',
        '{"target": {}}',
        '{"target": []}',
        "[]",
        "target",
        "",
        "[" * 100_000,
    ],
    ids=["empty", "theirs", "none", "list", "a list", "text", "no text", "deep"],
)
def test_a_project_with_a_bake_file_of_its_own_stays(
    site: Site, tmp_path: Path, text: str, entry: str | None
) -> None:
    """Docker gives the file its name, and a project may have no other file, or only its target's folder."""
    home = tmp_path / "home"
    (home / (entry or "")).mkdir(parents=True)
    (home / "docker-bake.json").write_text(text)
    with pytest.raises(ValidationError, match="bake did not make what is in it"):
        baked(site, "legacy", out=home)
    assert {path.name for path in home.iterdir()} == {"docker-bake.json", entry} - {None}
    assert (home / "docker-bake.json").read_text() == text


def test_packages_that_nothing_is_compiled_for_are_nothing_to_bake(site: Site) -> None:
    with pytest.raises(NothingToDoError):
        baked(site, "cpu", "directml")
    assert not site.dist.exists(), "defect: the folder above was made before the plans"
