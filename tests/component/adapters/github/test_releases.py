"""Tests of the GitHub client with faults: each ends in a complete release or a draft that the
next run completes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.adapters.github.http import GitHubHttp
from builder.adapters.github.refusals import rate_limit_wait
from builder.adapters.github.releases import GitHub
from builder.errors import BuilderError, ConfigError, IntegrityError, TransferError
from builder.release.prepare import PublishOptions
from tests.doubles.github import TOKEN
from tests.support.factories.publishing import TAG, Desk, bytes_in, open_desk
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path) as desk:
        yield desk
        assert TOKEN not in desk.output


def client(api: str, reporter: FakeReporter, time: FakeTime) -> GitHubHttp:
    return GitHubHttp(api=api, token=TOKEN, reporter=reporter, sleep=time.sleep, clock=time.clock)


def assert_complete(desk: Desk) -> None:
    (release,) = desk.github.releases.values()
    assert not release.draft
    assert desk.github.contents(TAG) == bytes_in(desk.dist)
    assert len(release.assets) == len(bytes_in(desk.dist)), "no leftovers, no duplicates"


@pytest.mark.parametrize(
    ("route", "kind"),
    [
        ("upload", "starter"),
        ("upload", "landed"),
        ("upload", "race"),
        ("upload", "race-other"),
        ("upload", "corrupt"),
        ("upload", "wrong-digest"),
        ("upload", "no-digest"),
        ("upload", "late-digest"),
        ("upload", "truncated"),
        ("upload", "hangup"),
        ("upload", "500"),
        ("upload", "retry-after"),
        ("create", "500"),
        ("create", "landed"),
        ("create", "hangup"),
        ("list", "502"),
        ("assets", "500"),
        ("assets", "429"),
        ("delete", "500"),
        ("publish", "502"),
        ("publish", "landed"),
        ("publish", "reset"),
    ],
)
def test_one_fault_is_survived(desk: Desk, route: str, kind: str) -> None:
    release = desk.github.create(TAG, "", "", draft=True) if route == "delete" else None
    if release:
        desk.github.store(release, "index.json", b"old")
    desk.github.fail(route, kind)
    assert desk.publish().state == "published"
    assert_complete(desk)


@pytest.mark.parametrize("after", [0, 1, 65_536, 150_000])
@pytest.mark.parametrize("kind", ["cut", "cut-starter"])
def test_a_cut_upload_is_sent_again_from_its_first_byte(desk: Desk, kind: str, after: int) -> None:
    desk.github.fail("upload", kind, after=after)
    desk.publish()
    assert_complete(desk)


def test_a_host_that_tells_no_digests_is_believed_on_size(desk: Desk) -> None:
    desk.github.digests = False
    desk.publish()
    assert_complete(desk)
    assert desk.publish().state == "unchanged"
    assert "the host tells no digest" in desk.output


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
    ("kind", "advice"),
    [
        ("401", "wrong, expired or revoked"),
        ("403", "valid but may not do this: it needs Contents: write"),
        ("404", "does not exist, or the token may not see it"),
        ("moved", "has moved: correct publish.repository"),
    ],
)
@pytest.mark.parametrize("route", ["create", "upload"])
def test_refusals_are_told_apart_and_not_retried(desk: Desk, route: str, kind: str, advice: str) -> None:
    desk.github.fail(route, kind)
    with pytest.raises(TransferError, match=advice):
        desk.publish()
    assert [pause for pause in desk.time.slept if pause > 1] == []
    assert desk.publish().state == "published"


def test_a_revoked_token_midway_leaves_a_draft(desk: Desk) -> None:
    desk.github.fail("assets", "401")
    with pytest.raises(TransferError, match="expired or revoked"):
        desk.publish()
    assert desk.publish().state == "published"
    assert_complete(desk)


@pytest.mark.parametrize(
    ("token", "error", "words"),
    [
        ("", ConfigError, "There is no GitHub token. Set GITHUB_TOKEN"),
        ("wrong", TransferError, "wrong, expired or revoked"),
        ("two words", ConfigError, "blanks or line breaks"),
        ("secretsecret\n", ConfigError, "blanks or line breaks"),
    ],
)
def test_tokens_that_do_not_work(desk: Desk, token: str, error: type[BuilderError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        desk.publish(token=token)
    assert not token or token.strip() not in f"{caught.value!r} {desk.output}" or token == "wrong"
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


def test_the_token_is_not_sent_over_plain_http_when_the_api_is_https() -> None:
    http = GitHubHttp(
        api="https://ghe.example",
        token=TOKEN,
        reporter=FakeReporter(),
        sleep=(t := FakeTime()).sleep,
        clock=t.clock,
    )
    with pytest.raises(TransferError, match="not sent over plain http"):
        http.attempt("POST", "http://ghe.example/upload", wanted=(201,))


@pytest.mark.parametrize(
    "api",
    [
        "http://git.example",
        "http://git.example/api/v3",
        "http://localhost.git.example",
        "http://127.0.0.1@git.example",
        "https://user:secret@git.example",
        "ftp://git.example",
        "git.example",
        "",
    ],
)
def test_an_api_that_a_token_may_not_go_to_is_refused_whoever_names_it(api: str) -> None:
    with pytest.raises(ConfigError, match=r"--api \(or publish\.api of variants\.yaml\)") as caught:
        client(api, FakeReporter(), FakeTime())
    assert caught.value.exit_code == 2
    assert "https://host/path" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "api", ["https://api.github.com/", "http://localhost:8080", "https://git.example/api/v3"]
)
def test_an_api_with_or_without_a_closing_slash_is_taken(api: str) -> None:
    client(api, FakeReporter(), FakeTime())


def test_a_server_on_this_machine_cannot_send_the_token_off_it(desk: Desk) -> None:
    http = client(desk.github.url, desk.reporter, desk.time)
    with pytest.raises(TransferError, match="not sent over plain http"):
        http.attempt("POST", "http://uploads.example/x", wanted=(201,))


@pytest.mark.parametrize(
    "repository", ["ortpacks", "a/b/c", "a/../b", "a/..", "a/b?x=1", "a b/c", "/b", "a/", "a/b\n"]
)
def test_a_repository_that_is_none_is_refused(desk: Desk, repository: str) -> None:
    with pytest.raises(ConfigError, match=r"--repository \(or GITHUB_REPOSITORY"):
        GitHub(
            repository=repository,
            http=client(desk.github.url, desk.reporter, desk.time),
            reporter=desk.reporter,
        )
    assert desk.github.requests == []


def test_nobody_there_is_said_at_once(desk: Desk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    http = GitHubHttp(
        api=f"http://{address}",
        token=TOKEN,
        reporter=desk.reporter,
        sleep=desk.time.sleep,
        clock=desk.time.clock,
    )
    with pytest.raises(TransferError, match=rf"{address} does not answer: Connection refused"):
        http.call("GET", "/", wanted=(200,))
    assert desk.time.slept == []


@pytest.mark.parametrize(
    ("status", "headers", "message", "wait"),
    [
        (403, {"Retry-After": "30"}, "", 30.0),
        (429, {"Retry-After": "5"}, "", 5.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1090"}, "", 90.0),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "900"}, "", 1.0),
        (403, {"X-RateLimit-Remaining": "12", "X-RateLimit-Reset": "1090"}, "Resource not accessible", None),
        (403, {}, "You have exceeded a secondary rate limit.", 60.0),
        (429, {}, "", 60.0),
        (403, {}, "Resource not accessible by personal access token", None),
        (500, {"Retry-After": "30"}, "", None),
    ],
)
def test_what_is_a_rate_limit(status: int, headers: dict[str, str], message: str, wait: float | None) -> None:
    assert rate_limit_wait(status, headers, message, now=1000.0) == wait
