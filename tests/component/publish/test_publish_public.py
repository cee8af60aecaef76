"""Tests of what is public: its tag, whether it is immutable, and how it is replaced; and of the status.

``test_publish_faults`` shows that nobody sees half of a replacement.
"""

import pytest

from builder.errors import CheckFailedError, IntegrityError, ReleaseConflictError
from builder.publish.preflight import Leniency
from builder.publish.prepare import PublishOptions, ReleaseState
from tests.doubles.github import HEAD
from tests.doubles.github_handlers import MOVED
from tests.support.factories.publishing import COMMIT, TAG, Desk, bytes_in
from tests.support.factories.releases import manifest
from tests.support.messages import Refused, Told

REPLACE = PublishOptions(replace=True)


OTHERS = (manifest("legacy"), manifest("modern", origin="wheel", profile=None))
"""Manifests of both packages, which give other bytes when the packages are built again."""


@pytest.mark.parametrize(
    ("immutable", "options"), [(False, PublishOptions()), (True, REPLACE)], ids=["unasked", "immutable"]
)
def test_a_published_release_that_differs_is_not_touched_unasked_or_when_immutable(
    desk: Desk, refused: Refused, immutable: bool, options: PublishOptions
) -> None:
    desk.github.immutable = immutable
    desk.publish()
    before = len(desk.github.writes())
    desk.rebuild(*OTHERS)
    with refused(ReleaseConflictError):
        desk.publish(options)
    assert len(desk.github.writes()) == before


def test_an_older_release_that_is_replaced_does_not_become_the_newest(desk: Desk) -> None:
    """``self-update`` of clients, and the notes of the next release, go by the newest."""
    desk.publish()
    newest = desk.publish(PublishOptions(tag="gpu-libs-v1.23.3"))
    desk.rebuild(*OTHERS)
    assert desk.publish(REPLACE).state == ReleaseState.PUBLISHED
    latest = desk.github.latest()
    assert latest is not None
    assert latest.tag == newest.tag
    desk.publish(PublishOptions(tag=newest.tag, replace=True))
    assert desk.github.latest() is latest


def test_a_dry_run_replaces_nothing_and_an_equal_release_is_not_replaced(desk: Desk) -> None:
    desk.publish()
    before = len(desk.github.writes())
    assert desk.publish(REPLACE).state == ReleaseState.UNCHANGED
    desk.rebuild(*OTHERS)
    assert desk.publish(PublishOptions(replace=True, dry_run=True)).state == ReleaseState.DRY_RUN
    assert len(desk.github.writes()) == before
    assert desk.github.published(TAG) is not None


def test_the_status_follows_a_release_from_nothing_to_public_and_differing(desk: Desk) -> None:
    assert desk.status().state == ReleaseState.ABSENT
    desk.publish(PublishOptions(draft=True))
    assert desk.status().state == ReleaseState.DRAFT
    desk.publish()
    (desk.dist / "mine.txt").write_text("listed nowhere")
    before, there = bytes_in(desk.dist), len(desk.github.writes())
    assert desk.status().state == ReleaseState.PUBLISHED
    assert (bytes_in(desk.dist), len(desk.github.writes())) == (before, there), "it writes nothing"
    (desk.dist / "licences.html").write_bytes(b"other")
    found = desk.status()
    assert found.state == ReleaseState.DIFFERS
    assert [row.name for row in found.rows if row.status.name != "EQUAL"] == ["licences.html"]


UNKNOWN = "GitHub does not say whether releases are immutable"


@pytest.fixture
def asked(desk: Desk) -> Desk:
    """Return a desk whose token belongs to an administrator."""
    desk.github.admin = True
    return desk


def times_asked(desk: Desk) -> int:
    return sum(seen.path.endswith("immutable-releases") for seen in desk.github.requests)


@pytest.mark.parametrize("dry_run", [False, True])
def test_changeable_releases_are_refused_before_writing(asked: Desk, refused: Refused, dry_run: bool) -> None:
    with refused(CheckFailedError):
        asked.publish(PublishOptions(dry_run=dry_run))
    assert asked.github.writes() == []


