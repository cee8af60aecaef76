"""Tests of the client's waits when GitHub asks for them.

Expectations come from RFC 9110 and docs.github.com.
"""

import io
from collections.abc import Callable

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import TransferError
from builder.files.http_client import named_wait, sent_at
from builder.publish.github.http import GitHubHttp, RetryPolicy, lacks_scope, rate_limit_wait, reason_of
from builder.publish.github.releases import GitHub
from tests.doubles.github import REPOSITORY, GitHubDouble
from tests.support.factories.publishing import Desk, bytes_in
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter
from tests.support.tables import table

NOVEMBER_1994 = 784_111_777
"""Unix seconds of RFC 9110's example (5.6.7): ``date -u -d "Sun, 06 Nov 1994 08:49:37 GMT" +%s``."""


def pauses(time: FakeTime) -> list[float]:
    return [pause for pause in time.slept if pause > 1]


@pytest.mark.parametrize(("status", "headers", "message", "wait"), table("publish/rate-limits.txt"))
def test_what_github_asks_for(status: str, headers: str, message: str, wait: str) -> None:
    said = dict(header.split(": ") for header in headers.split("; ") if header)
    asked = rate_limit_wait(int(status), said, message, now=NOVEMBER_1994 - 30)
    assert asked == (float(wait) if wait else None)


@given(st.text(), st.text())
def test_no_header_is_too_odd_to_be_read(after: str, reset: str) -> None:
    headers = {"Retry-After": after, "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset, "Date": after}
    wait = named_wait(headers, 0.0)
    assert wait is None or wait >= 0
    sent_at(headers)
    lacks_scope({"X-OAuth-Scopes": after})


def test_pauses_of_our_own_double_up_to_the_cap() -> None:
    patience = RetryPolicy()
    assert [patience.pause(0.0, number) for number in range(1, 7)] == [10, 20, 40, 80, 160, 300]
    assert [patience.pause(7.0, number) for number in (1, 6)] == [7, 7]


def test_a_request_that_gave_up_is_not_repeated_by_its_sender(http_of: Callable[..., GitHubHttp]) -> None:
    tried: list[str] = []

    def send() -> None:
        tried.append("read back")
        raise TransferError("GitHub answered 502", cause="Bad Gateway", retry_after=0.0)

    http = http_of("https://api.github.com", attempts=3)
    with pytest.raises(TransferError, match=r"^read back x: .* 502: Bad Gateway\. Gave up after 3"):
        http.retry("upload x", lambda: http.retry("read back x", send))
    assert tried == ["read back"] * 3


def test_waits_grow_up_to_the_cap(
    double: GitHubDouble, http_of: Callable[..., GitHubHttp], time: FakeTime
) -> None:
    """docs.github.com: "wait for at least one minute", then "an exponentially increasing amount of time"."""
    host = GitHub(repository=REPOSITORY, http=http_of(double.url), reporter=FakeReporter())
    for times in (6, 1):
        double.fail("create", "secondary", times=times)
        host.create_draft(f"v{times}", "", "")
    assert pauses(time) == [60, 120, 240, 300, 300, 300, 60]


@pytest.mark.parametrize("kind", ["retry-after", "date", "reset"])
def test_a_time_to_come_back_is_kept_to_by_githubs_clock_not_by_ours(desk: Desk, kind: str) -> None:
    """The desk's clock differs from GitHub's by months."""
    desk.github.fail("upload", kind, seconds=90, times=3)
    desk.publish()
    assert [88 <= pause <= 92 for pause in pauses(desk.time)] == [True] * 3
    assert "; attempt 2 of 4 in " in desk.output


@pytest.mark.parametrize("kind", ["429", "reset"])
def test_a_wait_of_more_than_an_hour_ends_the_run_and_says_so(desk: Desk, kind: str) -> None:
    desk.github.fail("upload", kind, seconds=4000)
    with pytest.raises(TransferError, match=r"GitHub asks to wait [34]\d{3} s; run it again after that"):
        desk.publish()
    assert pauses(desk.time) == []
    desk.publish()
    assert desk.github.contents("gpu-libs-v1.23.2") == bytes_in(desk.dist)


def test_a_refusal_of_nonsense_is_its_status_line() -> None:
    answer = requests.Response()
    answer.status_code, answer.reason, answer.raw = 403, "Forbidden", io.BytesIO(b"[" * 100_000)
    assert reason_of(answer) == "Forbidden"


def test_what_a_host_says_is_one_line(http_of: Callable[..., GitHubHttp], reporter: FakeReporter) -> None:
    errors = [TransferError("GitHub answered 500: a\n  ✓ uploaded", retry_after=0.0)]

    def attempt() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert http_of("https://x").retry("upload x", attempt) == "done"
    assert [len(line.splitlines()) for line in reporter.lines] == [1]
