"""Tests of the client's waits when GitHub asks for them.

Expectations come from RFC 9110 and docs.github.com.
"""

from __future__ import annotations

import io

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from builder.console import Console, Reporter
from builder.errors import TransferError
from builder.files.http_client import named_wait, sent_at
from builder.publish.github.http import (
    GitHubHttp,
    RetryPolicy,
    lacks_scope,
    rate_limit_wait,
    reason_of,
)
from builder.publish.github.releases import GitHub
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories.publishing import Desk, bytes_in
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter

NOVEMBER_1994 = 784_111_777
"""Unix seconds of RFC 9110's example (5.6.7): ``date -u -d "Sun, 06 Nov 1994 08:49:37 GMT" +%s``."""


def client(reporter: Reporter, policy: RetryPolicy = RetryPolicy()) -> GitHubHttp:  # noqa: B008
    """Return a client that does not sleep."""
    return GitHubHttp(
        api="https://api.github.com",
        token="",
        reporter=reporter,
        sleep=lambda _: None,
        clock=lambda: 0.0,
        policy=policy,
    )


def pauses(desk: Desk) -> list[float]:
    return [pause for pause in desk.time.slept if pause > 1]


@pytest.mark.parametrize(
    ("status", "headers", "message", "wait"),
    [
        (403, {"Retry-After": "30"}, "", 30.0),
        (429, {"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}, "", 30.0),
        (403, {"Retry-After": "Sunday, 06-Nov-94 08:49:37 GMT"}, "", 30.0),
        (403, {"Retry-After": "Sun, 06 Nov 1994 08:49:00 GMT"}, "", 1.0),
        (403, {"Retry-After": "soon"}, "", 60.0),
        (403, {"Retry-After": "-5"}, "", 60.0),
        (403, {"Retry-After": "\u00b2"}, "", 60.0),
        (
            429,
            {"Retry-After": "soon", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "784111757"},
            "",
            10.0,
        ),
        (429, {"Retry-After": "5", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "784111757"}, "", 5.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "784111837"}, "", 90.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "784111647"}, "", 1.0),
        (403, {"X-RateLimit-Remaining": "12", "X-RateLimit-Reset": "784111837"}, "", None),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "never"}, "API rate limit exceeded", 60.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "\u00b2"}, "API rate limit exceeded", 60.0),
        (429, {}, "", 60.0),
        (403, {}, "You have triggered an abuse detection mechanism.", 60.0),
        (403, {}, "Resource not accessible by integration", None),
        (502, {"Retry-After": "30"}, "", None),
    ],
)
def test_what_github_asks_to_wait(
    status: int, headers: dict[str, str], message: str, wait: float | None
) -> None:
    assert rate_limit_wait(status, headers, message, now=NOVEMBER_1994 - 30) == wait


@given(st.text(), st.text())
def test_no_header_is_too_odd_to_be_read(after: str, reset: str) -> None:
    headers = {"Retry-After": after, "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset, "Date": after}
    wait = named_wait(headers, 0.0)
    assert wait is None or wait >= 0
    sent_at(headers)
    lacks_scope({"X-OAuth-Scopes": after})


def test_pauses_of_our_own_double_up_to_the_cap() -> None:
    patience = RetryPolicy()
    numbers = range(1, 7)
    assert [patience.pause(0.0, number) for number in numbers] == [10, 20, 40, 80, 160, 300]
    assert [patience.pause(7.0, number) for number in numbers] == [7] * 6


def test_a_request_that_gave_up_is_not_repeated_by_the_one_that_sent_it() -> None:
    tried: list[str] = []

    def send() -> None:
        tried.append("read back")
        raise TransferError("GitHub answered 502", cause="Bad Gateway", retry_after=0.0)

    http = client(FakeReporter(), RetryPolicy(attempts=3))
    with pytest.raises(TransferError) as caught:
        http.retry("upload x", lambda: http.retry("read back x", send))
    assert tried == ["read back"] * 3
    assert str(caught.value) == (
        "read back x: GitHub answered 502: Bad Gateway. Gave up after 3 attempts; run it again to go on."
    )


def test_a_secondary_limit_that_lasts_is_waited_for_longer_each_time(desk: Desk) -> None:
    """docs.github.com: "wait for at least one minute", then "an exponentially increasing amount of time"."""
    desk.github.fail("create", "secondary", times=3)
    desk.publish()
    assert pauses(desk) == [60.0, 120.0, 240.0]


def test_the_waits_for_a_secondary_limit_grow_up_to_the_cap_and_begin_anew_after_an_answer(
    double: GitHubDouble,
) -> None:
    time = FakeTime()
    http = GitHubHttp(
        api=double.url, token=TOKEN, reporter=FakeReporter(), sleep=time.sleep, clock=time.clock
    )
    host = GitHub(repository=REPOSITORY, http=http, reporter=FakeReporter())
    double.fail("create", "secondary", times=6)
    host.create_draft("v1", "", "")
    double.fail("create", "secondary")
    host.create_draft("v2", "", "")
    assert [pause for pause in time.slept if pause > 1] == [60, 120, 240, 300, 300, 300, 60]


@pytest.mark.parametrize("kind", ["retry-after", "429"])
def test_a_wait_in_seconds_is_kept_to_each_time(desk: Desk, kind: str) -> None:
    desk.github.fail("upload", kind, times=3, seconds=42)
    desk.publish()
    assert pauses(desk) == [42.0, 42.0, 42.0]
    assert "rate limit: Slow down; attempt 2 of 4 in 42 s" in desk.output


@pytest.mark.parametrize("kind", ["date", "reset"])
def test_a_time_to_come_back_is_read_by_githubs_clock_not_by_ours(desk: Desk, kind: str) -> None:
    """The desk's clock differs from GitHub's by months."""
    desk.github.fail("upload", kind, seconds=90)
    desk.publish()
    (pause,) = pauses(desk)
    assert 88 <= pause <= 92


@pytest.mark.parametrize("kind", ["429", "date", "reset"])
def test_a_wait_of_more_than_an_hour_ends_the_run_and_says_so(desk: Desk, kind: str) -> None:
    desk.github.fail("upload", kind, seconds=4000)
    with pytest.raises(
        TransferError, match=r"GitHub asks to wait (3999|4000|4001) s; run it again after that"
    ):
        desk.publish()
    assert pauses(desk) == []
    desk.publish()
    (release,) = desk.github.releases.values()
    assert {asset.name for asset in release.assets.values()} == set(bytes_in(desk.dist))


def test_a_refusal_of_nonsense_is_its_status_line() -> None:
    answer = requests.Response()
    answer.status_code, answer.reason, answer.raw = 403, "Forbidden", io.BytesIO(b"[" * 100_000)
    assert reason_of(answer) == "Forbidden"


def test_what_a_host_says_is_one_line_of_the_warning() -> None:
    written, reasons = io.StringIO(), [TransferError("GitHub answered 500: a\n  ✓ uploaded", retry_after=0.0)]

    def attempt() -> str:
        if reasons:
            raise reasons.pop()
        return "done"

    http = client(Console(env={}, stream=written))
    assert http.retry("upload x", attempt) == "done"
    assert len(written.getvalue().splitlines()) == 1
