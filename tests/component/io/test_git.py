"""Tests of the commit of a tag and of the builder's own commit, with real git in real repositories."""

import os
import shutil
import tarfile
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind, Pin
from builder.contents.provenance import Revision
from builder.errors import (
    CommandError,
    IntegrityError,
    ToolMissingError,
    TransferError,
    ValidationError,
)
from builder.io.git import commit_of, download_tree, origin_of, revision_of
from builder.io.process import ProcessRunner
from tests.support.factories.sources import commit, git
from tests.support.fakes.ports import FakeRunner

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def runner(tmp_path: Path) -> ProcessRunner:
    return ProcessRunner({"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a tree"
    folder.mkdir()
    (folder / "file").write_text("one\n")
    (folder / ".gitignore").write_text("dist/\n")
    commit(folder)
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


@pytest.fixture
def far(repository: Path, tmp_path: Path) -> ProcessRunner:
    """The runner of a git that reaches the repository as ``https://git.example/o/n``."""
    config = tmp_path / "config"
    config.write_text(f'[url "{repository.as_uri()}"]\n\tinsteadOf = {FAR}\n')
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GIT_CONFIG_GLOBAL": str(config)}
    return ProcessRunner(env)


FAR = "https://git.example/o/n"


def of(url: object, ref: str) -> Input:
    return Input(InputKind.GIT, f"{url}@{ref}")


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        *[("light", ""), ("heavy", ""), ("work/über", "refs/heads/work/über"), ("HEAD", "HEAD"), ("", "")],
        ("both", ""),  # a tag counts before a branch
    ],
)
def test_a_reference_is_its_commit(repository: Path, runner: ProcessRunner, ref: str, name: str) -> None:
    git(repository, "tag", "light")
    git(repository, "tag", "--annotate", "heavy", "--message", "a tag")
    git(repository, "tag", "both")
    git(repository, "branch", "work/über")
    git(repository, "branch", "both")
    ref = ref or git(repository, "rev-parse", "HEAD")
    expected = Pin(revision=git(repository, "rev-parse", f"{ref}^{{commit}}"), ref=name)
    for url in (repository, repository / ".git", repository.as_uri()):
        assert commit_of(runner, f"{url}@{ref}") == expected


def test_what_cannot_be_had_is_told_by_the_reason(
    repository: Path, runner: ProcessRunner, far: ProcessRunner, tmp_path: Path
) -> None:
    git(repository, "tag", "v1.22.0")
    git(tmp_path, "init", "--quiet", "empty")
    for error, said, url, ref in (
        (ValidationError, r"no tag or branch v1\.22\. Did you mean v1\.22\.0", repository, "v1.22"),
        (ValidationError, "no tag or branch xyz. Name one that it has, or", repository, "xyz"),
        (ValidationError, "empty has no commit", tmp_path / "empty", "HEAD"),
        (TransferError, "none cannot be reached", tmp_path / "none", "v1"),
    ):
        with pytest.raises(error, match=said):
            commit_of(runner, of(url, ref).spec)
    without_git, pin = ProcessRunner({"PATH": str(tmp_path)}), Pin(revision="a" * 40)
    for kind, said, using, place, ref in (
        (ValidationError, f"has no commit {'a' * 40}.*unshallow", runner, repository, "v1.22.0"),
        (TransferError, "v9", far, FAR, "v9"),
        (IntegrityError, "aaaaa, v1.22.0 leads to", far, FAR, "v1.22.0"),
        (ToolMissingError, "git", without_git, repository, "v1.22.0"),
        (ToolMissingError, "git", without_git, FAR, "v9"),
    ):
        with pytest.raises(kind, match=said):
            download_tree(using, of(place, ref), pin, tmp_path)
    with pytest.raises(ToolMissingError, match="git"):
        commit_of(without_git, of(repository, "v1.22.0").spec)


def names_in(tar: Path) -> list[str]:
    with tarfile.open(tar) as archive:
        return sorted(one.name for one in archive if one.isfile())


def test_a_tree_comes_as_a_tar_of_its_commit(
    repository: Path, runner: ProcessRunner, far: ProcessRunner, tmp_path: Path
) -> None:
    """The tag lacks the file ``later``, models are left out, and the same commit gives the same bytes from
    wherever the repository is."""
    (repository / "below").mkdir()
    for name in ("model.onnx", "below/model.onnx", "below/old.ort", "below/ä b.txt"):
        (repository / name).write_text(name)
    pin = Pin(revision=commit(repository, "v1"))
    (repository / "later").write_text("three\n")
    commit(repository)
    git(tmp_path, "clone", "--quiet", "--bare", repository.as_uri(), "bare ß")
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=v1", repository.as_uri(), "shallow")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    places = (repository, repository.as_uri(), *(tmp_path / name for name in ("bare ß", "shallow", "linked")))
    tars: dict[object, Path] = {}
    for url, using in (*((place, runner) for place in places), (FAR, far)):
        folder = tmp_path / f"into{len(tars)}"
        folder.mkdir()
        tars[url] = download_tree(using, of(url, "v1"), pin, folder)
        assert [path.name for path in folder.iterdir()] == [tars[url].name]
        assert names_in(tars[url]) == [".gitignore", "below/ä b.txt", "file"]
    assert {tar.read_bytes() for tar in tars.values()} == {tars[FAR].read_bytes()}
    assert [tars[place].name for place in (repository, FAR)] == ["a_tree-v1.tar", "n-v1.tar"]


def test_a_branch_that_went_on_still_has_the_pinned_commit(
    repository: Path, far: ProcessRunner, tmp_path: Path
) -> None:
    """A build takes what ``inputs.lock`` has, whatever was pushed since."""
    git(repository, "checkout", "--quiet", "-b", "work")
    pin = commit_of(far, f"{FAR}@work")
    (repository / "later").write_text("two\n")
    commit(repository)
    assert names_in(download_tree(far, of(FAR, "work"), pin, tmp_path)) == [".gitignore", "file"]
    assert names_in(download_tree(far, of(FAR, pin.revision or ""), pin, tmp_path)) == [".gitignore", "file"]


def test_a_server_that_is_too_slow_is_told() -> None:
    """Git's last line, "expected 'packfile'", says nothing about time. The first does."""
    slow = "error: RPC failed; curl 28 Operation too slow. Less than 1000 bytes/sec transferred"
    runner = FakeRunner(answers={"git": CommandError("git", tail=[slow, "fatal: expected 'packfile'"])})
    with pytest.raises(TransferError) as caught:
        commit_of(runner, "https://git.example/o/n@v1")
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