def test_who_allows_it_is_not_asked_nor_is_what_is_public_and_equal(asked: Desk) -> None:
    assert asked.publish(PublishOptions(allow=Leniency(mutable=True))).state == "published"
    assert "immutable" not in asked.output
    assert asked.publish().state == "unchanged"
    assert times_asked(asked) == 0


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("admin", [False, True])
def test_a_release_comes_out_immutable_and_that_is_said(desk: Desk, admin: bool, late: bool) -> None:
    """An answer that comes before the release is immutable is looked at again."""
    desk.github.admin, desk.github.immutable = admin, True
    if late and admin:
        desk.github.fail("publish", "immutable-late")
    assert desk.publish().state == "published"
    assert "published and immutable: " in desk.output
    assert (UNKNOWN in desk.output, "not immutable" in desk.output) == (not admin, False)


@pytest.mark.parametrize(
    ("enterprise", "fault"), [(None, None), (None, "404"), ("3.17.2", None)], ids=["403", "404", "server"]
)
def test_github_tells_nothing(desk: Desk, told: Told, enterprise: str | None, fault: str | None) -> None:
    """An Enterprise Server answers 404 to administrators too."""
    desk.github.enterprise, desk.github.admin = enterprise, enterprise is not None
    if fault:
        desk.github.fail("immutable", fault)
    assert desk.publish().state == "published"
    told("\n".join(line for line in desk.reporter.lines if "immutable" in line))


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


DRAFT = PublishOptions(draft=True)

BUILT = PublishOptions(commit=COMMIT)

ANNOTATION, ANOTHER = "7" * 40, "8" * 40


def moved(desk: Desk, options: PublishOptions | None = None) -> str:
    """Return the message on a tag that moved from ``COMMIT`` to ``MOVED``, a conflict with exit code 8."""
    with pytest.raises(ReleaseConflictError) as caught:
        desk.publish(options)
    assert caught.value.exit_code == 8
    assert f"{TAG} names commit {MOVED}, and the release is of {COMMIT}." in str(caught.value)
    return str(caught.value)


def drafted(desk: Desk) -> None:
    desk.github.tags[TAG] = COMMIT
    desk.publish(DRAFT)


def test_a_tag_that_moved_since_the_draft_was_made_leaves_it_one(desk: Desk) -> None:
    drafted(desk)
    desk.github.tags[TAG] = MOVED
    before = len(desk.github.writes())
    (release,) = desk.github.releases.values()
    page = f"{desk.github.url}/ortpacks/ortpacks/releases/tag/{TAG}"
    assert f"It stays a draft: {page}. Move the tag back" in moved(desk)
    assert release.draft
    assert len(desk.github.writes()) == before
    desk.github.tags[TAG] = COMMIT
    assert desk.publish().state == "published"


def test_an_annotated_tag_is_the_commit_that_it_names(desk: Desk) -> None:
    """An annotated tag can be made again for the same commit, or for another one, which is a move."""
    drafted(desk)
    desk.github.tags[TAG] = ANOTHER
    desk.github.annotated = {ANOTHER: ANNOTATION, ANNOTATION: MOVED}
    moved(desk)
    desk.github.annotated[ANNOTATION] = COMMIT
    assert desk.publish().state == "published"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_tag_that_moved_since_the_build_is_refused_before_any_write(desk: Desk, dry_run: bool) -> None:
    desk.github.tags[TAG] = MOVED
    assert "Nothing was written." in moved(desk, PublishOptions(commit=COMMIT, dry_run=dry_run))
    assert desk.github.writes() == []


def test_what_is_immutable_by_then_can_only_be_deleted(desk: Desk) -> None:
    desk.github.immutable = True
    desk.github.fail("publish", "move")
    assert "It is public and immutable: delete http" in moved(desk, BUILT)


def test_a_tag_that_was_deleted_is_made_again_where_it_was(desk: Desk) -> None:
    drafted(desk)
    del desk.github.tags[TAG]
    assert desk.publish().state == "published"
    assert (desk.github.tags[TAG], COMMIT != HEAD) == (COMMIT, True)


def test_a_replacement_is_of_the_commit_that_the_tag_names_by_then_and_of_no_other(desk: Desk) -> None:
    desk.publish(BUILT)
    desk.github.tags[TAG] = MOVED
    desk.rebuild(manifest("legacy"), manifest("modern", origin="wheel", profile=None))
    moved(desk, PublishOptions(commit=COMMIT, replace=True))
    assert desk.github.published(TAG) is not None
    assert desk.publish(PublishOptions(replace=True)).state == "published"
    assert desk.github.contents(TAG) == bytes_in(desk.dist)
    (release,) = desk.github.releases.values()
    assert release.target == MOVED
