"""Fixtures with an opener of untrusted archives and a check of the files that it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.inspect.opener import Opener
from builder.io.transfer import HttpTransfer
from tests.support.fakes.ports import FakeReporter
from tests.support.opened import Holds, Refuses, found, refused


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for sources; afterwards, no other file may be next to it."""
    folder = tmp_path / "work"
    (tmp_path / "dist").mkdir()
    folder.mkdir()
    yield folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dist", "work"]
    assert list((tmp_path / "dist").iterdir()) == []


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    transfer = HttpTransfer(reporter=FakeReporter(), sleep=lambda seconds: None, env={})
    return Opener(transfer=transfer, scratch=tmp_path / "dist" / "inspect")


def holding(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def holds(opener: Opener, work: Path) -> Holds:
    return lambda data: found(opener, holding(work / "app.tar", data))


@pytest.fixture
def refuses(opener: Opener, work: Path) -> Refuses:
    return lambda data: refused(opener, holding(work / "app.tar", data))
