"""Test of a signed release on GitHub's double and in a folder.

A client that has only its root installs from each, and refuses each after somebody has changed it. The
packages are small ones of a factory; signing, publishing, registry and client are real.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from builder.formats.trust import TARGETS
from builder.io.archive.client_zipapp import build_client
from builder.publish.assets import ReleaseHost, ReleasePlan
from builder.publish.mirror import MirrorFolder
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions
from builder.publish.publish import converge_release, publish_release
from tests.doubles.github import REPOSITORY, GitHubDouble
from tests.doubles.loopback import static_server
from tests.doubles.release import FILES, write_release
from tests.support import ROOT, ran
from tests.support.factories.publishing import TAG, github_of, of_two_variants, ports, project_at
from tests.support.factories.releases import TEXTS, append_sum
from tests.support.factories.signing import FIRST, local_file, signing
from tests.support.fakes.ports import FakeReporter
from tests.support.faults.damage import flip

NOW = datetime.now(UTC)

REPLACE = PublishOptions(replace=True, allow=Leniency(unresolved=True, mutable=True))


@dataclass(frozen=True)
class Shop:
    """A host of releases, and the address of its newest release's index."""

    host: ReleaseHost
    index: str
    finish: Callable[[str], None] = lambda tag: None

    def publish(self, dist: Path, *, now: datetime) -> None:
        """Sign the packages in ``dist`` and publish them."""
        made = replace(ports(self.host, FakeReporter()), signing=signing(now=now))
        publish_release(dist, of_two_variants(project_at("https://api.github.com")), made, REPLACE)
        self.finish(TAG)

    def put(self, dist: Path) -> None:
        """Replace the release's files, as the host's owner can."""
        files = [local_file(str(path), path.read_bytes()) for path in sorted(dist.iterdir())]
        converge_release(ReleasePlan(TAG, "", "", tuple(files)), ports(self.host, FakeReporter()), REPLACE)
        self.finish(TAG)


@contextmanager
def github_shop(folder: Path) -> Iterator[Shop]:
    with GitHubDouble(folder).running() as double:
        yield Shop(github_of(double), f"{double.url}/{REPOSITORY}/releases/latest/download/index.json")


@contextmanager
def folder_shop(folder: Path) -> Iterator[Shop]:
    mirror = MirrorFolder(folder, FakeReporter())
    with static_server(folder) as url, mirror.locked():
        yield Shop(mirror, f"{url}/latest/index.json", mirror.finish)


@dataclass(frozen=True)
class User:
    """A machine with a client that knows its root alone, and no default index."""

    client: Path
    home: Path

    def install(self, index: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-I", "-S", str(self.client), "install", "--index", index]
        card = {"ORTPACKS_FORCE_CC": "5.2", "ORTPACKS_FORCE_DRIVER": "550.54.14"}
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), **card}
        return ran(argv, env=env)

    def refuses(self, index: str, why: str) -> None:
        done = self.install(index)
        assert (done.returncode, why in done.stderr) == (7, True), done.stderr


def write_dist(folder: Path, notes: bytes) -> Path:
    write_release(folder, files={**FILES, **TEXTS, "NOTICE": notes})
    for package in sorted(folder.glob("*.tar.zst")):
        append_sum(folder, package)
    build_client(ROOT, folder / "ortpacks.pyz", None, FIRST)
    return folder


@pytest.mark.parametrize("shop_in", [github_shop, folder_shop])
def test_a_client_with_its_root_alone_takes_a_signed_release_and_no_changed_one(
    shop_in: Callable[[Path], AbstractContextManager[Shop]], tmp_path: Path
) -> None:
    old, new = (write_dist(tmp_path / name, name.encode()) for name in ("old", "new"))
    user, stranger = (User(new / "ortpacks.pyz", tmp_path / name) for name in ("user", "stranger"))
    (tmp_path / "host").mkdir()
    with shop_in(tmp_path / "host") as shop:
        shop.publish(old, now=NOW - timedelta(days=9))
        shop.publish(new, now=NOW)
        done = user.install(shop.index)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Installed: " in done.stdout
        for name, why in (
            ("index.json", "index.json is not what was signed"),
            ("ortpacks-legacy-*.tar.zst", "ortpacks-legacy"),
            (TARGETS, ""),
        ):
            changed = Path(shutil.copytree(new, tmp_path / f"flipped-{name[:5]}"))
            flip(next(changed.glob(name)))
            shop.put(changed)
            stranger.refuses(shop.index, why)
        stripped = Path(shutil.copytree(new, tmp_path / "stripped"))
        (stripped / TARGETS).unlink()
        shop.put(stripped)
        stranger.refuses(shop.index, f"there is no {TARGETS}")
        shop.put(old)
        user.refuses(shop.index, "is older than the release that")
        assert not (stranger.home / ".local/share/ortpacks/current").exists()
        shop.put(new)
        assert stranger.install(shop.index).returncode == 0
