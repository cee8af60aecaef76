"""Tests of requests to GitHub other than publishing: write access, the newest release, an asset's bytes."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest
import requests
import urllib3

from builder.errors import IntegrityError, TransferError
from builder.files.digest import LocalFile
from builder.publish.assets import Asset, Release
from builder.publish.github.http import GitHubHttp, RetryPolicy
from builder.publish.github.releases import GitHub
from tests.doubles.github import REPOSITORY, TOKEN, GitHubDouble
from tests.support.factories.releases import FakeTime
from tests.support.fakes.ports import FakeReporter
from tests.support.messages import Refused

TAG = "gpu-libs-v1.23.2"

BODY = bytes(range(256)) * 1000


def host(
    double: GitHubDouble,
    *,
    token: str = TOKEN,
    repository: str = REPOSITORY,
    reporter: FakeReporter | None = None,
) -> GitHub:
    time, reporter = FakeTime(), reporter or FakeReporter()
    http = GitHubHttp(
        api=double.url,
        token=token,
        reporter=reporter,
        sleep=time.sleep,
        clock=time.clock,
        policy=RetryPolicy(attempts=3),
    )
    return GitHub(repository=repository, http=http, reporter=reporter)


def asset_of(double: GitHubDouble) -> Asset:
    release = double.create(TAG, "", "", draft=True)
    stored = double.store(release, "index.json", BODY)
    return Asset(stored.name, stored.size, stored.digest, stored.state, stored.id)


@pytest.mark.parametrize("scopes", [None, "", "repo", "gist, public_repo", "repo, workflow"])
@pytest.mark.parametrize("push", [True, None])
def test_a_token_that_may_write_passes(double: GitHubDouble, push: bool | None, scopes: str | None) -> None:
    double.push, double.scopes = push, scopes
    host(double).require_access()
    assert [(seen.method, seen.path) for seen in double.requests] == [("GET", f"/repos/{REPOSITORY}")]


@pytest.mark.parametrize(
    ("push", "scopes"), [(False, None), (False, "repo"), (True, "gist"), (True, "read:org")]
)
def test_a_token_that_only_reads_is_told_what_it_needs(
    double: GitHubDouble, push: bool, scopes: str | None
) -> None:
    double.push, double.scopes = push, scopes
    with pytest.raises(
        TransferError, match=r"may read the repository but not write.*Contents: write"
    ) as caught:
        host(double).require_access()
    assert (caught.value.exit_code, double.writes()) == (10, [])
    assert TOKEN not in str(caught.value)


def test_a_workflows_token_passes_though_github_says_that_its_user_may_not_push(double: GitHubDouble) -> None:
    """``push`` is always false for an installation: github.com/semantic-release/github, lib/verify.js."""
    double.token, double.push = "ghs_doubleOfAWorkflowsToken", False
    host(double, token=double.token).require_access()


@pytest.mark.parametrize(
    ("kind", "times", "repository"),
    [("moved", 1, REPOSITORY), ("half", 3, REPOSITORY), ("502", 0, "ortpacks/other")],
)
def test_an_answer_of_something_else_is_told(
    double: GitHubDouble, refused: Refused, kind: str, times: int, repository: str
) -> None:
    double.fail("access", kind, times=times)
    with refused(TransferError):
        host(double, repository=repository).require_access()


@pytest.mark.parametrize("kind", ["502", "half"])
def test_the_access_check_outlasts_a_server_error_and_half_an_answer(double: GitHubDouble, kind: str) -> None:
    double.fail("access", kind, times=2)
    host(double).require_access()


def newest_tag(double: GitHubDouble) -> str:
    latest = host(double).latest()
    assert latest is not None
    assert not latest.draft
    return latest.tag


def test_the_newest_release_is_the_one_published_last(double: GitHubDouble) -> None:
    assert host(double).latest() is None
    older = double.create("v1", "", "", draft=False)
    double.create("v2", "", "", draft=False)
    double.create("v3", "", "", draft=True)
    assert newest_tag(double) == "v2"
    double.publish(older)
    assert newest_tag(double) == "v1"


def public_release(double: GitHubDouble) -> tuple[GitHub, Release]:
    double.create(TAG, "title", "body", draft=False)
    github = host(double)
    public = github.published(TAG)
    assert public is not None
    return github, public


def test_a_withdrawn_release_is_a_draft_that_is_published_again(double: GitHubDouble) -> None:
    github, public = public_release(double)
    assert github.withdraw(public).draft
    assert github.published(TAG) is None
    assert [draft.id for draft in github.drafts(TAG)] == [public.id]
    assert not github.publish(public, "title", "body").draft


@pytest.mark.parametrize("kind", ["502", "landed", "hangup", "429"])
def test_withdrawing_outlasts_a_fault(double: GitHubDouble, kind: str) -> None:
    github, public = public_release(double)
    double.fail("publish", kind)
    assert github.withdraw(public).draft
    assert double.releases[public.id].draft


def test_an_immutable_release_is_not_withdrawn(double: GitHubDouble) -> None:
    double.immutable = True
    github, public = public_release(double)
    with pytest.raises(TransferError, match="422"):
        github.withdraw(public)
    assert not double.releases[public.id].draft


def drafted(double: GitHubDouble, reporter: FakeReporter | None = None) -> tuple[GitHub, Release]:
    double.create(TAG, "", "", draft=True)
    github = host(double, reporter=reporter)
    (draft,) = github.drafts(TAG)
    return github, draft


def test_publishing_whose_answer_is_lost_is_not_asked_for_twice(double: GitHubDouble) -> None:
    github, draft = drafted(double)
    double.fail("publish", "landed")
    assert not github.publish(draft, "", "").draft
    assert [seen.method for seen in double.writes()] == ["PATCH"]


@pytest.mark.parametrize("kind", [None, "direct", "502", "502-cut", "hangup", "429", "cut", "corrupt"])
def test_an_assets_bytes_come_from_the_object_store_which_never_sees_the_token(
    double: GitHubDouble, kind: str | None
) -> None:
    asset = asset_of(double)
    github = host(double)
    github.drafts(TAG)
    if kind:
        double.fail("asset", kind, after=1000)
    assert hashlib.sha256(github.download(asset, len(BODY))).hexdigest() == hashlib.sha256(BODY).hexdigest()
    storage = [seen for seen in double.requests if seen.host == "storage"]
    assert bool(storage) == (kind != "direct")
    assert not any(seen.authorized for seen in storage)


def test_an_asset_that_keeps_coming_with_other_bytes_is_an_integrity_error(double: GitHubDouble) -> None:
    asset = asset_of(double)
    double.fail("asset", "corrupt", times=3)
    with pytest.raises(IntegrityError, match=r"download index\.json: wanted 256000 bytes, sha256:"):
        host(double).download(asset, len(BODY))


@pytest.mark.parametrize("told", [len(BODY), 5])
def test_more_bytes_than_asked_for_are_not_read(double: GitHubDouble, told: int) -> None:
    """The host tells the size correctly, or a wrong one."""
    real = asset_of(double)
    asset = Asset(real.name, told, None, real.state, real.id)
    with pytest.raises(TransferError, match=r"at most 100,000|larger than the 100,000"):
        host(double).download(asset, 100_000)
    assert len(double.requests) == (0 if told > 100_000 else 2), "a size that is told spares the request"


def test_an_asset_that_is_gone_is_said_so(double: GitHubDouble) -> None:
    asset_of(double)
    with pytest.raises(TransferError, match="404"):
        host(double).download(Asset("index.json", 5, None, "uploaded", 999), 100)


def test_a_file_that_vanishes_while_it_is_sent_is_not_taken_for_a_network_that_fails(
    double: GitHubDouble, tmp_path: Path
) -> None:
    github, draft = drafted(double)
    with pytest.raises(IntegrityError, match=r"gone\.bin cannot be read: No such file"):
        github.upload(draft, LocalFile(tmp_path / "gone.bin", 10, "0" * 64))
    assert not next(iter(double.releases.values())).assets


def tls_error(cause: ssl.SSLError) -> requests.exceptions.SSLError:
    """Return requests 2.34's error for a TLS server that hangs up or has another certificate."""
    reason = urllib3.exceptions.SSLError(cause)
    return requests.exceptions.SSLError(urllib3.exceptions.MaxRetryError(None, "/", reason))  # type: ignore[arg-type]


