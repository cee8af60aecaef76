"""Tests of faults of a registry: a release is whole under its tag or absent, and the next run
completes it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from builder.errors import BuilderError
from builder.files.digest import LocalFile
from builder.release.prepare import PublishOptions
from tests.doubles.loopback import listening
from tests.doubles.registry import Served
from tests.support.factories.mirroring import local_files
from tests.support.factories.publishing import ATTEMPTS, TAG
from tests.support.factories.registering import Counter, bundle, open_counter
from tests.support.faults.hosts import HostFault, host_faults

SEED = 20_261_123

cases = partial(host_faults, "registry", once=("revoke", "expire"))

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
    """Return five files of two releases of the same tag, as publish makes them: few files, few requests."""
    made = []
    for padding in (150_000, 90_000):
        with open_counter(tmp_path_factory.mktemp("release")) as counter:
            bundle(counter.dist, padding)
            counter.mirror(PublishOptions(dry_run=True))
            packages = sorted(path.name for path in counter.dist.glob("*.tar.zst"))
            made.append(local_files(counter.dist, *packages, "ortpacks.pyz", "SHA256SUMS", "index.json"))
    return made


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    served = Served()
    served.login = "Bearer"
    with listening(served):
        yield Counter(tmp_path, served, logins={"username": "ada", "password": "secret"})


def outlive(counter: Counter, case: HostFault, releases: list[list[LocalFile]]) -> None:
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
    counter: Counter, releases: list[list[LocalFile]], case: HostFault
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
    outlive(counter, HostFault(family="cut", route="send", kind=kind, skip=skip, after=after), releases)


def test_what_the_registry_has_of_an_upload_is_not_sent_again(
    counter: Counter, releases: list[list[LocalFile]]
) -> None:
    counter.served.fail("send", "cut", after=700)
    counter.converge(releases[0])
    first, second, *_ = (span for route, span in counter.served.requests if route == "send")
    assert second == first.replace("0-", "700-", 1)
