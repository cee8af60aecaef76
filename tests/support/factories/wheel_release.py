"""Factory of a dist folder with small packages, whose wheels the real verbs publish and mirror release.

Stand-ins replace only the verification of packages in containers, the client, the runtime layer and pauses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from builder.build.verbs.releases import releasing
from builder.config.load import load_project
from builder.io.wiring import Wiring
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories import official_wheels as official
from tests.support.factories.publishing import TAG

LENIENT = PublishOptions(tag=TAG, allow=Leniency(unresolved=True))


@dataclass
class WheelShop:
    """The folder ``shop.dist``, and the mirror ``root`` to which its release is copied."""

    shop: Wiring
    root: Path

    @property
    def dist(self) -> Path:
        return self.shop.dist

    def mirror(self, tag: str = TAG, *, replaces: bool = False) -> None:
        releasing.mirror_dist(self.shop, replace(LENIENT, tag=tag, replace=replaces), str(self.root))

    def publish(self, github: GitHubDouble) -> None:
        project = releasing.with_target(self.shop, github.url, REPOSITORY)
        releasing.publish_dist(self.shop, LENIENT, project)

    def set_wheels(self, wanted: bool) -> None:
        project = self.shop.project
        self.shop.__dict__["project"] = replace(project, bundle=replace(project.bundle, wheels=wanted))


def members(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


MODERN: Mapping[str, Mapping[str, object]] = {"modern": {}}


def open_wheel_shop(
    root: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: Mapping[str, Mapping[str, object]] = MODERN,
) -> WheelShop:
    """Return a shop with ``packages`` (changes of manifests by variant) and one package for the CPU.

    ``bundle.wheels`` is true, and the environment holds the double's token.
    """
    shop = official.workshop(root, folder)
    project = load_project((root / "variants.yaml").read_text(), "variants.yaml")
    shop.__dict__["project"] = replace(
        project,
        variants={name: one for name, one in project.variants.items() if name in packages},
        providers={"cpu": project.providers["cpu"]},
    )
    shop.env["GITHUB_TOKEN"] = TOKEN  # type: ignore[index]
    monkeypatch.setattr(releasing, "add_programs", lambda *_: None)
    monkeypatch.setattr("builder.prove.verify.Verifier.verify", lambda *_: None)
    shop.sleep = lambda seconds: None  # GitHub wants a second between two writes, its double none
    for variant, changes in packages.items():
        name = f"ortpacks-{variant}-1.23.2-cuda12.9-linux-x64"
        official.write_package(shop.dist, name=name, variant=variant, **changes)  # type: ignore[arg-type]
    official.write_cpu_package(shop.dist)
    made = WheelShop(shop, folder / "mirror")
    made.set_wheels(True)
    return made
