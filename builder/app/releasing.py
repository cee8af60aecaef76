"""The verbs publish, release-status, mirror and matrix, and their adapters."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from builder.adapters.github.http import GitHubHttp
from builder.adapters.github.releases import GitHub
from builder.adapters.mirror.folder import MirrorFolder
from builder.adapters.mirror.host import DirectoryHost
from builder.app.command_line import FLAGS, make_wiring, reported
from builder.app.verbs import write_client
from builder.builds.proving import verifier
from builder.builds.wiring import Wiring
from builder.errors import ToolMissingError
from builder.files.atomic_write import part_file
from builder.formats.package_names import CUDA
from builder.pipeline.verify import verify
from builder.project.variants import Origin, Project, Variant
from builder.release.assets import ReleaseHost
from builder.release.mirror import mirror_tag
from builder.release.preflight import Leniency
from builder.release.prepare import (
    CLIENT,
    Published,
    PublishOptions,
    PublishPorts,
    State,
    index_url,
    release_tag,
)
from builder.release.publish import publish_release, read_release_status

_TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")

_PUBLIC_API = "api.github.com"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The repository and the API to publish to; ``None`` stands for the configured one."""

    api: str | None = None
    repository: str | None = None


def publish_dist(wiring: Wiring, options: PublishOptions, target: Target) -> None:
    """Make the client, prove every package from its bytes, then make the release."""
    project = with_target(wiring, target)
    host = github_host(wiring, project)
    ours = project.publish.repository == wiring.env.get("GITHUB_REPOSITORY")
    commit = options.commit or (wiring.env.get("GITHUB_SHA") if ours else None)
    done = publish_on(wiring, project, host, replace(options, commit=commit))
    wiring.reporter.say(f"{done.tag}: {done.state.value}{f' at {done.url}' if done.url else ''}")


def publish_on(wiring: Wiring, project: Project, host: ReleaseHost, options: PublishOptions) -> Published:
    """Publish ``dist`` on any host. The client's default index is where ``project`` publishes."""
    tag = release_tag(wiring.dist, project, wiring.archive(wiring.reporter), options.tag)
    write_client(wiring, index_url(project.publish, tag))
    return publish_release(wiring.dist, project, _ports(wiring, host), replace(options, tag=tag))


def show_status(wiring: Wiring, tag: str | None, target: Target) -> bool:
    """Report the release compared with ``dist``; whether it is public and equal."""
    project = with_target(wiring, target)
    tag = tag or release_tag(wiring.dist, project, wiring.archive(wiring.reporter))
    found = read_release_status(wiring.dist, tag, _ports(wiring, github_host(wiring, project)))
    wiring.reporter.say(f"{tag}: {found.state.value}{f' at {found.url}' if found.url else ''}")
    return found.state is State.PUBLISHED


def github_host(wiring: Wiring, project: Project) -> GitHub:
    """The releases of the project's repository."""
    http = GitHubHttp(
        api=project.publish.api,
        token=_token(wiring, project.publish.api),
        reporter=wiring.reporter,
        sleep=time.sleep,
        clock=time.time,
    )
    return GitHub(repository=project.publish.repository, http=http, reporter=wiring.reporter)


def with_target(wiring: Wiring, target: Target) -> Project:
    """The project with ``target`` as the place to publish to."""
    configured = wiring.project.publish
    repository = target.repository or wiring.env.get("GITHUB_REPOSITORY") or configured.repository
    publishing = replace(configured, api=target.api or configured.api, repository=repository)
    return replace(wiring.project, publish=publishing)


def _token(wiring: Wiring, api: str) -> str:
    """The token of the environment, else the one of ``gh``; empty where there is none."""
    found = next((wiring.env[name] for name in _TOKENS if wiring.env.get(name)), None)
    return found if found is not None else _token_of_gh(wiring, api)


def _token_of_gh(wiring: Wiring, api: str) -> str:
    """The token that ``gh`` stores for the server, empty if it is not logged in there."""
    server = urlsplit(api).hostname or ""
    host = "github.com" if server == _PUBLIC_API else server
    try:
        done = wiring.runner.run(["gh", "auth", "token", "--hostname", host], check=False)
    except ToolMissingError:
        return ""
    return done.stdout.strip() if done.code == 0 else ""


def _ports(wiring: Wiring, host: ReleaseHost) -> PublishPorts:
    return PublishPorts(
        host=host,
        archive=wiring.archive(wiring.reporter),
        checksums=wiring.checksums,
        reporter=wiring.reporter,
        verify=lambda package: _prove(wiring, package),
        write=part_file,
        loader=wiring.loader,
    )


