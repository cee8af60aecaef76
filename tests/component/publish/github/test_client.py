"""Tests of the GitHub client: access, releases, bytes, faults of a host, tokens, and waits.

The expectations on waits come from RFC 9110 and docs.github.com.
"""

import hashlib
import io
import socket
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import requests
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import BuilderError, ConfigError, IntegrityError, TransferError
from builder.files.digest import LocalFile
from builder.files.http_client import named_wait, sent_at
from builder.publish.assets import Asset, Release
from builder.publish.github.http import GitHubHttp, RetryPolicy, lacks_scope, rate_limit_wait, reason_of
from builder.publish.github.releases import GitHub
from builder.publish.prepare import PublishOptions
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories.publishing import ATTEMPTS, TAG, Desk, bytes_in, github, github_of
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused
from tests.support.tables import table

BODY = bytes(range(256)) * 1000

WORKFLOWS = "ghs_doubleOfAWorkflowsToken"
"""GitHub says of an installation's token that it may not push: semantic-release/github, lib/verify.js."""


Clients = Callable[..., GitHubHttp]


@pytest.fixture
def double(desk: Desk) -> GitHubDouble:
    return desk.github


@pytest.fixture
def host(desk: Desk) -> GitHub:
    return github(f"{desk.github.url}/", TOKEN, desk.time, desk.reporter)


@pytest.fixture
def http_of(desk: Desk) -> Clients:
    """Return a function from an address to its client, with the desk's reporter and clock."""
    time = desk.time
    return partial(GitHubHttp, token=TOKEN, reporter=desk.reporter, sleep=time.sleep, clock=time.clock)


@pytest.fixture
def draft(double: GitHubDouble, host: GitHub) -> Release:
    double.create(TAG, "", "", draft=True)
    (draft,) = host.drafts(TAG)
    return draft


@pytest.fixture
def asset(double: GitHubDouble, draft: Release) -> Asset:
    stored = double.store(double.releases[draft.id], "index.json", BODY)
    return Asset(stored.name, stored.size, stored.digest, stored.state, stored.id)


@pytest.mark.parametrize(
    ("token", "push", "scopes", "writes"),
    [
        (TOKEN, True, None, True),
        (TOKEN, None, "", True),
        (TOKEN, True, "gist, public_repo", True),
        (WORKFLOWS, False, None, True),
        (TOKEN, False, "repo", False),
        (TOKEN, True, "gist, read:org", False),
    ],
)
def test_a_token_needs_the_right_to_write(
    double: GitHubDouble, token: str, push: bool | None, scopes: str | None, writes: bool
) -> None:
    double.token, double.push, double.scopes = token, push, scopes
    said = pytest.raises(TransferError, match=r"may read the repository but not write.*Contents: write")
    with nullcontext() if writes else said:
        github_of(double).require_access()
    assert [(seen.method, seen.path) for seen in double.requests] == [("GET", f"/repos/{REPOSITORY}")]


@pytest.mark.parametrize(
    ("route", "kind", "times"),
    [("access", "moved", 1), ("access", "half", ATTEMPTS), ("access", "other", 1), ("list", "other", 1)],
)
def test_an_answer_of_something_else_is_told(
    double: GitHubDouble, host: GitHub, refused: Refused, route: str, kind: str, times: int
) -> None:
    double.fail(route, kind, times=times)
    with refused(TransferError):
        host.require_access() if route == "access" else host.drafts("v1")


def test_publishing_with_a_lost_answer_comes_once(double: GitHubDouble, host: GitHub, draft: Release) -> None:
    double.fail("publish", "landed")
    assert not host.publish(draft, "", "").draft
    assert [seen.method for seen in double.writes()] == ["PATCH"]


@pytest.mark.parametrize("kind", [None, "direct", "502-cut", "hangup", "corrupt"])
def test_storage_sees_no_token(double: GitHubDouble, host: GitHub, asset: Asset, kind: str | None) -> None:
    if kind:
        double.fail("asset", kind, after=1000)
    assert host.download(asset, len(BODY)) == BODY
    storage = [seen for seen in double.requests if seen.host == "storage"]
    assert bool(storage) == (kind != "direct")
    assert not any(seen.authorized for seen in storage)


def test_an_asset_that_comes_with_other_bytes(double: GitHubDouble, host: GitHub, asset: Asset) -> None:
    double.fail("asset", "corrupt", times=ATTEMPTS)
    with pytest.raises(IntegrityError, match=r"download index\.json: wanted 256000 bytes, sha256:"):
        host.download(asset, len(BODY))


