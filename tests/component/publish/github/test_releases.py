"""Tests of the GitHub client with faults: each ends in a complete release or a draft that the
next run completes."""

from __future__ import annotations

import socket

import pytest

from builder.errors import BuilderError, ConfigError, IntegrityError, TransferError
from builder.publish.github.http import GitHubHttp
from builder.publish.github.releases import GitHub
from builder.publish.prepare import PublishOptions
from tests.doubles.github import TOKEN
from tests.support.factories.publishing import ATTEMPTS, TAG, Desk, bytes_in
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused


def client(api: str, reporter: FakeReporter, time: FakeTime) -> GitHubHttp:
    return GitHubHttp(api=api, token=TOKEN, reporter=reporter, sleep=time.sleep, clock=time.clock)


def assert_complete(desk: Desk) -> None:
    (release,) = desk.github.releases.values()
    assert not release.draft
    assert desk.github.contents(TAG) == bytes_in(desk.dist)
    assert len(release.assets) == len(bytes_in(desk.dist)), "no leftovers, no duplicates"


@pytest.mark.parametrize("times", [0, 1, 4])
def test_of_a_host_that_states_no_digests_every_asset_is_read_back(desk: Desk, times: int) -> None:
    """Other bytes of the right size are sent again, and never become public."""
    desk.github.digests = False
    desk.github.fail("upload", "corrupt", times=times)
    if times == ATTEMPTS:
        with pytest.raises(IntegrityError):
            desk.publish()
        assert desk.github.published(TAG) is None
    assert desk.publish().state == "published"
    assert_complete(desk)
    reads = [seen.path for seen in desk.github.requests if seen.host == "storage" and seen.method == "GET"]
    assert times or len(reads) == len(set(reads)) == len(bytes_in(desk.dist))
    assert desk.publish().state == "unchanged"


@pytest.mark.parametrize("public", [False, True])
def test_an_earlier_asset_of_the_right_size_is_read_before_it_is_trusted(desk: Desk, public: bool) -> None:
    desk.github.digests = False
    desk.publish(PublishOptions(draft=not public))
    (release,) = desk.github.releases.values()
    asset = next(iter(release.assets.values()))
    asset.file.write_bytes(b"\0" + asset.file.read_bytes()[1:])
    if public:
        assert desk.status().state == "differs"
        return
    desk.publish()
    assert_complete(desk)


@pytest.mark.parametrize("kind", ["502", "hangup", "cut", "corrupt"])
def test_reading_back_survives_faults(desk: Desk, kind: str) -> None:
    desk.github.digests = False
    desk.github.fail("asset", kind, after=10)
    assert desk.publish().state == "published"
    assert_complete(desk)


def test_a_digest_that_comes_late_is_asked_for(desk: Desk) -> None:
    desk.github.fail("upload", "late-digest")
    desk.publish()
    assert any(seen.method == "GET" and "/releases/assets/" in seen.path for seen in desk.github.requests)


def test_a_draft_that_a_host_shows_by_its_tag_is_still_a_draft(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.publish(PublishOptions(draft=True))
    monkeypatch.setattr(desk.github, "published", lambda tag: next(iter(desk.github.releases.values())))
    assert desk.publish(PublishOptions(draft=True)).state == "draft"


def test_writes_are_a_second_apart(desk: Desk) -> None:
    desk.publish()
    assert desk.time.slept == [1.0] * (len(desk.github.writes()) - 1)


def test_bytes_that_never_arrive_right_are_an_integrity_error(desk: Desk) -> None:
    desk.github.fail("upload", "corrupt", times=4)
    with pytest.raises(IntegrityError, match=r"wanted \d+ bytes, sha256:[0-9a-f]{64}; GitHub got"):
        desk.publish()
    assert desk.publish().state == "published"
    assert_complete(desk)


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
    ("token", "error"),
    [
        ("", ConfigError),
        ("wrong", TransferError),
        ("two words", ConfigError),
        ("secretsecret\n", ConfigError),
    ],
)
def test_tokens_that_do_not_work(desk: Desk, refused: Refused, token: str, error: type[BuilderError]) -> None:
    with refused(error):
        desk.publish(token=token)
    for secret in ("two words", "secretsecret"):
        assert secret not in desk.output
    assert desk.github.writes() == []


def test_the_token_does_not_follow_a_redirect_to_another_host(desk: Desk) -> None:
    desk.github.fail("list", "elsewhere")
    desk.publish()
    (elsewhere,) = [seen for seen in desk.github.requests if seen.path == "/elsewhere"]
    assert not elsewhere.authorized


def test_the_token_is_not_shown_even_if_the_host_repeats_it(desk: Desk) -> None:
    desk.github.fail("create", "echo")
    with pytest.raises(TransferError) as caught:
        desk.publish()
    assert TOKEN not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize(
    ("api", "upload"),
    [
        ("https://ghe.example", "http://ghe.example/x"),
        ("https://ghe.example", "http://127.0.0.1/x"),
        ("http://127.0.0.1:9", "http://uploads.example/x"),
    ],
)
def test_the_token_is_not_sent_over_plain_http_off_this_machine_or_beside_https(
    api: str, upload: str
) -> None:
    with pytest.raises(TransferError, match="not sent over plain http"):
        client(api, FakeReporter(), FakeTime()).attempt("POST", upload, wanted=(201,))


@pytest.mark.parametrize(
    "api",
    [
        *("http://git.example", "http://git.example/api/v3", "http://localhost.git.example"),
        *("http://127.0.0.1@git.example", "https://user:secret@git.example"),
        *("ftp://git.example", "git.example", ""),
    ],
)
def test_an_api_that_a_token_may_not_go_to_is_refused(refused: Refused, api: str) -> None:
    with refused(ConfigError) as caught:
        client(api, FakeReporter(), FakeTime())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "api", ["https://api.github.com/", "http://localhost:8080", "https://git.example/api/v3"]
)
def test_an_api_with_or_without_a_closing_slash_is_taken(api: str) -> None:
    client(api, FakeReporter(), FakeTime())


@pytest.mark.parametrize(
    "repository",
    [
        *("ortpacks", "a/b/c", "a/../b", "a/..", "a/b?x=1", "a b/c", "/b", "a/", "a/b\n"),
        "https://x-access-token:secret@github.com/ada/ortpacks",
    ],
)
def test_a_repository_that_is_none_is_refused(refused: Refused, repository: str) -> None:
    http = client("http://127.0.0.1:9", FakeReporter(), FakeTime())
    with refused(ConfigError) as caught:
        GitHub(repository=repository, http=http, reporter=FakeReporter())
    assert "secret" not in str(caught.value)


def test_a_host_with_an_empty_part_is_told() -> None:
    http = client("https://api..example", FakeReporter(), FakeTime())
    with pytest.raises(TransferError, match=r"^api\.\.example does not answer: .*label empty or too long"):
        http.call("GET", "/", wanted=(200,))


def test_nobody_there_is_said_at_once() -> None:
    time = FakeTime()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    http = client(f"http://{address}", FakeReporter(), time)
    with pytest.raises(TransferError, match=rf"{address} does not answer: Connection refused"):
        http.call("GET", "/", wanted=(200,))
    assert time.slept == []
