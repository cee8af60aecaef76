"""Tests that run ``tests.fuzz.client`` briefly; ``python -m tests.fuzz.client`` is the long run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.client import cli
from builder.client.install import unpack
from tests.fuzz.client import run
from tests.fuzz.client_cases import SURFACES
from tests.fuzz.guard import OutsideError, confined

CASES, SEED = 60, 7


@pytest.mark.parametrize("surface", SURFACES)
def test_the_client_takes_or_refuses_what_is_hostile(surface: str) -> None:
    found = run(CASES, SEED, (surface,))
    assert not found.broken, f"seed {SEED}: {found.broken[0]}"
    assert CASES // 4 < found.refused < CASES, found


def test_an_exception_of_the_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(*_: object) -> None:
        raise IndexError

    monkeypatch.setattr(unpack, "_take", careless)
    (first, *_) = run(10, SEED, ("server",)).broken
    assert "IndexError" in first.reason


def test_a_file_that_is_not_as_promised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "_take", lambda *arguments: arguments[3].clear())
    (first, *_) = run(10, SEED, ("server",)).broken
    assert "does not verify" in first.reason


def test_a_control_character_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "shown", lambda text: f"{text}\x1b")
    (first, *_) = run(10, SEED, ("prefix",)).broken
    assert "a control character on the terminal" in first.reason


CHANGES: dict[str, Callable[[Path], object]] = {
    "write": lambda path: path.write_text("x"),
    "remove": Path.unlink,
    "rename": lambda path: path.rename(path.with_name("b")),
    "chmod": lambda path: path.chmod(0o600),
    "hard link": lambda path: path.with_name("b").hardlink_to(path),
    "link": lambda path: path.with_name("b").symlink_to(path),
    "folder": lambda path: path.with_name("b").mkdir(),
    "tree": lambda path: shutil.rmtree(path.with_name("tree")),
    "truncate": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("linked", [False, True])
def test_no_case_can_change_a_file_outside_of_its_folder(
    tmp_path: Path, change: Callable[[Path], object], linked: bool
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        (folder / "tree").mkdir(parents=True)
        (folder / "a").write_text("kept")
    (inside / "link").symlink_to(outside)
    with confined(inside):
        with pytest.raises(OutsideError):
            change(inside / "link" / "a" if linked else outside / "a")
        assert sorted(path.name for path in outside.iterdir()) == ["a", "tree"]
        assert (outside / "a").read_text() == "kept"
        change(inside / "a")