@pytest.mark.parametrize(("told", "asked"), [(len(BODY), 0), (5, 2)])
def test_more_bytes_than_asked_for_are_not_read(
    double: GitHubDouble, host: GitHub, asset: Asset, told: int, asked: int
) -> None:
    """The host tells the size correctly, which spares the request, or a wrong one."""
    double.requests.clear()
    with pytest.raises(TransferError, match=r"at most 100,000|larger than the 100,000"):
        host.download(Asset(asset.name, told, None, asset.state, asset.id), 100_000)
    assert len(double.requests) == asked


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "cannot be read: No such file"),
        (b"012345678", "got shorter while it was sent"),
        (b"0123456789x", ""),
    ],
    ids=["gone", "shorter", "longer"],
)
def test_a_file_that_changes_while_it_is_sent_is_an_error_or_cut_to_what_was_hashed(
    host: GitHub, draft: Release, desk: Desk, tmp_path: Path, content: bytes | None, error: str
) -> None:
    """The network is not blamed: no request is repeated, also not the next one on the connection."""
    file, again = tmp_path / "a.bin", tmp_path / "b.bin"
    again.write_bytes(b"0123456789")
    if content:
        file.write_bytes(content)
    digest = hashlib.sha256(b"0123456789").hexdigest()
    if error:
        with pytest.raises(IntegrityError, match=error):
            host.upload(draft, LocalFile(file, 10, digest))
    else:
        assert [host.upload(draft, LocalFile(one, 10, digest)).size for one in (file, again)] == [10, 10]
    assert desk.reporter.lines == []


@pytest.mark.parametrize(
    ("cause", "waits"),
    [
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol (_ssl.c:2427)"), 0.0),
        (ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] failed"), None),
    ],
    ids=["cut", "certificate"],
)
def test_a_cut_tls_connection_is_tried_again(host: GitHub, cause: ssl.SSLError, waits: float | None) -> None:
    """The errors are those of requests 2.34 on a host that was reached before."""
    host.latest()
    reason = urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.SSLError(cause))  # type: ignore[arg-type]
    error = host._http._unanswered(requests.exceptions.SSLError(reason), "https://x/")
    assert (error.retry_after, "certificate was not accepted" in str(error)) == (waits, waits is None)


DRAFT = PublishOptions(draft=True)


@pytest.fixture
def digestless(desk: Desk) -> Desk:
    """Return a desk whose host states no digests."""
    desk.github.digests = False
    return desk


def assert_published(desk: Desk) -> None:
    assert desk.publish().state == "published"
    (release,) = desk.github.releases.values()
    assert not release.draft
    assert desk.github.contents(TAG) == bytes_in(desk.dist)
    assert len(release.assets) == len(bytes_in(desk.dist)), "no leftovers, no duplicates"


@pytest.mark.parametrize("times", [0, 1, ATTEMPTS])
def test_of_a_host_that_states_no_digests_every_asset_is_read_back(digestless: Desk, times: int) -> None:
    """Other bytes of the right size are sent again, and never become public."""
    digestless.github.fail("upload", "corrupt", times=times)
    if times == ATTEMPTS:
        with pytest.raises(IntegrityError, match=r"wanted \d+ bytes, sha256:[0-9a-f]{64}; GitHub got"):
            digestless.publish()
        assert digestless.github.published(TAG) is None
    assert_published(digestless)
    requests = digestless.github.requests
    reads = [seen.path for seen in requests if seen.host == "storage" and seen.method == "GET"]
    assert times or len(reads) == len(set(reads)) == len(bytes_in(digestless.dist))
    assert digestless.publish().state == "unchanged"


@pytest.mark.parametrize("public", [False, True])
def test_an_earlier_asset_of_the_right_size_is_read_first(digestless: Desk, public: bool) -> None:
    digestless.publish(PublishOptions() if public else DRAFT)
    (release,) = digestless.github.releases.values()
    asset = next(iter(release.assets.values()))
    asset.file.write_bytes(b"\0" + asset.file.read_bytes()[1:])
    if public:
        assert digestless.status().state == "differs"
    else:
        assert_published(digestless)


@pytest.mark.parametrize("kind", ["502", "hangup", "cut", "corrupt"])
def test_reading_back_survives_faults(digestless: Desk, kind: str) -> None:
    digestless.github.fail("asset", kind, after=10)
    assert_published(digestless)


def test_a_draft_that_is_shown_by_its_tag_is_still_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.publish(DRAFT)
    monkeypatch.setattr(desk.github, "published", lambda tag: next(iter(desk.github.releases.values())))
    assert desk.publish(DRAFT).state == "draft"