def failing_once(double: GitHubDouble, error: Exception) -> tuple[GitHub, FakeReporter]:
    """Return a host that was reached once and whose next request raises ``error``, and its reporter."""
    reporter = FakeReporter()
    github = host(double, reporter=reporter)
    github.latest()
    session = github._http._session
    original = session.request

    def request(*args: object, **kwargs: object) -> requests.Response:
        session.request = original  # type: ignore[method-assign]
        raise error

    session.request = request  # type: ignore[method-assign]
    return github, reporter


def test_a_connection_that_is_cut_in_the_midst_of_tls_is_tried_again(double: GitHubDouble) -> None:
    cut = ssl.SSLEOFError(8, "EOF occurred in violation of protocol (_ssl.c:2427)")
    github, reporter = failing_once(double, tls_error(cut))
    assert github.latest() is None
    assert "EOF occurred in violation of protocol" in reporter.lines[-1]


def test_a_certificate_that_is_not_trusted_is_final(double: GitHubDouble) -> None:
    refused = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    github, reporter = failing_once(double, tls_error(refused))
    with pytest.raises(TransferError, match="the TLS certificate was not accepted"):
        github.latest()
    assert reporter.lines == []


@pytest.mark.parametrize("size", [9, 11])
def test_a_file_of_another_size_than_it_was_is_an_error_or_cut_to_what_was_hashed(
    double: GitHubDouble, tmp_path: Path, size: int
) -> None:
    reporter = FakeReporter()
    github, draft = drafted(double, reporter)
    file = tmp_path / "a.bin"
    file.write_bytes(b"0123456789"[:size].ljust(size, b"x"))
    wanted = LocalFile(file, 10, hashlib.sha256(b"0123456789").hexdigest())
    if size < 10:
        with pytest.raises(IntegrityError, match="got shorter while it was sent"):
            github.upload(draft, wanted)
    else:
        assert github.upload(draft, wanted).size == 10
        again = tmp_path / "b.bin"
        again.write_bytes(b"0123456789")
        assert github.upload(draft, LocalFile(again, 10, wanted.sha256)).size == 10
        assert reporter.lines == [], "nothing more was sent on the connection, so no request failed"
