"""Tests of a release's tag: a release becomes public only while the tag names the release's commit."""

from __future__ import annotations

import pytest

from builder.errors import ReleaseConflictError
from builder.publish.prepare import PublishOptions
from tests.doubles.github import HEAD
from tests.doubles.github_handlers import MOVED
from tests.support.factories.publishing import COMMIT, TAG, Desk, bytes_in
from tests.support.factories.releases import manifest

DRAFT = PublishOptions(draft=True)

BUILT = PublishOptions(commit=COMMIT)

ANNOTATION, ANOTHER = "7" * 40, "8" * 40


def refused(desk: Desk, options: PublishOptions | None = None) -> str:
    """Return the message on a tag that moved from ``COMMIT`` to ``MOVED``, a conflict with exit code 8."""
    with pytest.raises(ReleaseConflictError) as caught:
        desk.publish(options)
    assert caught.value.exit_code == 8
    said = str(caught.value)
    assert f"{TAG} names commit {MOVED}, and the release is of {COMMIT}." in said
    return said


def drafted(desk: Desk) -> None:
    desk.github.tags[TAG] = COMMIT
    desk.publish(DRAFT)


def test_a_tag_that_moved_since_the_draft_was_made_leaves_it_one(desk: Desk) -> None:
    drafted(desk)
    desk.github.tags[TAG] = MOVED
    before = len(desk.github.writes())
    (release,) = desk.github.releases.values()
    page = f"{desk.github.url}/ortpacks/ortpacks/releases/tag/{TAG}"
    assert f"It stays a draft: {page}. Move the tag back" in refused(desk)
    assert release.draft
    assert len(desk.github.writes()) == before
    desk.github.tags[TAG] = COMMIT
    assert desk.publish().state == "published"


def test_an_annotated_tag_is_the_commit_that_it_names(desk: Desk) -> None:
    """An annotated tag can be made again for the same commit, or for another one, which is a move."""
    drafted(desk)
    desk.github.tags[TAG] = ANOTHER
    desk.github.annotated = {ANOTHER: ANNOTATION, ANNOTATION: MOVED}
    refused(desk)
    desk.github.annotated[ANNOTATION] = COMMIT
    assert desk.publish().state == "published"


@pytest.mark.parametrize("options", [BUILT, PublishOptions(commit=COMMIT, dry_run=True)], ids=["", "dry run"])
def test_a_tag_that_moved_since_the_build_is_refused_before_any_write(
    desk: Desk, options: PublishOptions
) -> None:
    desk.github.tags[TAG] = MOVED
    assert "Nothing was written." in refused(desk, options)
    assert desk.github.writes() == []


def test_a_tag_that_moves_while_files_go_up_leaves_a_draft(desk: Desk) -> None:
    desk.github.tags[TAG] = COMMIT
    desk.github.fail("ref", "move", skip=1)
    assert "It stays a draft" in refused(desk)
    assert "PATCH" not in [seen.method for seen in desk.github.writes()]


@pytest.mark.parametrize("existed", [True, False])
def test_a_tag_that_moves_in_the_moment_of_publishing_makes_it_a_draft_again(
    desk: Desk, existed: bool
) -> None:
    desk.github.tags = {TAG: COMMIT} if existed else {}
    desk.github.fail("publish", "move")
    assert "It is a draft again" in refused(desk, BUILT)
    (release,) = desk.github.releases.values()
    assert release.draft


def test_what_is_immutable_by_then_can_only_be_deleted(desk: Desk) -> None:
    desk.github.immutable = True
    desk.github.fail("publish", "move")
    said = refused(desk, BUILT)
    assert "It is public and immutable: delete http" in said
    assert "use a new --tag" in said


def test_a_tag_that_somebody_pushes_elsewhere_after_the_draft_is_refused(desk: Desk) -> None:
    desk.publish(PublishOptions(commit=COMMIT, draft=True))
    assert desk.github.tags == {}
    desk.github.tags[TAG] = MOVED
    refused(desk, BUILT)
    refused(desk)  # the draft keeps the commit


def test_a_tag_may_be_pushed_after_a_draft_that_is_of_no_commit(desk: Desk) -> None:
    desk.publish(DRAFT)
    desk.github.tags[TAG] = COMMIT
    assert desk.publish().state == "published"
    assert desk.github.tags == {TAG: COMMIT}


def test_a_tag_that_was_deleted_is_made_again_where_it_was(desk: Desk) -> None:
    drafted(desk)
    del desk.github.tags[TAG]
    assert desk.publish().state == "published"
    assert (desk.github.tags[TAG], COMMIT != HEAD) == (COMMIT, True)


def test_a_build_of_the_commit_that_the_tag_names_now_takes_over_the_draft_of_another(desk: Desk) -> None:
    drafted(desk)
    desk.github.tags[TAG] = MOVED
    desk.rebuild(manifest("legacy"), manifest("modern"))
    assert desk.publish(PublishOptions(commit=MOVED)).state == "published"
    assert desk.github.contents(TAG) == bytes_in(desk.dist)


def test_a_release_that_is_public_and_equal_is_told_of_a_moved_tag(desk: Desk) -> None:
    desk.publish(BUILT)
    before = len(desk.github.writes())
    desk.github.tags[TAG] = MOVED
    assert "It stays public" in refused(desk)
    assert len(desk.github.writes()) == before


def test_a_replacement_of_another_commit_leaves_what_is_public(desk: Desk) -> None:
    desk.github.tags[TAG] = MOVED
    desk.publish()
    desk.rebuild(manifest("legacy"), manifest("modern", origin="wheel", profile=None))
    refused(desk, PublishOptions(commit=COMMIT, replace=True))
    assert desk.github.published(TAG) is not None


def test_a_replacement_by_hand_is_of_the_commit_that_the_tag_names_by_then(desk: Desk) -> None:
    desk.publish(BUILT)
    desk.github.tags[TAG] = MOVED
    desk.rebuild(manifest("legacy"), manifest("modern", origin="wheel", profile=None))
    assert desk.publish(PublishOptions(replace=True)).state == "published"
    assert desk.github.contents(TAG) == bytes_in(desk.dist)
    (release,) = desk.github.releases.values()
    assert release.target == MOVED