def test_writes_are_a_second_apart(desk: Desk) -> None:
    desk.publish()
    assert desk.time.slept == [1.0] * (len(desk.github.writes()) - 1)


@pytest.mark.parametrize(
    ("route", "kind"), [("create", "401"), ("upload", "403"), ("create", "404"), ("upload", "moved")]
)
def test_refusals_are_told_apart_and_not_retried(desk: Desk, refused: Refused, route: str, kind: str) -> None:
    desk.github.fail(route, kind)
    with refused(TransferError):
        desk.publish()
    assert [pause for pause in desk.time.slept if pause > 1] == []
    assert desk.publish().state == "published"


@pytest.mark.parametrize(
    ("token", "error"), [("", ConfigError), ("wrong", TransferError), ("secretsecret\n", ConfigError)]
)
def test_tokens_that_do_not_work(desk: Desk, refused: Refused, token: str, error: type[BuilderError]) -> None:
    with refused(error):
        desk.publish(token=token)
    assert "secretsecret" not in desk.output
    assert desk.github.writes() == []


def test_the_token_is_not_shown_even_if_the_host_repeats_it(desk: Desk) -> None:
    desk.github.fail("create", "echo")
    with pytest.raises(TransferError, match=r"\*\*\*") as caught:
        desk.publish()
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("api", "upload"),
    [("https://ghe.example", "http://127.0.0.1/x"), ("http://127.0.0.1:9", "http://uploads.example/x")],
)
def test_the_token_is_not_sent_over_plain_http_elsewhere(http_of: Clients, api: str, upload: str) -> None:
    with pytest.raises(TransferError, match="not sent over plain http"):
        http_of(api=api).attempt("POST", upload, wanted=(201,))


@pytest.mark.parametrize(
    ("api", "repository"),
    [
        ("http://git.example", REPOSITORY),
        ("http://127.0.0.1@git.example", REPOSITORY),
        ("http://localhost.git.example", REPOSITORY),
        ("https://user:secret@git.example", REPOSITORY),
        ("", REPOSITORY),
        ("http://127.0.0.1:9", "a/../b"),
        ("http://127.0.0.1:9", "https://x-access-token:secret@github.com/ada/ortpacks"),
    ],
)
def test_an_address_that_a_token_may_not_go_to_is_refused(
    refused: Refused, http_of: Clients, api: str, repository: str
) -> None:
    with refused(ConfigError):
        GitHub(repository=repository, http=http_of(api=api), reporter=FakeReporter())


@pytest.mark.parametrize(
    ("host", "cause"), [("https://api..example", ".*label empty or too long"), (None, "Connection refused")]
)
def test_nobody_there_is_said_at_once(http_of: Clients, desk: Desk, host: str | None, cause: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = host or f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(TransferError, match=rf"^{address.partition('//')[2]} does not answer: {cause}"):
        http_of(api=address).call("GET", "/", wanted=(200,))
    assert desk.time.slept == []


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


def test_a_request_that_gave_up_is_not_repeated_by_its_sender(http_of: Clients) -> None:
    tried: list[str] = []

    def send() -> None:
        tried.append("read back")
        raise TransferError("GitHub answered 502", cause="Bad Gateway", retry_after=0.0)

    http = http_of(api="https://api.github.com", policy=RetryPolicy(attempts=3))
    with pytest.raises(TransferError, match=r"^read back x: .* 502: Bad Gateway\. Gave up after 3"):
        http.retry("upload x", lambda: http.retry("read back x", send))
    assert tried == ["read back"] * 3


def test_waits_grow_up_to_the_cap(desk: Desk, http_of: Clients) -> None:
    """docs.github.com: "wait for at least one minute", then "an exponentially increasing amount of time"."""
    host = GitHub(repository=REPOSITORY, http=http_of(api=desk.github.url), reporter=FakeReporter())
    for times in (6, 1):
        desk.github.fail("create", "secondary", times=times)
        host.create_draft(f"v{times}", "", "")
    assert pauses(desk.time) == [60, 120, 240, 300, 300, 300, 60]


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


def test_what_a_host_says_is_one_line(http_of: Clients, desk: Desk) -> None:
    errors = [TransferError("GitHub answered 500: a\n  ✓ uploaded", retry_after=0.0)]

    def attempt() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert http_of(api="https://x").retry("upload x", attempt) == "done"
    assert [len(line.splitlines()) for line in desk.reporter.lines] == [1]
