"""Tests of folders as inputs, with real git in real folders."""

import os
import shutil
import tarfile
from pathlib import Path

import pytest

from builder.config.inputs import Input, InputKind
from builder.errors import ValidationError
from builder.io.process import ProcessRunner
from builder.io.tree import pack_tree
from tests.support.factories.sources import commit, git


@pytest.fixture
def runner(tmp_path: Path) -> ProcessRunner:
    return ProcessRunner({"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "Müll und mehr"
    (made / "sub/ö").mkdir(parents=True)
    (made / "build").mkdir()
    for path, text in {"a.cc": "a", "sub/ö/b c": "b", "build/x.o": "x", ".gitignore": "build/\n"}.items():
        (made / path).write_text(text)
    (made / "run.sh").write_text("exit\n")
    (made / "run.sh").chmod(0o700)
    (made / "same").hardlink_to(made / "a.cc")
    (made / "link").symlink_to("sub/ö")
    (made / "lost").symlink_to("nowhere")
    os.utime(made / "a.cc", (1, 1))
    return made


def packed(runner: ProcessRunner, folder: Path, into: Path) -> Path:
    into.mkdir()
    return pack_tree(runner, Input(InputKind.TREE, str(folder)), None, into)


def held(tar: Path) -> dict[str, tuple[bytes, int, str]]:
    """Return content, mode and target of each member by name."""
    with tarfile.open(tar) as archive:
        files = {member: archive.extractfile(member) if member.isfile() else None for member in archive}
        return {
            one.name: (file.read() if file else b"", one.mode, one.linkname) for one, file in files.items()
        }


PLAIN = {
    ".gitignore": (b"build/\n", 0o644, ""),
    "a.cc": (b"a", 0o644, ""),
    "link": (b"", 0o644, "sub/ö"),
    "lost": (b"", 0o644, "nowhere"),
    "run.sh": (b"exit\n", 0o755, ""),
    "same": (b"a", 0o644, ""),
    "sub/ö/b c": (b"b", 0o644, ""),
}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_of_a_work_tree_what_git_ignores_and_git_itself_are_left_out(
    runner: ProcessRunner, folder: Path, tmp_path: Path
) -> None:
    """New files and edited ones are there, removed ones are not, and a submodule is an empty folder."""
    commit(folder)
    module = tmp_path / "module"
    module.mkdir()
    (module / "m").write_text("m")
    commit(module)
    git(folder, "submodule", "--quiet", "add", module.as_uri(), "module")
    (folder / "new").write_text("n")
    (folder / "a.cc").unlink()
    got = held(packed(runner, folder, tmp_path / "1"))
    assert got.pop(".gitmodules")
    assert {**got, "a.cc": PLAIN["a.cc"]} == {**PLAIN, "new": (b"n", 0o644, "")}
    assert "a.cc" not in got


def test_all_files_of_a_plain_folder_give_the_same_bytes(
    runner: ProcessRunner, folder: Path, tmp_path: Path
) -> None:
    first = packed(runner, folder, tmp_path / "1")
    assert held(first) == {**PLAIN, "build/x.o": (b"x", 0o644, "")}
    for path in folder.rglob("*"):
        os.utime(path, follow_symlinks=False)
    second = packed(ProcessRunner({"PATH": str(tmp_path)}), folder, tmp_path / "2")  # there is no git
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    (folder / "a.cc").write_text("b")
    assert packed(runner, folder, tmp_path / "3").read_bytes() != first.read_bytes()


def test_what_is_no_folder_is_told_and_two_of_one_name_have_two_names(
    runner: ProcessRunner, folder: Path, tmp_path: Path
) -> None:
    for path in (tmp_path / "none", folder / "a.cc"):
        with pytest.raises(ValidationError, match=r"is no folder\. Name a folder"):
            pack_tree(runner, Input(InputKind.TREE, str(path)), None, tmp_path)
    kinds = (InputKind.TREE, InputKind.FILE)
    names = {Input(kind, f"{above}/Müll x").file_name for kind in kinds for above in "ab"}
    assert len(names) == 4
    assert all(name.isascii() and " " not in name for name in names)
