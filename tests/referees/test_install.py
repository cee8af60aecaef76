"""Tests of installing the referees into the cache, with a script in place of npm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.referees.install import HERE, Referees, UnavailableError, install

PACKAGE = "node_modules/@octokit/openapi/generated"

WORKS = f"""
[ "$1" = ci ] || exit 0
mkdir -p {PACKAGE}
echo '{{}}' > {PACKAGE}/api.github.com.json
echo '{{}}' > {PACKAGE}/ghes-3.19.json
"""

Install = Callable[[str], Referees]


@pytest.fixture
def install_with(tmp_path: Path) -> Install:
    """Return a function that installs with its script in place of npm; each call adds a line to ``calls``."""

    def run(script: str) -> Referees:
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        for name, text in {"node": "", "npm": f'echo "$*" >> {tmp_path}/calls\n{script}'}.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}")
            (programs / name).chmod(0o755)
        return install(tmp_path / "cache", {"PATH": f"{programs}:{os.environ['PATH']}"})

    return run


def test_they_are_installed_once_without_running_their_scripts(install_with: Install, tmp_path: Path) -> None:
    assert install_with(WORKS) == install_with("exit 1")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["ping --fetch-retries=0", "ci --ignore-scripts --prefer-offline"]


def test_of_githubs_descriptions_one_is_kept(install_with: Install) -> None:
    kept = install_with(WORKS).description
    assert [path.name for path in kept.parent.iterdir()] == ["api.github.com.json"]


def test_what_a_kill_left_half_installed_is_made_anew(install_with: Install) -> None:
    folder = install_with(WORKS).folder
    half = folder.with_suffix(".part")
    folder.rename(half)
    (half / "half").touch()
    assert install_with(WORKS).folder == folder
    assert not (folder / "half").exists()
    assert not half.exists()


@pytest.mark.parametrize("code", ["ENOTFOUND", "ECONNREFUSED"])
def test_a_registry_out_of_reach_is_said_and_leaves_nothing_installed(
    install_with: Install, code: str, tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match=rf"npm's registry is out of reach \({code}\)"):
        install_with(f"echo 'npm error code {code}' >&2; exit 1")
    assert install_with(WORKS).folder.is_dir()


def test_a_changed_package_is_an_error_in_npms_words(install_with: Install) -> None:
    refusal = "[ $1 = ping ] || { echo 'npm error code EINTEGRITY' >&2; exit 1; }"
    with pytest.raises(AssertionError, match="npm ci exited with 1:\nnpm error code EINTEGRITY"):
        install_with(refusal)


@pytest.mark.parametrize("missing", ["node", "npm"])
def test_a_machine_without_node_or_npm_is_told_which(tmp_path: Path, missing: str) -> None:
    for name in {"node", "npm"} - {missing}:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(UnavailableError, match=f"no {missing} on PATH: install Node"):
        install(tmp_path, {"PATH": str(tmp_path)})


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
