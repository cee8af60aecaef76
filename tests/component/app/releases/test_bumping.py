"""Tests of ``bump``: the version is the same in all of its places, and the changelog lists its changes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from builder.app.releases.bumping import CHANGELOG, VERSIONED, version_in
from builder.client import __version__
from tests.support import ROOT
from tests.support.factories.project_copy import Place


def versions(root: Path) -> set[str]:
    projects = (root / name for name in VERSIONED if name.endswith(".toml"))
    return {tomllib.loads(path.read_text())["project"]["version"] for path in projects}


def test_the_tree_says_one_version() -> None:
    assert versions(ROOT) == {__version__}
    assert version_in({name: (ROOT / name).read_text() for name in VERSIONED}) == __version__


@pytest.mark.parametrize(("part", "after"), [("patch", "3.4.6"), ("minor", "3.5.0"), ("major", "4.0.0")])
def test_a_part_is_raised_everywhere_and_the_unreleased_changes_get_the_number(
    place: Place, part: str, after: str
) -> None:
    for name in VERSIONED:
        path = place.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text((ROOT / name).read_text().replace(f'"{__version__}"', '"3.4.5"', 1))
    (place.folder / CHANGELOG).write_text(
        "# Changes\n\n## Unreleased\n\n- new\n\n## 3.4.5 (2026-01-01)\n\n- old\n"
    )
    done = place.run("bump", part)
    assert f"3.4.5 → {after}" in done.stdout
    assert versions(place.folder) == {after}
    assert f'__version__ = "{after}"' in (place.folder / "builder/client/__init__.py").read_text()
    head, new, released, _ = (place.folder / CHANGELOG).read_text().split("\n## ")
    assert (head, new) == ("# Changes\n", "Unreleased\n")
    assert released.startswith(f"{after} (20")
    assert released.endswith(")\n\n- new\n")
    again = place.run("bump", part)
    assert (again.returncode, "has nothing under '## Unreleased'" in again.stderr) == (3, True)


def test_what_cannot_be_raised_is_told(place: Place) -> None:
    for name in (*VERSIONED, CHANGELOG):
        path = place.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text((ROOT / name).read_text())
    done = place.run("bump", "great")
    assert (done.returncode, "is no part of a version. Say major" in done.stderr) == (2, True)
    path = place.folder / "service/pyproject.toml"
    path.write_text(path.read_text().replace(__version__, "0.0.1", 1))
    done = place.run("bump", "patch")
    assert (done.returncode, "service/pyproject.toml says 0.0.1" in done.stderr) == (2, True)
