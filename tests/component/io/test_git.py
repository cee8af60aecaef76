"""Tests of the commit of a tag and of the builder's own commit, with real git in real repositories."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind, Pin
from builder.contents.provenance import Revision
from builder.errors import (
    BuilderError,
    CommandError,
    ToolMissingError,
    TransferError,
    ValidationError,
)
from builder.io.git import download_tree, origin_of, revision_of, tag_commit
from builder.io.process import ProcessRunner
from tests.support.fakes.ports import FakeRunner

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

WHO = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *WHO, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def runner(tmp_path: Path) -> ProcessRunner:
    return ProcessRunner({"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a tree"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "file").write_text("one\n")
    (folder / ".gitignore").write_text("dist/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    return folder


@pytest.mark.parametrize(
    ("name", "dirty"),
    [(None, False), ("file", True), ("builder.py", True), ("dist/package", False), ("-n", True)],
)
def test_a_tree_is_its_commit_and_dirty_with_what_git_does_not_ignore(
    repository: Path, runner: ProcessRunner, name: str | None, dirty: bool
) -> None:
    (repository / "dist").mkdir()
    if name:
        (repository / name).write_text("two\n")
    assert revision_of(repository, runner) == Revision(git(repository, "rev-parse", "HEAD"), dirty)


def test_looking_changes_nothing(repository: Path, runner: ProcessRunner) -> None:
    index = repository / ".git/index"
    (repository / "file").write_text("one\n")  # same bytes, other time: git status would refresh the index
    os.utime(repository / "file", (1, 1))
    before = index.read_bytes()
    assert revision_of(repository, runner) == Revision(git(repository, "rev-parse", "HEAD"), dirty=False)
    assert index.read_bytes() == before


def test_a_shallow_clone_and_a_linked_work_tree_tell_it_too(
    repository: Path, runner: ProcessRunner, tmp_path: Path
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(tmp_path, "clone", "--quiet", "--depth", "1", repository.as_uri(), "shallow")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    for folder in ("shallow", "linked"):
        assert revision_of(tmp_path / folder, runner) == Revision(commit, dirty=False)


def test_another_repository_around_an_unpacked_archive_is_not_ours(
    repository: Path, runner: ProcessRunner
) -> None:
    unpacked = repository / "ortpacks-main"
    unpacked.mkdir()
    assert revision_of(unpacked, runner) is None


def test_a_repository_that_the_environment_names_is_not_ours(
    repository: Path, runner: ProcessRunner, tmp_path: Path
) -> None:
    """A git hook runs with GIT_DIR set."""
    plain = tmp_path / "plain"
    plain.mkdir()
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(repository / ".git"), "GIT_WORK_TREE": str(repository)}
    assert revision_of(plain, ProcessRunner(env)) is None
    assert revision_of(repository, ProcessRunner(env)) == revision_of(repository, runner)


def test_no_repository_no_commit_and_a_broken_one_are_no_error(runner: ProcessRunner, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    git(tmp_path, "init", "--quiet", "--bare", "bare")
    for name in ("plain", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken/.git").write_text("gitdir: /nowhere\n")
    for name in ("plain", "empty", "bare", "broken", "not there"):
        assert revision_of(tmp_path / name, runner) is None


def test_without_git_there_is_no_commit(repository: Path, tmp_path: Path) -> None:
    assert revision_of(repository, ProcessRunner({"PATH": str(tmp_path)})) is None


def test_what_is_no_commit_is_not_taken_for_one(tmp_path: Path) -> None:
    """A program named git may print anything; the fake prints no commit."""
    assert revision_of(tmp_path, FakeRunner()) is None


@pytest.mark.parametrize("tag", ["light", "heavy"])
def test_a_tag_is_its_commit(repository: Path, runner: ProcessRunner, tag: str) -> None:
    git(repository, "tag", "light")
    git(repository, "tag", "--annotate", "heavy", "--message", "a tag")
    expected = git(repository, "rev-parse", f"{tag}^{{commit}}")
    assert tag_commit(runner, f"{repository}@{tag}") == expected


@pytest.mark.parametrize(("spec", "error"), [("a tree@v9", ValidationError), ("none@v1", TransferError)])
@pytest.mark.usefixtures("repository")
def test_no_tag_and_no_server_are_told_apart(
    runner: ProcessRunner, tmp_path: Path, spec: str, error: type[BuilderError]
) -> None:
    with pytest.raises(error):
        tag_commit(runner, f"{tmp_path}/{spec}")


def test_without_git_no_tag_is_found(tmp_path: Path) -> None:
    item = Input(InputKind.GIT, "https://git.example/o/n@v1")
    runner = ProcessRunner({"PATH": str(tmp_path)})
    for ask in (
        lambda: tag_commit(runner, item.spec),
        lambda: download_tree(runner, item, Pin(revision="a" * 40), tmp_path),
    ):
        with pytest.raises(ToolMissingError, match="git"):
            ask()


def tagged(repository: Path) -> Input:
    git(repository, "tag", "v1")
    (repository / "later").write_text("two\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "two")
    return Input(InputKind.GIT, f"{repository.as_uri()}@v1")


def test_a_tags_tree_comes_as_a_tar_of_its_commit(
    repository: Path, runner: ProcessRunner, tmp_path: Path
) -> None:
    """The tag lacks the file ``later``; the same commit gives the same bytes."""
    tag = tagged(repository)
    pin = Pin(revision=git(repository, "rev-parse", "v1"))
    bytes_ = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        tar = download_tree(runner, tag, pin, tmp_path / name)
        assert [path.name for path in (tmp_path / name).iterdir()] == ["a%20tree-v1.tar"]
        with tarfile.open(tar) as archive:
            assert sorted(one.name for one in archive if one.isfile()) == [".gitignore", "file"]
        bytes_.append(tar.read_bytes())
    assert bytes_[0] == bytes_[1]


def test_a_server_out_of_reach_is_told(runner: ProcessRunner, tmp_path: Path) -> None:
    tag = Input(InputKind.GIT, f"{(tmp_path / 'none').as_uri()}@v1")
    with pytest.raises(TransferError, match="cannot be reached"):
        download_tree(runner, tag, Pin(revision="a" * 40), tmp_path)


def test_a_server_that_is_too_slow_is_told() -> None:
    """Git's last line, "expected 'packfile'", says nothing about time. The first does."""
    slow = "error: RPC failed; curl 28 Operation too slow. Less than 1000 bytes/sec transferred"
    runner = FakeRunner(answers={"git": CommandError("git", tail=[slow, "fatal: expected 'packfile'"])})
    with pytest.raises(TransferError) as caught:
        tag_commit(runner, "https://git.example/o/n@v1")
    assert caught.value.cause == slow


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/you/ortpacks", "you/ortpacks"),
        ("https://github.com/you/ortpacks.git/", "you/ortpacks"),
        ("https://someone:secret@github.com/you/ort.packs.git", "you/ort.packs"),
        ("git@github.com:you/ortpacks.git", "you/ortpacks"),
        ("ssh://git@ssh.github.com:443/you/ortpacks.git", "you/ortpacks"),
        ("/srv/you/ortpacks", None),
        ("../you/ortpacks", None),
        ("file:///you/ortpacks", None),
        ("https://example.org/ortpacks.git", None),
    ],
)
def test_the_repository_that_was_cloned(
    repository: Path, runner: ProcessRunner, url: str, name: str | None
) -> None:
    git(repository, "remote", "add", "origin", url)
    assert origin_of(repository, runner) == name


def test_no_remote_no_repository_or_no_git_is_nobodys_clone(repository: Path, runner: ProcessRunner) -> None:
    assert origin_of(repository, runner) is None
    git(repository, "remote", "add", "origin", "https://github.com/you/around")
    unpacked = repository / "unpacked"
    unpacked.mkdir()
    assert origin_of(unpacked, runner) is None, (
        "the repository around an unpacked archive is another project's"
    )
    assert origin_of(repository, ProcessRunner({"PATH": "/nonexistent"})) is None
