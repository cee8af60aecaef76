"""The verbs publish, release-status and mirror: Invoke tasks, and the adapters that each of them needs."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from builder.adapters.github.http import GitHubHttp
from builder.adapters.github.releases import GitHub
from builder.adapters.mirror_folder import MirrorFolder
from builder.adapters.mirror_host import DirectoryHost
from builder.app.flags import FLAGS, reported, workshop
from builder.app.verbs import write_client
from builder.builds.proving import verifier
from builder.builds.workshop import Workshop
from builder.errors import ToolMissingError
from builder.files.atomic_write import part_file
from builder.pipeline.verify import verify
from builder.project.variants import Project
from builder.release.assets import ReleaseHost
from builder.release.mirror import mirror_tag
from builder.release.options import (
    CLIENT,
    Published,
    PublishOptions,
    PublishPorts,
    State,
    index_url,
    release_tag,
)
from builder.release.preflight import Leniency
from builder.release.publish import publish_release, read_release_status

_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")

_PUBLIC_API = "api.github.com"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Which repository on which server; ``None`` takes what is configured."""

    api: str | None = None
    repository: str | None = None


def publish_dist(shop: Workshop, options: PublishOptions, target: Target) -> None:
    """Make the client, prove every package again from its own bytes, then make the release."""
    project = aimed(shop, target)
    host = github(shop, project)
    ours = project.publish.repository == shop.env.get("GITHUB_REPOSITORY")
    commit = options.commit or (shop.env.get("GITHUB_SHA") if ours else None)
    done = publish_on(shop, project, host, replace(options, commit=commit))
    shop.reporter.say(f"{done.tag}: {done.state.value}{f' at {done.url}' if done.url else ''}")


def publish_on(shop: Workshop, project: Project, host: ReleaseHost, options: PublishOptions) -> Published:
    """Publish ``dist`` on any host. The client in it looks for the index where ``project`` publishes."""
    tag = release_tag(shop.dist, project, shop.archive(shop.reporter), options.tag)
    write_client(shop, index_url(project.publish, tag))
    return publish_release(shop.dist, project, _ports(shop, host), replace(options, tag=tag))


def tell_status(shop: Workshop, tag: str | None, target: Target) -> bool:
    """Show how the release stands against ``dist``; whether it is public and equal."""
    project = aimed(shop, target)
    tag = tag or release_tag(shop.dist, project, shop.archive(shop.reporter))
    found = read_release_status(shop.dist, tag, _ports(shop, github(shop, project)))
    shop.reporter.say(f"{tag}: {found.state.value}{f' at {found.url}' if found.url else ''}")
    return found.state is State.PUBLISHED


def github(shop: Workshop, project: Project) -> GitHub:
    """The releases of the project's repository."""
    http = GitHubHttp(
        api=project.publish.api,
        token=_token(shop, project.publish.api),
        reporter=shop.reporter,
        sleep=time.sleep,
        clock=time.time,
    )
    return GitHub(repository=project.publish.repository, http=http, reporter=shop.reporter)


def aimed(shop: Workshop, target: Target) -> Project:
    """The project, publishing to ``target``."""
    configured = shop.project.publish
    repository = target.repository or shop.env.get("GITHUB_REPOSITORY") or configured.repository
    publishing = replace(configured, api=target.api or configured.api, repository=repository)
    return replace(shop.project, publish=publishing)


def _token(shop: Workshop, api: str) -> str:
    """From the environment, else what ``gh`` is logged in with; empty where there is none."""
    found = next((shop.env[name] for name in _TOKENS if shop.env.get(name)), None)
    return found if found is not None else _token_of_gh(shop, api)


def _token_of_gh(shop: Workshop, api: str) -> str:
    """What ``gh`` keeps for the server, if it is logged in there; it knows GitHub's own by its web name."""
    server = urlsplit(api).hostname or ""
    host = "github.com" if server == _PUBLIC_API else server
    try:
        done = shop.runner.run(["gh", "auth", "token", "--hostname", host], check=False)
    except ToolMissingError:
        return ""
    return done.stdout.strip() if done.code == 0 else ""


def _ports(shop: Workshop, host: ReleaseHost) -> PublishPorts:
    return PublishPorts(
        host=host,
        archive=shop.archive(shop.reporter),
        checksums=shop.checksums,
        reporter=shop.reporter,
        verify=lambda package: _prove(shop, package),
        write=part_file,
        loader=shop.loader,
    )


def _prove(shop: Workshop, package: Path) -> None:
    """Re-read every byte of a package, without running anything."""
    verify(package, verifier(shop, shop.reporter, None))


def mirror_dist(shop: Workshop, options: PublishOptions, to: Path) -> None:
    """Make the release of ``dist`` on the mirror ``to``: the very files that ``publish`` puts on GitHub.

    What would stop it is found before packages are proved. Raises what ``publish`` does, ``ConfigError`` for
    a tag that no folder can have, and ``DiskError``.
    """
    mirror = MirrorFolder(to)
    host = DirectoryHost(mirror, shop.reporter)
    tag = mirror_tag(release_tag(shop.dist, shop.project, shop.archive(shop.reporter), options.tag))
    host.require_access()
    host.require_room(tag, _listed_files(shop))
    with _turn(shop, mirror, options):
        done = publish_on(shop, aimed(shop, Target()), host, replace(options, tag=tag))
        if done.state in (State.PUBLISHED, State.UNCHANGED):
            mirror.finish(tag)
    shop.reporter.say(f"{tag}: {done.state.value}{f' at {done.url}' if done.url else ''}")


def _turn(shop: Workshop, mirror: MirrorFolder, options: PublishOptions) -> AbstractContextManager[None]:
    """One run writes at a time; a dry run writes nothing."""
    if options.dry_run:
        return nullcontext()
    return mirror.alone(lambda: shop.reporter.say(f"waiting: another run writes to {mirror.root}"))


def _listed_files(shop: Workshop) -> tuple[Path, ...]:
    """What of the release is there before it is prepared: nearly all of its bytes."""
    names = {*shop.checksums.read(shop.dist), CLIENT}
    return tuple(path for path in (shop.dist / name for name in sorted(names)) if path.is_file())


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
