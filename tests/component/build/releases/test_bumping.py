"""Tests of ``bump``: the version is the same in all of its places, and the changelog lists its changes."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from builder.build.verbs.maintenance import CHANGELOG, VERSIONED, bump_version, version_in
from builder.client import __version__
from builder.errors import NothingToDoError
from builder.io.wiring import Wiring
from tests.support import ROOT
from tests.support.factories.project_copy import copied_to
from tests.support.fakes.ports import FakeReporter

RELEASED = "## 3.4.5 (2026-01-01)\n\n- old\n"


def write_versioned(root: Path) -> None:
    """Write every file of version 3.4.5, and a changelog with one unreleased change."""
    for name in VERSIONED:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((ROOT / name).read_text().replace(f'"{__version__}"', '"3.4.5"', 1))
    (root / CHANGELOG).write_text(f"# Changes\n\n## Unreleased\n\n- new\n\n{RELEASED}")


def versions(root: Path) -> set[str]:
    projects = (root / name for name in VERSIONED if name.endswith(".toml"))
    return {tomllib.loads(path.read_text())["project"]["version"] for path in projects}


def test_the_tree_says_one_version() -> None:
    assert versions(ROOT) == {__version__}
    assert version_in({name: (ROOT / name).read_text() for name in VERSIONED}) == __version__


@pytest.mark.parametrize(("part", "after"), [("patch", "3.4.6"), ("minor", "3.5.0"), ("major", "4.0.0")])
def test_a_part_is_raised_everywhere_and_the_unreleased_changes_get_the_number(
    tmp_path: Path, part: str, after: str
) -> None:
    write_versioned(tmp_path)
    wiring, now = Wiring(tmp_path, reporter=FakeReporter()), datetime(2026, 2, 3, tzinfo=UTC)
    bump_version(wiring, part, now)
    assert versions(tmp_path) == {after}
    assert f'__version__ = "{after}"' in (tmp_path / "builder/client/__init__.py").read_text()
    assert (tmp_path / CHANGELOG).read_text() == (
        f"# Changes\n\n## Unreleased\n\n## {after} (2026-02-03)\n\n- new\n\n{RELEASED}"
    )
    with pytest.raises(NothingToDoError, match="has nothing under '## Unreleased'"):
        bump_version(wiring, part, now)


def test_the_verb_says_what_it_raised_and_what_it_cannot(tmp_path: Path) -> None:
    place = copied_to(tmp_path)
    write_versioned(place.folder)
    assert "is no part of a version. Say major" in place.fails(2, "bump", "great")
    assert "3.4.5 → 3.4.6" in place.run("bump", "patch").stdout
    path = place.folder / "service/pyproject.toml"
    path.write_text(path.read_text().replace("3.4.6", "0.0.1", 1))
    assert "service/pyproject.toml says 0.0.1" in place.fails(2, "bump", "patch")
