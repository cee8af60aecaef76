"""The step publish makes a release on a host equal to ``dist/``, then public.

The release is compared with the files, changed where it differs, compared again, and published only if both
are equal. A second run does nothing; the next run continues an interrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from builder.config.variants import Project
from builder.errors import IntegrityError, ReleaseConflictError
from builder.files.digest import LocalFile
from builder.finding import require_no_errors
from builder.publish import preflight
from builder.publish.assets import (
    AssetRow,
    AssetStatus,
    Release,
    ReleasePlan,
    compare,
    converge,
    is_complete,
    render_table,
)
from builder.publish.locations import files_there
from builder.publish.notes import release_notes
from builder.publish.prepare import PublishOptions, PublishPorts, ReleaseState, ReleaseStatus, prepare


def publish_release(
    directory: Path, project: Project, ports: PublishPorts, options: PublishOptions
) -> ReleaseStatus:
    """Make the release on the host equal to ``directory``, then public, and return its state.

    Raises ``NothingToDoError`` (no packages), ``CheckFailedError`` (findings, before the host is contacted),
    ``ReleaseConflictError`` (published already with other bytes), ``IntegrityError`` or ``TransferError``.
    """
    with ports.reporter.step("preflight"):
        plan, index = prepare(directory, project, ports, options)
        ports.host.require_access()
    with ports.reporter.step(f"release {plan.tag}"):
        body = release_notes(plan, index, project, ports)
        require_no_errors(preflight.check_notes(body), f"{directory} cannot be released")
        return converge_release(replace(plan, body=body), ports, options)


def read_release_status(directory: Path, tag: str, ports: PublishPorts) -> ReleaseStatus:
    """Return the state of the release ``tag`` compared with ``directory``. Nothing is written."""
    public, release, rows = _look(tag, files_there(directory), ports)
    equal = ReleaseState.PUBLISHED if is_complete(rows) else ReleaseState.DIFFERS
    state = equal if public else ReleaseState.DRAFT if release else ReleaseState.ABSENT
    return ReleaseStatus(tag=tag, state=state, url=release.html_url if release else None, rows=rows)


def converge_release(plan: ReleasePlan, ports: PublishPorts, options: PublishOptions) -> ReleaseStatus:
    """Make the host's release equal to the plan and return its state. After a failure the draft stays.

    Raises ``ReleaseConflictError`` before anything is written if the tag is public with other files and may
    not be replaced, ``IntegrityError`` if the host has other bytes, and ``TransferError``.
    """
    public, release, rows = _look(plan.tag, plan.files, ports)
    if public is not None and is_complete(rows):
        _require_tag(public, options.commit or public.commit, ports)
        ports.reporter.say(f"already published, nothing to do: {public.html_url}")
        return ReleaseStatus(tag=plan.tag, state=ReleaseState.UNCHANGED, url=public.html_url, rows=rows)
    if public is not None:
        _require_replaceable(public, options)
    commit = _wanted_commit(plan.tag, None if public else release, ports, options)
    immutable = _wanted_immutable(plan.tag, ports, options)
    if options.dry_run:
        deletes, uploads = converge(rows)
        ports.reporter.say(
            f"dry run: {len(deletes) + len(uploads)} steps to take, nothing was written to the host"
        )
        url = release.html_url if release else None
        return ReleaseStatus(tag=plan.tag, state=ReleaseState.DRY_RUN, url=url, rows=rows)
    draft = ports.host.withdraw(public) if public else release
    draft = draft or ports.host.create_draft(plan.tag, plan.title, plan.body, commit)
    if public is not None:  # the draft may lack some of the release's files
        rows = tuple(compare(plan.files, ports.host.assets(draft)))
    _act(draft, rows, ports)
    rows = _observe_again(plan, draft, ports)
    if options.draft:
        ports.reporter.say(f"complete draft, not public: {draft.html_url}")
        return ReleaseStatus(tag=plan.tag, state=ReleaseState.DRAFT, url=draft.html_url, rows=rows)
    public = _made_public(plan, draft, ports, commit)
    public = _checked_immutable(public, ports, immutable)
    ports.reporter.say(f"published{' and immutable' if public.immutable else ''}: {public.html_url}")
    return ReleaseStatus(tag=plan.tag, state=ReleaseState.PUBLISHED, url=public.html_url, rows=rows)


def _wanted_commit(
    tag: str, draft: Release | None, ports: PublishPorts, options: PublishOptions
) -> str | None:
    """Return the commit that the tag must name: the built one, else the draft's, else the tag's present one.

    ``None`` means a mirror, or a missing tag that the host creates on a branch. Raises
    ``ReleaseConflictError`` if the tag names another commit.
    """
    now = _tagged_commit(tag, ports)
    wanted = options.commit or (draft.commit if draft else None) or now
    if now not in (None, wanted):
        raise _moved_tag(
            tag, wanted, now, _state_sentence(draft) if draft else f"Nothing was written. {_MOVED}"
        )
    return wanted


def _tagged_commit(tag: str, ports: PublishPorts) -> str | None:
    return ports.repository.commit_of(tag) if ports.repository else None


def _require_tag(release: Release, wanted: str | None, ports: PublishPorts) -> None:
    now = _tagged_commit(release.tag, ports) if wanted else None
    if now not in (None, wanted):
        raise _moved_tag(release.tag, wanted, now, _state_sentence(release))


def _moved_tag(tag: str, wanted: str | None, now: str | None, then: str) -> ReleaseConflictError:
    return ReleaseConflictError(f"{tag} names commit {now}, and the release is of {wanted}.", advice=then)


_MOVED = (
    "Move the tag back and run it again; or build the commit that the tag names, and delete the draft if "
    "there is one."
)


def _state_sentence(release: Release) -> str:
    return f"It stays {'a draft' if release.draft else 'public'}: {release.html_url}. {_MOVED}"


def _wanted_immutable(tag: str, ports: PublishPorts, options: PublishOptions) -> bool | None:
    """Return whether the release must become immutable; ``None`` if the host does not report its setting.

    Raises ``CheckFailedError`` if the host's releases can be changed and no flag allows this.
    """
    if ports.repository is None or options.allow.mutable:
        return False
    immutable = ports.repository.has_immutable_releases()
    require_no_errors(preflight.check_immutable(immutable), f"{tag} cannot be released")
    return immutable


def _made_public(plan: ReleasePlan, draft: Release, ports: PublishPorts, commit: str | None) -> Release:
    """Publish the draft and return the release; withdraw it if files or tag were changed meanwhile.

    Raises ``IntegrityError`` for changed files or another tag's release, and ``ReleaseConflictError`` for a
    tag that moved.
    """
    _require_tag(draft, commit, ports)
    public = ports.host.publish(draft, plan.title, plan.body, commit)
    if public.tag != plan.tag:
        what = f"Somebody else made {plan.tag} the release of {public.tag} while it was published."
        ours = replace(public, tag=plan.tag)
        raise IntegrityError(what, advice=_withdrawn(ours, ports, "Run it again."))
    if table := _differences(plan, public, ports):
        what = f"{plan.tag} was changed by somebody else while it was published:"
        raise IntegrityError(what, details=table, advice=_withdrawn(public, ports, "Run it again."))
    now = _tagged_commit(plan.tag, ports)
    if commit and now not in (None, commit):
        raise _moved_tag(plan.tag, commit, now, _withdrawn(public, ports, _MOVED))
    return public


def _differences(plan: ReleasePlan, public: Release, ports: PublishPorts) -> list[str]:
    """Return the published files that differ from the plan, as a table's lines; empty if there are none."""
    if is_complete(compare(plan.files, public.assets)):
        return []
    rows = compare(plan.files, ports.host.assets(public))  # the answer may lack some files
    return render_table([row for row in rows if row.status is not AssetStatus.EQUAL])


