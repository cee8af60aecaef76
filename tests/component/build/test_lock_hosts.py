"""Tests of ``lock --missing`` on hosts that serve something else than what they should.

Each is a host of the double of the internet, behind its proxy; only the engine is a fake.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.build.pinning import lock_missing
from builder.config.inputs import Lock
from builder.config.load import parse_lock
from builder.errors import CheckFailedError
from builder.io.wiring import Wiring
from tests.doubles.internet.sites import Sites, proxy
from tests.doubles.internet.world import World
from tests.support.factories.project_copy import PARTS
from tests.support.factories.redist import git, tag
from tests.support.fakes.ports import FakeEngine, FakeReporter

pytestmark = pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("openssl")), reason="needs git and openssl"
)

GITHUB = "github.com/microsoft/onnxruntime"
GIT = f"git:https://{GITHUB}@v1.23.2"
ARCHIVE = "github.com/abseil/abseil-cpp/archive/refs/tags/20250512.0.zip"
KEY = f"url:https://{ARCHIVE}"
REDIST = "developer.download.nvidia.com/compute/cuda/redist"
LISTS = "snapshot.ubuntu.com/ubuntu/20251101T000000Z/dists"
CONTENT = b"an archive"
IMAGES = ("nvidia/cuda:12.9.1-devel-ubuntu22.04", "ubuntu:22.04")

HTML = b"<!DOCTYPE html><html><body>Please log in.</body></html>"

CMAKE = """\
include(FetchContent)
FetchContent_Declare(abseil_cpp URL ${DEP_URL_abseil_cpp} URL_HASH SHA1=${DEP_SHA1_abseil_cpp})
"""


def lay(world: World, address: str, content: bytes) -> None:
    file = world.site(address)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


@dataclass
class Hosts:
    """The double, and a copy of the project whose open inputs it has."""

    world: World
    sites: Sites
    shop: Wiring

    def source(self, listed: str) -> None:
        """Let the repository's ``deps.txt`` have this text."""
        repository = self.world.site(GITHUB)
        (repository / "cmake/deps.txt").write_bytes(listed.encode())
        tag(repository, "v1.23.2")

    def lock(self) -> tuple[dict[str, str], Lock]:
        """Call ``lock --missing``; return the outcome of each input that stayed open, and the lock."""
        findings: tuple[str, ...] = ()
        try:
            lock_missing(self.shop)
        except CheckFailedError as error:
            findings = error.findings
        said = re.compile(r"(\S+) is (not there|out of reach|unreadable): ")
        found = {match[1]: match[2] for line in findings if (match := said.match(line))}
        assert len(found) == len(findings)
        return found, parse_lock(self.shop.lock_file.read_text(encoding="utf-8"), "inputs.lock")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    hosts = ("github.com", "developer.download.nvidia.com", "snapshot.ubuntu.com")
    made = World.make(tmp_path_factory.mktemp("internet") / "world", hosts)
    for suite in ("jammy", "jammy-security", "jammy-updates"):
        lay(made, f"{LISTS}/{suite}/InRelease", suite.encode())
    listed = {}
    for name in ("cuda_cccl", "cuda_cudart", "cuda_nvcc"):
        path = f"{name}/linux-x86_64/{name}.tar.xz"
        lay(made, f"{REDIST}/{path}", name.encode())
        sha256 = hashlib.sha256(name.encode()).hexdigest()
        listed[name] = {"linux-x86_64": {"relative_path": path, "sha256": sha256, "size": str(len(name))}}
    lay(made, f"{REDIST}/redistrib_12.9.1.json", json.dumps(listed).encode())
    lay(made, f"{GITHUB}/cmake/CMakeLists.txt", CMAKE.encode())
    git(made.site(GITHUB), "init", "--quiet")
    return made


@pytest.fixture
def hosts(world: World, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    lay(world, ARCHIVE, CONTENT)
    for name in ("variants.yaml", "inputs.lock"):
        assert name in PARTS
        shutil.copy(root / name, tmp_path)
    sites = world.sites()
    with proxy(sites) as url:
        monkeypatch.setenv("ORTPACKS_CACHE", str(tmp_path / "cache"))
        for name, value in world.environment(url).items():
            monkeypatch.setenv(name, value)
        shop = Wiring(tmp_path, reporter=FakeReporter())
        digests = dict.fromkeys(IMAGES, f"sha256:{'d' * 64}")
        monkeypatch.setitem(shop.__dict__, "engine", FakeEngine(digests=digests))
        monkeypatch.setattr(shop, "sleep", lambda _: None)
        made = Hosts(world, sites, shop)
        sha1 = hashlib.sha1(CONTENT, usedforsecurity=False).hexdigest()
        made.source(f"#Name;Url;SHA1\nabseil_cpp;https://{ARCHIVE};{sha1}\n")
        yield made
    for file in world.folder.rglob("*.status"):
        file.unlink()


def test_hosts_that_serve_everything_leave_nothing_open(hosts: Hosts) -> None:
    found, lock = hosts.lock()
    assert found == {}
    head = git(hosts.world.site(GITHUB), "rev-parse", "HEAD").strip()
    assert lock.pins[GIT].revision == head
    assert lock.pins[GIT].files == (f"https://{ARCHIVE}",)
    assert lock.pins[KEY].sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert not [key for key, pin in lock.pins.items() if pin.is_open]


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        (lambda hosts: lay(hosts.world, ARCHIVE, HTML), "unreadable"),
        (lambda hosts: hosts.world.site(ARCHIVE).unlink(), "not there"),
        (lambda hosts: hosts.sites.fail(ARCHIVE, *[429] * 9), "out of reach"),
    ],
    ids=["other bytes", "none", "limited"],
)
def test_an_archive_that_cannot_be_pinned_is_named_and_the_rest_is_pinned(
    hosts: Hosts, spoil: Callable[[Hosts], None], outcome: str
) -> None:
    spoil(hosts)
    found, lock = hosts.lock()
    assert found == {KEY: outcome}
    assert KEY not in lock.pins
    assert not lock.pins[GIT].is_open


def test_a_list_that_nobody_can_read_leaves_the_tag_open_alone(hosts: Hosts) -> None:
    hosts.source(f"abseil_cpp;file:///etc/passwd;{'0' * 40}\n")
    found, lock = hosts.lock()
    assert found == {GIT: "unreadable"}
    assert [key for key, pin in lock.pins.items() if pin.is_open] == [GIT]


def test_a_tag_that_is_not_there_and_a_host_that_is_not_reached_differ(hosts: Hosts) -> None:
    git(hosts.world.site(GITHUB), "tag", "--delete", "v1.23.2")
    hosts.sites.fail("developer.download.nvidia.com/CONNECT", *[502] * 99)
    found, _ = hosts.lock()
    assert found == {
        GIT: "not there",
        **{f"redist:12.9.1/{name}": "out of reach" for name in ("cuda_cccl", "cuda_cudart", "cuda_nvcc")},
    }
