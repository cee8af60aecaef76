"""Tests of what hosts do wrong: GitHub, GitLab and NVIDIA's server of the double, behind a proxy.

The proxy has an authority of its own, so each request here goes the way of a company's network.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind, Pin
from builder.config.load import load_project
from builder.errors import BuilderError, ConfigError, IntegrityError, TransferError, ValidationError
from builder.files.http_client import NotThereError
from builder.io.git import download_tree, tag_commit
from builder.io.process import ProcessRunner
from builder.io.transfer import HttpTransfer
from tests.doubles.internet.sites import Sites, proxy
from tests.doubles.internet.world import World
from tests.support.factories.redist import git, tag
from tests.support.fakes.ports import FakeReporter

pytestmark = pytest.mark.skipif(
    not (shutil.which("git") and shutil.which("openssl")), reason="needs git and openssl"
)

GITHUB = "github.com/microsoft/onnxruntime"
TAG = Input(InputKind.GIT, f"https://{GITHUB}@v1.21.0")
ARCHIVE = "github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.zip"
PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World.make(tmp_path_factory.mktemp("internet") / "world", ["github.com", "gitlab.com"])
    archive = made.site(ARCHIVE)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"an archive")
    return made


@dataclass
class Desk:
    """This machine's clients, with the variables that lead them to the double."""

    sites: Sites
    world: World
    runner: ProcessRunner
    pauses: list[float] = field(default_factory=list)

    def download(self, url: str, dest: Path) -> bytes:
        transfer = HttpTransfer(reporter=FakeReporter(), sleep=self.pauses.append, env=os.environ)
        transfer.download(url, dest)
        return dest.read_bytes()

    def repository(self, path: str = GITHUB, *, name: str = "v1.21.0") -> tuple[Path, str]:
        """Make the repository at ``path`` anew, with one tag, and return it and the tag's commit."""
        folder = self.world.site(path)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "cmake").mkdir(parents=True)
        (folder / "cmake/deps.txt").write_text("abseil;https://github.com/a.zip;" + 40 * "0" + "\n")
        git(folder, "init", "--quiet")
        return folder, tag(folder, name)


