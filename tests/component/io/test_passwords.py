"""Tests that no message shows the password of a mirror, an index or a proxy, whatever fails there."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind
from builder.errors import BuilderError
from builder.io.debian.apt_mirror import AptMirrors, download_debian
from builder.io.git import commit_of, download_tree
from builder.io.package_index import PackageIndex
from builder.io.process import ProcessRunner
from builder.io.store import UrlMirror, download_redist, download_url
from builder.io.transfer import HttpTransfer
from tests.doubles.loopback import static_server
from tests.support.fakes.ports import FakeReporter

PASSWORDS = ("swordfish", *(f"sword{mark}fish" for mark in ("/", "@", "#", "?", "%20", ":")))
"""Passwords, most of them not escaped as a URL wants it: the address is then invalid, and still secret."""


ARCHIVE = Input(InputKind.URL, "https://github.com/o/n/archive/v1.zip")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve an empty folder, so that every file is missing."""
    with static_server(tmp_path_factory.mktemp("empty")) as url:
        yield url.removeprefix("http://")


@pytest.fixture(params=["answers", "refuses", "no port"])
def host(request: pytest.FixtureRequest, server: str) -> str:
    return {"answers": server, "refuses": "127.0.0.1:1", "no port": f"{server}x"}[str(request.param)]


@pytest.fixture(params=PASSWORDS)
def address(request: pytest.FixtureRequest, host: str) -> str:
    return f"http://ada:{request.param}@{host}"


def told(work: Callable[[HttpTransfer], object], reporter: FakeReporter) -> str:
    """Return all that a user reads of work that fails."""
    transfer = HttpTransfer(reporter=reporter, sleep=lambda _: None, env={})
    with pytest.raises(BuilderError) as caught:
        work(transfer)
    return "\n".join([str(caught.value), *reporter.lines])


def test_the_mirrors_of_archives_and_of_debian(address: str, tmp_path: Path) -> None:
    reporter = FakeReporter()
    nvcc = Input(InputKind.REDIST, "12.9.1/cuda_nvcc")
    deb = Input(InputKind.DEBIAN, "pool/main/h/hello/hello_1.orig.tar.gz")
    mirrors = AptMirrors(folder=tmp_path, override=address)
    said = [
        told(lambda of: download_url(UrlMirror(of, address), ARCHIVE, None, tmp_path), reporter),
        told(lambda of: download_redist(UrlMirror(of, address), nvcc, None, tmp_path), reporter),
        told(lambda of: download_debian(mirrors, of, deb, None, tmp_path), reporter),
    ]
    assert all("fish" not in one and "…@" in one for one in said), said


def env_of_pip(index: str, **more: str) -> dict[str, str]:
    quiet = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    return {"PATH": os.environ["PATH"], "PIP_INDEX_URL": index, **quiet, **more}


def test_pips_index(host: str, tmp_path: Path) -> None:
    """With real pip, which prints what is wrong with its addresses."""
    env = env_of_pip(f"http://ada:{PASSWORDS[1]}@{host}/simple")
    lines: list[str] = []
    index = PackageIndex(ProcessRunner(env), env, sys.executable, lines.append)
    said = told(lambda _: index.download(Input.wheel("gpu-thing==1.0"), None, tmp_path), FakeReporter(lines))
    assert "gpu-thing==1.0" in said
    assert "fish" not in said


@pytest.mark.parametrize("password", PASSWORDS[:3])
def test_a_proxy_of_all_programs(password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy refuses; names in upper case are read too."""
    proxy = f"http://ada:{password}@127.0.0.1:1"
    for name in ("no_proxy", "NO_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    env = env_of_pip("https://index.invalid/simple", HOME=str(tmp_path), HTTPS_PROXY=proxy)
    runner = ProcessRunner(env)
    index = PackageIndex(runner, env, sys.executable, lambda _: None)
    for work in (
        lambda of: download_url(UrlMirror(of, None), ARCHIVE, None, tmp_path),
        lambda _: commit_of(runner, "https://git.invalid/o/n@v1"),
        lambda _: index.download(Input.wheel("gpu-thing==1.0"), None, tmp_path),
    ):
        assert "fish" not in told(work, FakeReporter())


def test_a_password_that_gits_own_settings_add(tmp_path: Path) -> None:
    """In ``variants.yaml`` it is refused."""
    settings = {"KEY_0": "url.http://ada:swordfish@127.0.0.1:1/.insteadOf", "VALUE_0": "https://git.invalid/"}
    env = {f"GIT_CONFIG_{name}": value for name, value in {**settings, "COUNT": "1"}.items()}
    runner = ProcessRunner({"PATH": os.environ["PATH"], **env})
    item = Input(InputKind.GIT, "https://git.invalid/o/n@v1")
    for ask in (
        lambda _: commit_of(runner, item.spec),
        lambda _: download_tree(runner, item, None, tmp_path),
    ):
        assert "fish" not in told(ask, FakeReporter())
