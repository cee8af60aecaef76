"""Fixtures with the double of GitHub, and with its client."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builder.publish.github.http import GitHubHttp, RetryPolicy
from tests.doubles.github import TOKEN, GitHubDouble
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter


@pytest.fixture
def double(tmp_path: Path) -> Iterator[GitHubDouble]:
    with GitHubDouble(tmp_path / "github").running() as double:
        yield double


@pytest.fixture
def reporter() -> FakeReporter:
    return FakeReporter()


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def http_of(reporter: FakeReporter, time: FakeTime) -> Callable[..., GitHubHttp]:
    """Return a function from an address to its client, with the fixtures' reporter and clock."""

    def made(api: str, token: str = TOKEN, attempts: int = 8) -> GitHubHttp:
        policy = RetryPolicy(attempts=attempts)
        return GitHubHttp(
            api=api, token=token, reporter=reporter, sleep=time.sleep, clock=time.clock, policy=policy
        )

    return made