@pytest.fixture
def desk(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    sites = world.sites()
    with proxy(sites) as url:
        for name, value in world.environment(url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("NO_PROXY", "")
        yield Desk(sites, world, ProcessRunner(os.environ))
    for file in world.folder.rglob("*.status"):
        file.unlink()


def test_git_and_urllib_reach_a_host_through_the_proxy(desk: Desk, tmp_path: Path) -> None:
    _, commit = desk.repository()
    assert tag_commit(desk.runner, TAG.spec) == commit
    tree = download_tree(desk.runner, TAG, Pin(revision=commit), tmp_path)
    listed = subprocess.run(["tar", "-tf", tree], capture_output=True, text=True, check=True).stdout
    assert "cmake/deps.txt" in listed.splitlines()
    assert desk.download(f"https://{ARCHIVE}", tmp_path / "archive") == b"an archive"
    assert {f"GET {GITHUB}/info/refs", f"POST {GITHUB}/git-upload-pack", f"GET {ARCHIVE}"} <= {
        *desk.sites.requests()
    }


def test_an_authority_that_nobody_trusts_ends_both_at_once(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.repository()
    known = ssl.get_default_verify_paths().openssl_cafile
    for name in desk.world.authority.environment():
        monkeypatch.setenv(name, known)
    with pytest.raises(TransferError, match=r"(?i)certificate"):
        tag_commit(ProcessRunner(os.environ), TAG.spec)
    with pytest.raises(TransferError, match=r"(?i)certificate"):
        desk.download(f"https://{ARCHIVE}", tmp_path / "archive")
    assert desk.pauses == []


def test_a_proxy_that_wants_a_login_says_so(desk: Desk, tmp_path: Path) -> None:
    desk.sites.fail("github.com/CONNECT", 407, 407)
    with pytest.raises(TransferError, match="407"):
        tag_commit(desk.runner, TAG.spec)
    with pytest.raises(TransferError, match="407"):
        desk.download(f"https://{ARCHIVE}", tmp_path / "archive")


def test_a_rate_limit_is_waited_for_as_long_as_the_host_says(desk: Desk, tmp_path: Path) -> None:
    desk.sites.fail(ARCHIVE, 429, 429)
    assert desk.download(f"https://{ARCHIVE}", tmp_path / "archive") == b"an archive"
    assert desk.pauses == [1, 1]  # Retry-After; else 1 and 2
    desk.sites.fail(ARCHIVE, *[429] * 9)
    with pytest.raises(TransferError, match="429"):
        desk.download(f"https://{ARCHIVE}", tmp_path / "other")
    desk.repository()
    desk.sites.fail(f"{GITHUB}/info/refs", 429)
    with pytest.raises(TransferError, match="429"):
        tag_commit(desk.runner, TAG.spec)


def test_a_file_that_is_gone_is_not_asked_for_again(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(NotThereError, match="404"):
        desk.download("https://github.com/gone.zip", tmp_path / "archive")
    assert desk.pauses == []


def test_an_address_of_ipv6_that_leads_nowhere_costs_no_download(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on machines with an IPv6 address and no route: names have both addresses, IPv6 first."""
    import socket  # noqa: PLC0415 - patched here alone

    real = socket.getaddrinfo

    def both(*asked: object, **more: object) -> list[object]:
        found = real(*asked, **more)  # type: ignore[arg-type] # as it was called
        nowhere = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 1, 0, 0))
        return [nowhere, *found]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert desk.download(f"https://{ARCHIVE}", tmp_path / "archive") == b"an archive"


def test_a_tag_that_moved_is_refused_with_both_commits(desk: Desk, tmp_path: Path) -> None:
    repository, before = desk.repository()
    (repository / "more").write_text("more\n")
    after = tag(repository, "v1.21.0")
    with pytest.raises(IntegrityError, match=f"{before}.*{after}"):
        download_tree(desk.runner, TAG, Pin(revision=before), tmp_path)


@pytest.mark.parametrize("shallow", [False, True])
def test_a_tag_that_is_not_there_is_told_by_its_name(desk: Desk, tmp_path: Path, shallow: bool) -> None:
    """Of a repository that never had the tag, and of a shallow clone without tags."""
    repository, commit = desk.repository(name="v1.20.0" if not shallow else "v1.21.0")
    if shallow:
        clone = tmp_path / "clone"
        (repository / "more").write_text("more\n")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", "more")
        git(tmp_path, "clone", "--quiet", "--depth=1", "--no-tags", repository.as_uri(), str(clone))
        shutil.rmtree(repository)
        clone.rename(repository)
    with pytest.raises(ValidationError, match=r"v1\.21\.0"):
        tag_commit(desk.runner, TAG.spec)
    with pytest.raises(BuilderError, match=r"v1\.21\.0") as caught:
        download_tree(desk.runner, TAG, Pin(revision=commit), tmp_path)
    assert not isinstance(caught.value, IntegrityError)


def test_a_repository_that_is_not_there_is_told(desk: Desk) -> None:
    with pytest.raises(TransferError, match="not found"):
        tag_commit(desk.runner, "https://github.com/nobody/nothing@v1.21.0")


def test_a_password_in_a_git_url_is_never_shown(
    desk: Desk, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's own settings may add one to any address; in ``variants.yaml`` it is refused."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.https://user:{PASSWORD}@github.com/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    runner = ProcessRunner(os.environ)
    for status in (401, 403, 404):  # the login is not that of the host
        desk.sites.fail("github.com/nobody/nothing/info/refs", status)
        with pytest.raises(TransferError) as caught:
            tag_commit(runner, "https://github.com/nobody/nothing@v1.21.0")
        assert PASSWORD not in f"{caught.value} {caught.value.__cause__}"
    with pytest.raises(TransferError) as caught:
        download_tree(runner, Input(InputKind.GIT, "https://github.com/n/n@v1"), Pin(revision="0"), tmp_path)
    assert PASSWORD not in f"{caught.value} {caught.value.__cause__}"
    text = (root / "variants.yaml").read_text(encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_project(
            text.replace("https://github.com/", f"https://user:{PASSWORD}@github.com/"), "variants.yaml"
        )
    assert PASSWORD not in str(refused.value)