def _prove(wiring: Wiring, package: Path) -> None:
    """Re-read every byte of a package. Nothing is run."""
    verify(package, verifier(wiring, wiring.reporter, None))


def mirror_dist(wiring: Wiring, options: PublishOptions, to: Path) -> None:
    """Make the release of ``dist`` in the mirror's folder ``to``, of the same files as on GitHub.

    Access, space and tag are checked before packages are proved. Raises what ``publish`` does,
    ``ConfigError`` for a tag that no folder can have, and ``DiskError``.
    """
    mirror = MirrorFolder(to)
    host = DirectoryHost(mirror, wiring.reporter)
    tag = mirror_tag(release_tag(wiring.dist, wiring.project, wiring.archive(wiring.reporter), options.tag))
    host.require_access()
    host.require_room(tag, _listed_files(wiring))
    with _mirror_lock(wiring, mirror, options):
        done = publish_on(wiring, with_target(wiring, Target()), host, replace(options, tag=tag))
        if done.state in (State.PUBLISHED, State.UNCHANGED):
            mirror.finish(tag)
    wiring.reporter.say(f"{tag}: {done.state.value}{f' at {done.url}' if done.url else ''}")


def _mirror_lock(
    wiring: Wiring, mirror: MirrorFolder, options: PublishOptions
) -> AbstractContextManager[None]:
    """The lock of the mirror; a dry run, which writes nothing, needs none."""
    if options.dry_run:
        return nullcontext()
    return mirror.alone(lambda: wiring.reporter.say(f"waiting: another run writes to {mirror.root}"))


def _listed_files(wiring: Wiring) -> tuple[Path, ...]:
    """The release's files that exist before it is prepared, which are nearly all of its bytes."""
    names = {*wiring.checksums.read(wiring.dist), CLIENT}
    return tuple(path for path in (wiring.dist / name for name in sorted(names)) if path.is_file())


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
    publish_dist(make_wiring(dist), asked, Target(api=api, repository=repository))


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
    if not show_status(make_wiring(dist), tag, Target(api=api, repository=repository)):
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
    mirror_dist(make_wiring(dist), asked, Path(to))


_RUNNER = "ubuntu-24.04"

_MINUTES = {Origin.WHEEL: 60, Origin.AUTO: 360, Origin.SOURCE: 360}
"""The time limits: a repacked wheel takes minutes, a compile may take a hosted runner's six hours.

Source: docs.github.com, "Actions limits", job execution time.
"""


@dataclass(frozen=True, kw_only=True)
class MatrixLeg:
    """One job of the matrix: what it builds and where it runs."""

    variant: str
    sm: tuple[str, ...]
    """``75``, ``90a``; empty for a package without CUDA."""
    origin: str
    """As ``variants.yaml`` says it: ``auto`` is decided by the job itself."""
    runner: str
    """A label of ``runs-on``."""
    timeout_minutes: int


def show_matrix(wiring: Wiring, *, as_json: bool) -> None:
    """Print the jobs as a table, or as JSON on one line. Raises ``ConfigError``."""
    found = matrix_legs(wiring.project)
    wiring.console.show(matrix_json(found) if as_json else "\n".join(matrix_table(found)))


def matrix_legs(project: Project) -> tuple[MatrixLeg, ...]:
    """One job for each package, in the order of ``variants.yaml``. Packages without CUDA are repacked."""
    origin = project.onnxruntime.origin
    return tuple(
        _leg(one, origin if one.provider == CUDA else Origin.WHEEL) for one in project.packages.values()
    )


def matrix_json(found: Iterable[MatrixLeg]) -> str:
    """The jobs on one line of JSON (``docs/schemas/matrix.schema.json``), as a step's output takes it."""
    return json.dumps({"include": [asdict(leg) for leg in found]})


def matrix_table(found: Iterable[MatrixLeg]) -> Iterator[str]:
    """The table, one line a job."""
    for leg in found:
        sm = " ".join(leg.sm) or "-"
        yield f"{leg.variant:<10} {leg.origin:<7} {leg.runner:<13} {leg.timeout_minutes:>4} min  sm {sm}"


def _leg(variant: Variant, origin: Origin) -> MatrixLeg:
    return MatrixLeg(
        variant=variant.name,
        sm=tuple(str(arch) for arch in variant.sm),
        origin=origin.value,
        runner=_RUNNER,
        timeout_minutes=_MINUTES[origin],
    )