def _checked_immutable(public: Release, ports: PublishPorts, wanted: bool | None) -> Release:
    """Return the release after comparing whether it is immutable with ``wanted``.

    A release that must be immutable and is not is withdrawn, with an ``IntegrityError``; for ``None`` there
    is only a warning.
    """
    if wanted is False or public.immutable:
        return public
    if wanted is None:
        ports.reporter.warn(f"{public.tag} is public and not immutable: whoever may write can change it")
        return public
    seen = ports.host.published(public.tag)  # the answer to publishing may have come too early
    if seen and seen.immutable:
        return seen
    what = f"{public.tag} is not immutable, although the repository's setting demands it."
    then = "Look at that setting and run it again, or pass --allow-mutable."
    raise IntegrityError(what, advice=_withdrawn(public, ports, then))


def _withdrawn(public: Release, ports: PublishPorts, then: str) -> str:
    """Make a release that should not be public a draft again, unless it is immutable; return the advice."""
    if public.immutable:
        return f"It is public and immutable: delete {public.html_url} and use a new --tag."
    ports.host.withdraw(public)
    return f"It is a draft again: {public.html_url}. {then}"


def _require_replaceable(public: Release, options: PublishOptions) -> None:
    also = " and immutable" if public.immutable else ""
    state = f"{public.tag} is published with other files{also}: {public.html_url}"
    if public.immutable:
        raise ReleaseConflictError(state, advice="Nobody can change it: use a new --tag.")
    if not options.replace:
        raise ReleaseConflictError(
            state,
            advice="People may have downloaded it: use a new --tag; or --replace, which never shows an "
            "incomplete release.",
        )


def _look(
    tag: str, files: Sequence[LocalFile], ports: PublishPorts
) -> tuple[Release | None, Release | None, tuple[AssetRow, ...]]:
    """Return the published release, the published release or draft, and the table, which is also shown."""
    public = ports.host.published(tag)
    release = public or _draft(tag, ports)
    rows = tuple(compare(files, ports.host.assets(release) if release else ()))
    for line in render_table(rows):
        ports.reporter.say(line)
    return public, release, rows


def _draft(tag: str, ports: PublishPorts) -> Release | None:
    """Return the oldest draft of the tag; ``None`` if there is none. Further drafts give warnings."""
    drafts = ports.host.drafts(tag)
    for other in drafts[1:]:
        ports.reporter.warn(f"another draft of {tag} is left alone; delete it by hand: {other.html_url}")
    if drafts:
        ports.reporter.say(f"there is a draft: {drafts[0].html_url}")
    return drafts[0] if drafts else None


def _act(draft: Release, rows: Sequence[AssetRow], ports: PublishPorts) -> None:
    deletes, uploads = converge(rows)
    left = sum(file.size for file in uploads)
    with ports.reporter.progress(f"{len(uploads)} files", left) as advance:
        for asset, reason in deletes:
            ports.reporter.say(f"delete {asset.name}: {reason}")
            ports.host.delete(asset)
        for file in uploads:
            ports.reporter.say(f"upload {file.name}, {file.size:,} of {left:,} bytes to go")
            ports.host.upload(draft, file)
            left -= file.size
            advance(file.size)


def _observe_again(plan: ReleasePlan, draft: Release, ports: PublishPorts) -> tuple[AssetRow, ...]:
    rows = tuple(compare(plan.files, ports.host.assets(draft)))
    if not is_complete(rows):
        raise IntegrityError(
            f"{plan.tag} is not what was uploaded, so it stays a draft:",
            details=render_table(rows),
            advice="Is someone else publishing the same tag? Run it again.",
        )
    return rows
