"""Tests of the referees' lock, and of npm's words for a registry out of reach."""

import os
import shutil
from pathlib import Path

import pytest

from tests.referees.install import HERE, UnavailableError, install


@pytest.mark.referees
def test_the_real_npm_tells_a_registry_out_of_reach(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("no npm on PATH")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_cache": str(tmp_path / "npm"),
    }
    with pytest.raises(UnavailableError, match="out of reach"):
        install(tmp_path / "cache", env)


def test_the_lock_pins_every_package_by_its_bytes_and_names_no_registry() -> None:
    text = (HERE / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert text.count('"integrity": "sha512-') == text.count('"node_modules/') > 200
