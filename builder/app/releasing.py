"""The verbs of releasing, as Invoke tasks; ``tasks.py`` takes them in."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from builder.app.flags import FLAGS, reported, workshop
from builder.app.mirroring import mirror_dist
from builder.app.publishing import Target, publish_dist, tell_status
from builder.core.preflight import Leniency
from builder.stages.publish import PublishOptions

_WHERE = {
    "tag": "tag of the release (default: publish.tag of variants.yaml)",
    "api": "API root other than publish.api of variants.yaml",
    "repository": "owner/name other than publish.repository (or GITHUB_REPOSITORY)",
    "dist": FLAGS["dist"],
}
_ALLOW = {
    "allow-lean": "let packages through that hold less than the full profile",
    "allow-unresolved": "let packages through whose base image is not pinned by digest",
    "allow-mixed": "let packages of different ONNX Runtime, CUDA or cuDNN versions through",
}


@task(
    help={
        **_WHERE,
        **_ALLOW,
        "dry-run": "show what would be done, write nothing to the host",
        "draft": "stop before the release becomes public",
        "replace": "take a public release that differs back to a draft, and publish it anew",
    }
)
@reported
def publish(  # noqa: PLR0913, PLR0917 - a verb has as many flags as it needs
    _context: Context,
    tag: str | None = None,
    dry_run: bool = False,
    draft: bool = False,
    replace: bool = False,
    api: str | None = None,
    repository: str | None = None,
    allow_lean: bool = False,
    allow_unresolved: bool = False,
    allow_mixed: bool = False,
    dist: str | None = None,
) -> None:
    """Make the release of dist/ on GitHub complete, then public. Token: GITHUB_TOKEN, or gh's own."""
    allow = Leniency(lean=allow_lean, unresolved=allow_unresolved, mixed=allow_mixed)
    asked = PublishOptions(tag=tag, dry_run=dry_run, draft=draft, replace=replace, allow=allow)
    publish_dist(workshop(dist), asked, Target(api=api, repository=repository))


@task(name="release-status", help=_WHERE)
@reported
def release_status(
    _context: Context,
    tag: str | None = None,
    api: str | None = None,
    repository: str | None = None,
    dist: str | None = None,
) -> None:
    """Show how the release on GitHub stands against dist/: exit 1 unless it is public and equal."""
    if not tell_status(workshop(dist), tag, Target(api=api, repository=repository)):
        raise Exit("the release is not public and equal to dist; see the table above", code=1)


@task(
    help={
        "to": "the mirror's folder",
        "tag": _WHERE["tag"],
        "dist": FLAGS["dist"],
        **_ALLOW,
        "dry-run": "show what would be done, write nothing to the mirror",
        "draft": "stop before the release becomes public",
        "replace": "make a public release that differs, or was damaged, equal to dist",
    }
)
@reported
def mirror(  # noqa: PLR0913, PLR0917 - a verb has as many flags as it needs
    _context: Context,
    to: str,
    tag: str | None = None,
    dry_run: bool = False,
    draft: bool = False,
    replace: bool = False,
    allow_lean: bool = False,
    allow_unresolved: bool = False,
    allow_mixed: bool = False,
    dist: str | None = None,
) -> None:
    """Make the release of dist/ in a folder that a static web server shows."""
    allow = Leniency(lean=allow_lean, unresolved=allow_unresolved, mixed=allow_mixed)
    asked = PublishOptions(tag=tag, dry_run=dry_run, draft=draft, replace=replace, allow=allow)
    mirror_dist(workshop(dist), asked, Path(to))
