"""Tests of the commit of a tag and of the builder's own commit, with real git in real repositories."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind, Pin
from builder.contents.provenance import Revision
from builder.errors import CommandError, IntegrityError, ToolMissingError, TransferError, ValidationError
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
def test_a_tree_is_clean_or_dirty(
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


def test_another_repository_has_no_commit(repository: Path, runner: ProcessRunner, tmp_path: Path) -> None:
    """An unpacked archive may lie in another project's repository; a git hook runs with GIT_DIR set."""
    git(tmp_path, "init", "--quiet", "empty")
    git(tmp_path, "init", "--quiet", "--bare", "bare")
    git(repository, "remote", "add", "origin", "https://github.com/you/around")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/.git").write_text("gitdir: /nowhere\n")
    for folder in (repository / "unpacked", tmp_path / "plain"):
        folder.mkdir()
    hook = {"GIT_DIR": str(repository / ".git"), "GIT_WORK_TREE": str(repository)}
    in_hook = ProcessRunner({"PATH": os.environ["PATH"], **hook})
    for folder, git_runner in (
        (repository / "unpacked", runner),
        *((tmp_path / name, runner) for name in ("plain", "empty", "bare", "broken", "not there")),
        (tmp_path / "plain", in_hook),
        (repository, ProcessRunner({"PATH": str(tmp_path)})),  # there is no git
        (tmp_path, FakeRunner()),  # a program named git may print anything
    ):
        assert revision_of(folder, git_runner) is None
        assert origin_of(folder, git_runner) is None
    assert revision_of(repository, in_hook) == revision_of(repository, runner)


@pytest.mark.parametrize("tag", ["light", "heavy"])
def test_a_tag_is_its_commit(repository: Path, runner: ProcessRunner, tag: str) -> None:
    git(repository, "tag", "light")
    git(repository, "tag", "--annotate", "heavy", "--message", "a tag")
    expected = git(repository, "rev-parse", f"{tag}^{{commit}}")
    assert tag_commit(runner, f"{repository}@{tag}") == expected


def test_a_tag_that_cannot_be_had_is_told(repository: Path, runner: ProcessRunner, tmp_path: Path) -> None:
    without_git = ProcessRunner({"PATH": str(tmp_path)})
    git(repository, "tag", "v1")
    here, none = (Input(InputKind.GIT, f"{path.as_uri()}@v1") for path in (repository, tmp_path / "none"))
    absent = Input(InputKind.GIT, f"{repository.as_uri()}@v9")
    pin = Pin(revision="a" * 40)
    for error, said, ask in (
        (ValidationError, "v9", lambda: tag_commit(runner, absent.spec)),
        (TransferError, "v9", lambda: download_tree(runner, absent, pin, tmp_path)),
        (TransferError, "none", lambda: tag_commit(runner, none.spec)),
        (TransferError, "none", lambda: download_tree(runner, none, pin, tmp_path)),
        (IntegrityError, "aaaaa, the tag leads to", lambda: download_tree(runner, here, pin, tmp_path)),
        (ToolMissingError, "git", lambda: tag_commit(without_git, here.spec)),
        (ToolMissingError, "git", lambda: download_tree(without_git, here, pin, tmp_path)),
    ):
        with pytest.raises(error, match=said):
            ask()


def test_a_tags_tree_comes_as_a_tar(repository: Path, runner: ProcessRunner, tmp_path: Path) -> None:
    """The tag lacks the file ``later``."""
    git(repository, "tag", "v1")
    pin = Pin(revision=git(repository, "rev-parse", "v1"))
    (repository / "later").write_text("two\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "two")
    (tmp_path / "here").mkdir()
    item = Input(InputKind.GIT, f"{repository.as_uri()}@v1")
    tar = download_tree(runner, item, pin, tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["a%20tree-v1.tar"]
    with tarfile.open(tar) as archive:
        assert sorted(one.name for one in archive if one.isfile()) == [".gitignore", "file"]


def test_a_server_that_is_too_slow_is_told() -> None:
    """Git's last line, "expected 'packfile'", says nothing about time. The first does."""
    slow = "error: RPC failed; curl 28 Operation too slow. Less than 1000 bytes/sec transferred"
    runner = FakeRunner(answers={"git": CommandError("git", tail=[slow, "fatal: expected 'packfile'"])})
    with pytest.raises(TransferError) as caught:
        tag_commit(runner, "https://git.example/o/n@v1")
    assert caught.value.cause == slow


CLONED = (
    *("https://github.com/you/ortpacks", "https://github.com/you/ortpacks.git/"),
    *("https://someone:secret@github.com/you/ortpacks.git", "git@github.com:you/ortpacks.git"),
    "ssh://git@ssh.github.com:443/you/ortpacks.git",
)

NOBODYS = ("/srv/you/ortpacks", "../you/ortpacks", "file:///you/ortpacks", "https://example.org/ortpacks.git")


@pytest.mark.parametrize("url", [*CLONED, *NOBODYS, None])
def test_the_repository_that_was_cloned(repository: Path, runner: ProcessRunner, url: str | None) -> None:
    if url:
        git(repository, "remote", "add", "origin", url)
    assert origin_of(repository, runner) == ("you/ortpacks" if url in CLONED else None)
