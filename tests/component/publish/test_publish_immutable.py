"""Tests of immutable releases: the setting is read before any write, and the result is checked afterwards."""

from __future__ import annotations

import pytest

from builder.errors import CheckFailedError, IntegrityError
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions
from tests.support.factories.publishing import TAG, Desk
from tests.support.messages import Refused

MUTABLE = PublishOptions(allow=Leniency(mutable=True))

UNKNOWN = "GitHub does not say whether releases are immutable"

SETTING = "immutable-releases"


@pytest.fixture
def asked(desk: Desk) -> Desk:
    """Return a desk whose token belongs to an administrator."""
    desk.github.admin = True
    return desk


def times_asked(desk: Desk) -> int:
    return sum(seen.path.endswith(SETTING) for seen in desk.github.requests)


@pytest.mark.parametrize(
    "options", [PublishOptions(), PublishOptions(draft=True), PublishOptions(dry_run=True)]
)
def test_a_repository_whose_releases_can_be_changed_is_refused_before_any_write(
    asked: Desk, refused: Refused, options: PublishOptions
) -> None:
    with refused(CheckFailedError):
        asked.publish(options)
    assert asked.github.writes() == []


def test_who_allows_it_is_not_asked(asked: Desk) -> None:
    assert asked.publish(MUTABLE).state == "published"
    assert times_asked(asked) == 0
    assert "immutable" not in asked.output


@pytest.mark.parametrize("fault", [None, "immutable-late"])
def test_a_release_comes_out_immutable_and_that_is_said(asked: Desk, fault: str | None) -> None:
    """An answer that comes before the release is immutable is looked at again."""
    asked.github.immutable = True
    if fault:
        asked.github.fail("publish", fault)
    assert asked.publish().state == "published"
    assert "published and immutable: " in asked.output
    assert UNKNOWN not in asked.output


def test_what_came_out_immutable_unasked_is_no_warning(desk: Desk) -> None:
    desk.github.immutable = True
    desk.publish()
    assert "not immutable" not in desk.output


@pytest.mark.parametrize(
    ("enterprise", "fault", "why"),
    [
        (None, None, "403: only administrators may ask"),
        (None, "404", "404: only administrators may ask"),
        ("3.17.2", None, "404: Enterprise Server 3.17.2 may have none"),
    ],
)
def test_where_github_does_not_tell_it_says_so_and_goes_on(
    desk: Desk, enterprise: str | None, fault: str | None, why: str
) -> None:
    """An Enterprise Server answers 404 to administrators too."""
    desk.github.enterprise, desk.github.admin = enterprise, enterprise is not None
    if fault:
        desk.github.fail("immutable", fault)
    assert desk.publish().state == "published"
    assert f"{UNKNOWN} ({why})" in desk.output
    assert f"{TAG} is public and not immutable" in desk.output


def test_a_rate_limit_is_not_taken_for_a_token_that_may_not_ask(asked: Desk) -> None:
    asked.github.immutable = True
    asked.github.fail("immutable", "secondary")
    asked.publish()
    assert times_asked(asked) == 2
    assert UNKNOWN not in asked.output


def test_a_release_that_comes_out_changeable_all_the_same_is_taken_back(asked: Desk) -> None:
    asked.github.immutable = True
    asked.github.fail("publish", "mutable")
    with pytest.raises(IntegrityError, match=rf"{TAG} is not immutable, although.*It is a draft again: http"):
        asked.publish()
    (release,) = asked.github.releases.values()
    assert release.draft
    assert asked.publish().state == "published"


def test_what_is_public_and_equal_needs_no_setting(asked: Desk) -> None:
    asked.publish(MUTABLE)
    assert asked.publish().state == "unchanged"
    assert times_asked(asked) == 0
