"""Tests of a public release that differs: publish refuses or replaces it; and of the release's status."""

from __future__ import annotations

import pytest

from builder.errors import ReleaseConflictError, TransferError
from builder.publish.prepare import PublishOptions, ReleaseState
from tests.support.factories.publishing import TAG, Desk, bytes_in
from tests.support.factories.releases import manifest
from tests.support.messages import Refused

REPLACE = PublishOptions(replace=True)


OTHERS = (manifest("legacy"), manifest("modern", origin="wheel", profile=None))
"""Manifests of both packages, which give other bytes when the packages are built again."""


@pytest.mark.parametrize(
    ("immutable", "options"), [(False, PublishOptions()), (True, REPLACE)], ids=["unasked", "immutable"]
)
def test_a_published_release_that_differs_is_not_touched_unasked_or_when_immutable(
    desk: Desk, refused: Refused, immutable: bool, options: PublishOptions
) -> None:
    desk.github.immutable = immutable
    desk.publish()
    before = len(desk.github.writes())
    desk.rebuild(*OTHERS)
    with refused(ReleaseConflictError):
        desk.publish(options)
    assert len(desk.github.writes()) == before


def test_while_it_is_replaced_nobody_sees_half_of_it(desk: Desk) -> None:
    desk.publish()
    desk.rebuild(*OTHERS)
    desk.github.fail("upload", "cut", after=10, times=99)
    with pytest.raises(TransferError):
        desk.publish(REPLACE)
    assert desk.github.published(TAG) is None
    desk.github.forget_faults()
    assert desk.publish().state == ReleaseState.PUBLISHED, "a draft again: the plain command goes on"
    assert desk.github.contents(TAG) == bytes_in(desk.dist)


def test_an_older_release_that_is_replaced_does_not_become_the_newest(desk: Desk) -> None:
    """``self-update`` of clients, and the notes of the next release, go by the newest."""
    desk.publish()
    newest = desk.publish(PublishOptions(tag="gpu-libs-v1.23.3"))
    desk.rebuild(*OTHERS)
    assert desk.publish(REPLACE).state == ReleaseState.PUBLISHED
    latest = desk.github.latest()
    assert latest is not None
    assert latest.tag == newest.tag
    desk.publish(PublishOptions(tag=newest.tag, replace=True))
    assert desk.github.latest() is latest


def test_replace_of_an_equal_release_does_nothing(desk: Desk) -> None:
    desk.publish()
    before = len(desk.github.writes())
    assert desk.publish(REPLACE).state == ReleaseState.UNCHANGED
    assert len(desk.github.writes()) == before


def test_a_dry_run_of_a_replacement_leaves_the_release_public(desk: Desk) -> None:
    desk.publish()
    desk.rebuild(*OTHERS)
    before = len(desk.github.writes())
    assert desk.publish(PublishOptions(replace=True, dry_run=True)).state == ReleaseState.DRY_RUN
    assert len(desk.github.writes()) == before
    assert desk.github.published(TAG) is not None


def test_the_status_follows_a_release_from_nothing_to_public_and_differing(desk: Desk) -> None:
    assert desk.status().state == ReleaseState.ABSENT
    desk.publish(PublishOptions(draft=True))
    assert desk.status().state == ReleaseState.DRAFT
    desk.publish()
    assert desk.status().state == ReleaseState.PUBLISHED
    (desk.dist / "licences.html").write_bytes(b"other")
    found = desk.status()
    assert found.state == ReleaseState.DIFFERS
    assert [row.name for row in found.rows if row.status.name != "EQUAL"] == ["licences.html"]


def test_the_status_writes_nothing_here_or_there(desk: Desk) -> None:
    desk.publish()
    before, there = bytes_in(desk.dist), len(desk.github.writes())
    desk.status()
    assert bytes_in(desk.dist) == before
    assert len(desk.github.writes()) == there
