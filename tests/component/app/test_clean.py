"""clean takes what our verbs left, by name, and nothing else: not in the folder, not on the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from docker.errors import APIError

from builder.adapters.docker.engine import DockerEngine
from builder.app.verbs import clean
from builder.builds.wiring import Wiring
from tests.support.fakes.ports import FakeEngine, FakeReporter, FakeRunner, NoEngine

OURS = (
    "ortpacks-legacy-1.21.0-cuda12.9-lean-linux-x64.tar.zst",
    "ortpacks.pyz",
    "index.json",
    "SHA256SUMS",
    "legacy/Dockerfile",
    ".kit-assembled/Dockerfile",
    "bake/docker-bake.json",
)

SOMEBODYS = (
    ".git/config",
    "thesis.pdf",
    "notes-ortpacks.txt",
    "backup.tar.zst",
    "ortpacks-like-but-mine.tar.zst",
    "modern/holiday.jpg",
)


def shop(root: Path, dist: Path, engine: object) -> Wiring:
    made = Wiring(root, dist=dist, reporter=FakeReporter())
    made.__dict__["engine"] = engine
    return made


def test_only_our_results_go(root: Path, tmp_path: Path) -> None:
    for name in (*OURS, *SOMEBODYS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    clean(shop(root, tmp_path, FakeEngine()))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(SOMEBODYS)


def test_without_an_engine_the_folder_is_cleaned_all_the_same(root: Path, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("{}")
    here = shop(root, tmp_path, NoEngine())
    clean(here)
    assert not (tmp_path / "index.json").exists()
    assert isinstance(here.reporter, FakeReporter)
    assert any("No Docker engine answers" in line for line in here.reporter.lines)


@dataclass
class Sdk:
    """Containers and images of an engine with their labels, as the SDK gives them."""

    removed: list[str] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    in_use: str = ""

    @property
    def containers(self) -> object:
        def listed(**filters: object) -> list[object]:
            self.asked.append(filters["filters"])
            return []

        return SimpleNamespace(list=listed)

    @property
    def images(self) -> object:
        tags: tuple[list[str], ...] = (
            ["ortpacks/bare:assembled-1"],
            ["someone/app:1"],
            [],
            ["ortpacks/legacy:1.21.0", "mine:latest"],
        )
        return SimpleNamespace(
            list=lambda filters: [SimpleNamespace(tags=names) for names in tags], remove=self._remove
        )

    def _remove(self, tag: str) -> None:
        if tag == self.in_use:
            raise APIError("conflict", explanation="image is being used")
        self.removed.append(tag)


@pytest.mark.parametrize("in_use", ["", "ortpacks/bare:assembled-1"])
def test_an_image_made_from_ours_and_a_container_of_it_stay(in_use: str) -> None:
    """Both inherit our label: an image goes by its name as well, a container only when we started it."""
    engine = DockerEngine(FakeRunner(), {})
    sdk = Sdk(in_use=in_use)
    engine._client = sdk  # type: ignore[assignment]
    told = list(engine.clean())
    assert sdk.asked == [{"label": "io.ortpacks=run"}]
    wanted = {"ortpacks/bare:assembled-1", "ortpacks/legacy:1.21.0"} - {in_use}
    assert set(sdk.removed) == wanted
    assert (f"nothing of {in_use}: image is being used" in told) is bool(in_use)
