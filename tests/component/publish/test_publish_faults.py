"""Tests of faults during publish: a release is whole or hidden, and the next run completes it.

What a kill leaves on a host is what ``revoke`` and ``down`` leave: no later request arrives.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.publish.prepare import PublishOptions
from tests.doubles.github import GitHubDouble
from tests.doubles.github_handlers import EDITED
from tests.support.factories.public_view import assert_no_name_twice, seen
from tests.support.factories.publishing import ATTEMPTS, TAG, Desk, bytes_in, open_desk, prepare
from tests.support.factories.releases import FakeTime
from tests.support.faults.hosts import HostFault, host_faults
from tests.support.tables import table

SEED = 20_261_121

CUTS = 20

ONCE = ("revoke", "403", "meddle", "meddle-more", "move", "retag-late", "gone")
"""Faults that a run never survives, so that one is enough."""


FAULTS = [
    case
    for routes, kinds, before, skips in table("publish/faults.txt")
    for case in host_faults(routes, kinds, once=ONCE, before=before, skips=tuple(map(int, skips.split())))
]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no test cuts the power; a call takes milliseconds
    with open_desk(tmp_path) as desk:
        yield desk


class Outage(FakeTime):
    """A clock on which a wait of 10 s or more makes the double listen again."""

    def __init__(self, github: GitHubDouble) -> None:
        super().__init__()
        self.github = github

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if seconds >= 10:
            self.github.up()


def outlive(desk: Desk, case: HostFault) -> None:
    """Run with the fault, check what is public, run again, and check once more."""
    prepare(desk, case.before)
    former, tagged = seen(desk.github, TAG), desk.github.tags.get(TAG)
    desk.github.fail(case.route, case.kind, times=case.times, skip=case.skip, after=case.after)
    if case.kind == "down" and case.times == 1:
        desk.time = Outage(desk.github)
    options = PublishOptions(replace=case.before == "other", commit=tagged)
    try:
        desk.publish(options)
    except BuilderError:
        assert case.times == ATTEMPTS or case.kind in (*ONCE, "down", "hangup")
    desk.github.up()
    assert desk.github.forget_faults() < case.times, "the fault was never met"
    assert_no_name_twice(desk.github)
    public = seen(desk.github, TAG)
    assert public in (None, former, bytes_in(desk.dist)), "part of a release is public"
    assert seen(desk.github, EDITED) is None, "public under another tag"
    if tagged and case.kind == "move":
        assert public in (None, former), "public under a tag that was moved"
        desk.github.tags[TAG] = tagged
    if public != bytes_in(desk.dist):
        desk.publish(options, token=desk.github.token)
        public = seen(desk.github, TAG)
    assert_no_name_twice(desk.github)
    assert public == bytes_in(desk.dist)
    assert not any(release.draft for release in desk.github.releases.values()), "a second draft"
    newest = desk.github.latest()
    assert newest is not None
    assert (newest.tag, EDITED in {newest.title, newest.body}) == (TAG, False)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.thorough] * bool(case.skip), id=str(case)) for case in FAULTS],
)
def test_a_release_is_whole_or_hidden_and_the_next_run_completes_it(desk: Desk, case: HostFault) -> None:
    outlive(desk, case)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "number"), [*(("cut", n) for n in range(CUTS)), *(("cut-starter", n) for n in range(CUTS // 2))]
)
def test_a_network_that_is_cut_at_any_byte_costs_one_upload(desk: Desk, kind: str, number: int) -> None:
    sizes = [row.file.size for row in desk.publish(PublishOptions(dry_run=True)).rows if row.file]
    position = random.Random(f"{SEED} {kind} {number}").randrange(sum(sizes))  # noqa: S311 - moments, not keys
    skip = 0
    while position >= sizes[skip]:
        position -= sizes[skip]
        skip += 1
    case = HostFault(route="upload", kind=kind, skip=skip, after=position)
    outlive(desk, case)
