"""Tests of the times that Ninja should see: a new time for new bytes, and for no other reason."""

import os
import time
from pathlib import Path

import pytest

from builder.farm import freshen

PAST, LATER = 1_700_000_000_000_000_000, 1_750_000_000_000_000_000


class Tree:
    """A source tree, which each build writes again, and the record that stays next to the Ninja tree."""

    def __init__(self, folder: Path) -> None:
        self.src, self.record = folder / "src", folder / "sources.json"
        self.src.mkdir()

    def lay(self, name: str, data: str, when: int = PAST) -> Path:
        path = self.src / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(data)
        os.utime(path, ns=(when, when))
        return path

    def freshen(self) -> None:
        freshen.main(self.src, self.record)

    def time(self, name: str) -> int:
        return (self.src / name).stat().st_mtime_ns


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize("when", [LATER, PAST - 1])
def test_the_same_bytes_keep_their_time_however_they_were_laid_out(tree: Tree, when: int) -> None:
    tree.lay("sub/a.cc", "a")
    tree.freshen()
    for _ in range(2):
        tree.lay("sub/a.cc", "a", when)
        tree.freshen()
        assert tree.time("sub/a.cc") == PAST


def test_other_bytes_are_new_and_so_are_the_first_ones_again(tree: Tree) -> None:
    """A patch may come from an image layer that was built a week ago; later it may be taken away again."""
    tree.lay("a.cc", "a")
    tree.lay("b.cc", "b")
    tree.freshen()
    before = time.time_ns() - 1_000_000_000
    tree.lay("a.cc", "patched", PAST + 1)
    tree.freshen()
    patched = tree.time("a.cc")
    assert (patched > before, tree.time("b.cc")) == (True, PAST)
    tree.lay("a.cc", "a")
    tree.freshen()
    assert tree.time("a.cc") > patched


@pytest.mark.parametrize("left", [b'{"a', b"\xff"])
def test_what_was_compiled_is_not_known_without_a_whole_record(tree: Tree, left: bytes) -> None:
    """As after a loss of power. Defect: every later build failed with a traceback."""
    tree.lay("a.cc", "a")
    tree.freshen()
    before = time.time_ns() - 1_000_000_000
    tree.record.write_bytes(left)
    tree.freshen()
    kept = tree.time("a.cc")
    assert kept > before
    tree.freshen()
    assert tree.time("a.cc") == kept


def test_a_file_that_comes_later_is_as_new_as_it_says(tree: Tree) -> None:
    tree.lay("a.cc", "a")
    tree.freshen()
    tree.lay("new.cc", "n", LATER)
    tree.freshen()
    assert tree.time("new.cc") == LATER


def test_a_new_time_is_later_than_ninja_s_log_though_the_clock_was_set_back(tree: Tree) -> None:
    tree.lay("a.cc", "a")
    tree.freshen()
    ahead = time.time_ns() + 5 * 3600 * 10**9
    (log := tree.record.with_name(".ninja_log")).touch()
    os.utime(log, ns=(ahead, ahead))
    tree.lay("a.cc", "patched")
    tree.freshen()
    assert tree.time("a.cc") == ahead + 1


def test_links_are_left_out(tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "outside.h"
    outside.write_text("x")
    os.utime(outside, ns=(PAST, PAST))
    (tree.src / "link.h").symlink_to(outside)
    (tree.src / "broken.h").symlink_to("nowhere")
    (tree.src / "folder").symlink_to(tmp_path)
    tree.freshen()
    outside.write_text("y")
    os.utime(outside, ns=(PAST, PAST))
    tree.freshen()
    assert outside.stat().st_mtime_ns == PAST
    assert "link" not in tree.record.read_text()


def test_the_record_is_replaced_in_one_step(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.lay("a.cc", "a")
    tree.freshen()
    before = tree.record.read_text()
    tree.lay("a.cc", "patched")

    def fail(self: Path, target: Path) -> None:
        raise OSError("killed")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="killed"):
        tree.freshen()
    assert tree.record.read_text() == before
