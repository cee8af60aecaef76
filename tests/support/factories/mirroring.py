"""Factory of a dist folder with two small packages, which the real ``mirror_dist`` copies into a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.build.verbs.releases import releasing
from builder.config.variants import Project
from builder.files.digest import LocalFile
from builder.io.wiring import Wiring
from builder.publish.assets import ReleaseHost, ReleasePlan
from builder.publish.mirror import MirrorFolder
from builder.publish.prepare import PublishOptions, ReleaseStatus
from builder.publish.publish import converge_release, publish_release
from tests.support import ROOT
from tests.support.factories.publishing import TAG, of_two_variants, ports
from tests.support.factories.releases import write_two_packages
from tests.support.fakes.ports import FakeReporter


@dataclass
class Stand:
    """The folder ``shop.dist``, and the mirror ``root`` to which its packages are copied."""

    shop: Wiring
    root: Path
    reporter: FakeReporter

    def mirror(self, options: PublishOptions | None = None) -> ReleaseStatus:
        """Run the verb ``mirror`` on ``dist`` and return the release's state."""
        return releasing.mirror_dist(self.shop, options or PublishOptions(), str(self.root))

    def converge(self, files: Sequence[LocalFile], options: PublishOptions | None = None) -> None:
        """Put these files into the mirror as the verb does, without reading packages or writing pages."""
        mirror = MirrorFolder(self.root, self.reporter)
        plan = ReleasePlan(TAG, "", "", tuple(files))
        with mirror.locked():
            converge_release(plan, ports(mirror, self.reporter), options or PublishOptions())
            mirror.finish(TAG)

    def release(self, tag: str = TAG) -> Path:
        return self.root / tag

    @property
    def dist(self) -> Path:
        return self.shop.dist

    @property
    def output(self) -> str:
        return "\n".join(self.reporter.lines)


def open_stand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Return a stand with two unverified packages and a stand-in for the client in ``folder``."""
    dist, reporter = folder / "dist", FakeReporter()

    def publish_on(
        shop: Wiring, project: Project, host: ReleaseHost, options: PublishOptions
    ) -> ReleaseStatus:
        (shop.dist / "ortpacks.pyz").write_bytes(b"PK the client")
        return publish_release(shop.dist, of_two_variants(project), ports(host, reporter), options)

    monkeypatch.setattr(releasing, "publish_on", publish_on)
    fill(dist)
    return Stand(Wiring(ROOT, dist=dist, reporter=reporter), folder / "mirror", reporter)


def fill(dist: Path, padding: int = 150_000) -> None:
    """Write two packages into the emptied folder; another ``padding`` gives the same names other bytes."""
    dist.mkdir(exist_ok=True)
    for path in dist.iterdir():
        path.unlink()
    write_two_packages(dist, legacy=padding, modern=padding)


def whole(stand: Stand, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the contents by path of a mirror that holds this release alone.

    ``releases.json`` is taken from the mirror itself: other tests compare it.
    """
    return {
        **{f"{TAG}/{name}": data for name, data in files.items()},
        "latest": TAG.encode(),
        ".drafts/.lock": b"",
        "releases.json": (stand.root / "releases.json").read_bytes(),
    }


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return inode and ctime of all paths of a folder; a file that is written again has other values."""
    return {
        str(path): (path.lstat().st_ino, path.lstat().st_ctime_ns)
        for path in [folder, *folder.rglob("*")]
        if path.name not in {".drafts", ".lock"}
    }
