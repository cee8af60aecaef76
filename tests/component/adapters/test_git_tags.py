"""Tags of a real repository on disk; git itself says what is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builder.adapters.git import GitTags
from builder.adapters.process import ProcessRunner
from builder.errors import TransferError, ValidationError

ENV = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, env=ENV, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--allow-empty", "--message", "one")
    git(tmp_path, "tag", "light")
    git(tmp_path, "tag", "--annotate", "heavy", "--message", "a tag")
    return tmp_path


@pytest.mark.parametrize("tag", ["light", "heavy"])
def test_a_tag_is_its_commit(repository: Path, tag: str) -> None:
    expected = git(repository, "rev-parse", f"{tag}^{{commit}}")
    assert GitTags(ProcessRunner(ENV))(f"{repository}@{tag}") == expected


def test_a_tag_that_is_not_there(repository: Path) -> None:
    with pytest.raises(ValidationError, match="has no tag v9"):
        GitTags(ProcessRunner(ENV))(f"{repository}@v9")


def test_out_of_reach(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="cannot be reached"):
        GitTags(ProcessRunner(ENV))(f"{tmp_path / 'none'}@v1")
