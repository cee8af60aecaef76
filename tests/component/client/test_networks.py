"""Tests of the client where only a proxy is in reach and a CA of one's own has signed the server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.internet.sites import proxy
from tests.doubles.internet.world import World
from tests.doubles.release import FILES, HOST, write_release
from tests.support import ROOT

SERVER = "releases.example.invalid"
"""Name of the server, which only the proxy resolves."""


def client(home: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m builder.client`` with these variables and a made-up card."""
    fixed = {"PATH": os.environ["PATH"], "ORTPACKS_FORCE_CC": "5.2", "ORTPACKS_FORCE_DRIVER": "550.54.14"}
    named = {"ORTPACKS_INDEX": f"https://{SERVER}/index.json", "HOME": str(home), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "builder.client", *words]
    return subprocess.run(
        argv, cwd=ROOT, env={**fixed, **named, **env}, capture_output=True, text=True, check=False
    )


def test_it_installs_through_the_proxy_and_refuses_a_ca_that_nobody_named(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    world = World.make(tmp_path / "world", [SERVER])
    write_release(world.site(SERVER))
    sites = world.sites()
    with proxy(sites) as address:
        assert client(tmp_path, {"https_proxy": address}, "detect").returncode == 0
        refused = client(tmp_path, {"https_proxy": address}, "select")
        assert (refused.returncode, sites.requests()) == (10, [])
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
        env = {"HTTPS_PROXY": address, "REQUESTS_CA_BUNDLE": str(world.authority.bundle)}
        done = client(tmp_path, env, "install", "--prefix", str(tmp_path / "prefix"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prefix" / "current" / HOST).read_bytes() == FILES[HOST]
