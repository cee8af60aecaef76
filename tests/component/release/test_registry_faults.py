"""Tests of faults of a registry: a release is whole under its tag or absent, and the next run
completes it."""

from __future__ import annotations

import random
from collections import Counter as Counted
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.files.digest import LocalFile
from builder.release.prepare import PublishOptions
from tests.support.factories.mirroring import local_files
from tests.support.factories.publishing import ATTEMPTS, TAG, bytes_in
from tests.support.factories.registering import Counter, bundle, open_counter
from tests.support.faults.counted import cases_of

SEED = 20_261_123

TIMES = (1, ATTEMPTS)
"""Numbers of repetitions: one, which a run survives, and ``ATTEMPTS``, after which the next run continues."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault, the request at which it comes, and the registry's earlier contents."""

    route: str
    kind: str
    times: int = 1
    skip: int = 0
    after: int = 0
    before: str = "nothing"

    def __str__(self) -> str:
        return f"{self.before}-{self.route}-{self.kind}-{self.skip}+{self.after}x{self.times}"


def cases(
    routes: str, kinds: str, *, before: str = "nothing", skips: tuple[int, ...] = (0,), after: int = 0
) -> list[Case]:
    return [
        Case(route=route, kind=kind, times=times, skip=skip, before=before, after=after)
        for route, kind, skip, times in product(routes.split(), kinds.split(), skips, TIMES)
        if times == 1 or kind not in ("revoke", "expire")
    ]


ALL = "manifest look begin send finish put-manifest"

WRITES = "begin send finish put-manifest"

FAULTS = [
    *cases(ALL, "500 429 hangup"),
    *cases("send finish", "502 hangup", skips=(4,)),
    *cases(WRITES, "lost landed"),
    *cases("put-manifest", "lost landed", skips=(1,)),
    *cases("send", "cut forget", skips=(0, 3), after=100),
    *cases("send", "corrupt", skips=(0, 3)),
    *cases("send finish put-manifest", "expire revoke", skips=(1,)),
    *cases(WRITES, "revoke"),
    *cases("manifest look send finish", "503", before="other"),
    *cases("send finish put-manifest", "503 lost landed revoke", before="other", skips=(0, 1)),
]

CUTS = 12


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[list[LocalFile]]:
    """Return the files of two releases of the same tag, as publish makes them."""
    made = []
    for padding in (150_000, 90_000):
        with open_counter(tmp_path_factory.mktemp("release")) as counter:
            bundle(counter.dist, padding)
            counter.mirror(PublishOptions(dry_run=True))
            made.append(local_files(counter.dist, *sorted(bytes_in(counter.dist))))
    return made


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    with open_counter(tmp_path) as counter:
        counter.served.login, counter.logins = "Bearer", {"username": "ada", "password": "secret"}
        yield counter


def outlive(counter: Counter, case: Case, releases: list[list[LocalFile]]) -> None:
    """Run with the fault, check what is public, run again, and check once more."""
    release, other = releases
    wanted = {file.name: file.path.read_bytes() for file in release}
    replaces = PublishOptions(replace=case.before == "other")
    if case.before == "other":
        counter.converge(other)
    former = counter.seen()
    counter.served.fail(case.route, case.kind, times=case.times, skip=case.skip, after=case.after)
    try:
        counter.converge(release, replaces)
    except BuilderError as error:
        assert case.times == ATTEMPTS or case.kind == "revoke", error  # noqa: PT017 - only some may fail
    assert len(counter.served.faults) < case.times, "the fault was never met"
    counter.served.faults, counter.served.may_write = [], True
    for tag in (TAG, "latest"):
        assert counter.seen(tag) in (None, former, wanted), "part of a release is public"
    counter.converge(release, replaces)
    assert counter.seen() == counter.seen("latest") == wanted


@pytest.mark.parametrize("case", FAULTS, ids=str)
def test_a_release_is_whole_or_not_there_and_the_next_run_completes_it(
    counter: Counter, releases: list[list[LocalFile]], case: Case
) -> None:
    outlive(counter, case, releases)


@pytest.mark.parametrize("kind", ["cut", "forget"])
@pytest.mark.parametrize("number", range(CUTS // 2))
def test_a_network_that_is_cut_at_any_byte_costs_one_upload(
    counter: Counter, releases: list[list[LocalFile]], kind: str, number: int
) -> None:
    moment = random.Random(f"{SEED} {kind} {number}")  # noqa: S311 - moments, not keys
    sizes = list({file.digest: file.size for file in releases[0]}.values())  # equal files are sent once
    skip = moment.randrange(len(sizes))
    after = moment.randrange(min(sizes))
    outlive(counter, Case(route="send", kind=kind, skip=skip, after=after), releases)


def test_what_the_registry_has_of_an_upload_is_not_sent_again(
    counter: Counter, releases: list[list[LocalFile]]
) -> None:
    counter.served.fail("send", "cut", after=700)
    counter.converge(releases[0])
    first, second, *_ = (span for route, span in counter.served.requests if route == "send")
    assert second == first.replace("0-", "700-", 1)


def test_no_fault_has_left_the_tables(request: pytest.FixtureRequest) -> None:
    assert cases_of(request) >= Counted(
        {
            "test_a_release_is_whole_or_not_there_and_the_next_run_completes_it": 120,
            "test_a_network_that_is_cut_at_any_byte_costs_one_upload": 12,
        }
    )
